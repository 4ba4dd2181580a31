"""The rule on comments that are code: `torch.jit` evaluates the types in them.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from harness.intake.rules.rule_tables import Found

_COMMENT = "# type:"
_IGNORE = re.compile(r"# type: ignore(\[[a-zA-Z-]+\])?$|^(?!.*->).*# type: ignore\b")
"""The first as `torch.jit.annotations` has it; the others it refuses, for want of an arrow.

It looks at lines, whatever stands in them.
"""


def check(lines: Sequence[str], nodes: Sequence[ast.AST]) -> Iterator[Found]:
    if not any(map(_names_jit, nodes)):
        return
    for number, line in enumerate(lines, 1):
        if _COMMENT in line and not _IGNORE.search(line):
            column = len(line[: line.index(_COMMENT)].encode()) + 1
            yield Found("type-comment", number, column, "torch.jit would evaluate this comment")


def _names_jit(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="jit") | ast.Constant(value="jit"):
            return True
        case ast.ImportFrom(module=str(module)) if "jit" in module.split("."):
            return True
        case ast.alias(name=name):
            return "jit" in name.split(".")
        case ast.MatchClass(kwd_attrs=names):
            return "jit" in names
    return False
