"""The rules that a region's code obeys, and the program that holds it against them.

`main` is a program of its own, in a child with limits (`limited_child.py`), on the standard library
alone: a hostile text may cost it its memory or its time, and not the host's. The rules keep
honest submissions comparable and readable; what holds a dishonest one is the sandbox.
"""

import ast
import builtins
import json
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.intake.refusals import MAX_FINDINGS, MAX_MESSAGE
from harness.intake.rules import (
    class_rules,
    comment_rules,
    construct_rules,
    data_rules,
    definition_rules,
    form_rules,
    name_rules,
)
from harness.intake.rules.library_rules import Libraries
from harness.intake.rules.module_scope import Binding, Tree, module_bindings
from harness.intake.rules.rule_tables import OTHER_LINE, Found, at, is_special
from harness.intake.rules.table import RULES

CPU_SECONDS = 2
MEMORY_BYTES = 384 * 1024 * 1024
MAX_DEPTH = 200
"""Levels of the syntax tree; an ordinary region has about 20."""


def check(
    region: str, scaffold: str, first: int, last: int, classes: Mapping[str, Sequence[str]]
) -> list[Found]:
    """Every rule that `region` breaks, by line.

    `scaffold` is the pristine file and `first` to `last` its region's lines (1-based): the names
    to protect are those of the other lines. `classes` are those to define, with their methods. A
    syntax error or a tree that is too deep hides the other findings.
    """
    try:
        tree = ast.parse(region)
    except SyntaxError as error:
        return [_syntax(error)]
    except (MemoryError, RecursionError):
        return [Found("too-deep", 0, 0, "this nests too deeply for Python's parser")]
    if deep := _too_deep(tree):
        return [Found("too-deep", deep, 0, f"this nests more than {MAX_DEPTH} levels deep")]
    lines = region.split("\n")
    pristine = ast.parse(scaffold)
    fixed = [each for each in pristine.body if not first <= each.lineno <= last]
    nodes = [each for each in ast.walk(tree) if not isinstance(each, ast.expr_context)]
    # Constants that stand alone are data that nothing reads, as `__doc__` is refused.
    alone = {
        id(each.value)
        for each in nodes
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }
    nodes = [each for each in nodes if id(each) not in alone]
    with_names = Tree(tree, nodes, fixed)
    found = [
        *definition_rules.missing(tree, nodes, classes, pristine, with_names.roots),
        *definition_rules.repeated(tree, nodes),
        *definition_rules.unreachable(nodes),
        *_rebound(tree, fixed),
        *name_rules.check(region, nodes),
        *comment_rules.check(lines, nodes),
        *construct_rules.check(nodes),
        *class_rules.check(with_names, nodes),
        *form_rules.check(with_names, nodes),
        *Libraries(with_names, nodes, fixed).check(),
        *data_rules.totals(nodes),
    ]
    try:
        compile(tree, "region", "exec", dont_inherit=True)
        found += definition_rules.undefined(region, with_names, nodes, [*fixed, *tree.body])
    except SyntaxError as error:
        # What the parser lets through: a return outside a function, a parameter named twice.
        found.append(_syntax(error))
    except (RecursionError, MemoryError):
        found.append(Found("too-heavy", 0, 0, "Python cannot compile this within the limits"))
    return sorted({_in_characters(each, lines) for each in found}, key=lambda each: each[1:])


def _syntax(error: SyntaxError) -> Found:
    message, other = str(error.msg), 0
    # Python's own words may name another line, counted in the region.
    if named := re.search(r"(?<=on |at )line (\d{1,7})\b", message):
        message, other = message.replace(named[0], OTHER_LINE), int(named[1])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = error.lineno or 1, error.offset or 0
    return Found("syntax", *place, f"{message} (read as Python {version})", other)


def _rebound(tree: ast.Module, fixed: Sequence[ast.stmt]) -> Iterator[Found]:
    own: dict[str, list[Binding]] = {}
    for binding in module_bindings(fixed):
        own.setdefault(binding.name, []).append(binding)
    used = {
        node.id for each in fixed for node in ast.walk(each) if isinstance(node, ast.Name)
    } & set(dir(builtins))
    for binding in module_bindings(tree.body):
        name, node = binding.name, binding.node
        if is_special(name):
            yield at("special-name", node, f"`{name}` is not a region's to define")
        elif name in own:
            meanings = {each.imported for each in own[name]}
            if binding.imported is None or meanings != {binding.imported}:
                line = getattr(own[name][0].node, "lineno", 0)
                message = f"`{name}` belongs to the fixed part (line {line} of scaffold.py)"
                yield at("fixed-name", node, message)
        elif name in used:
            yield at("fixed-builtin", node, f"the fixed part uses the builtin `{name}`")


def _in_characters(found: Found, lines: Sequence[str]) -> Found:
    """With the column in characters, where the tree counts bytes of UTF-8."""
    if found.rule == "syntax" or not 0 < found.line <= len(lines):
        return found
    before = lines[found.line - 1].encode()[: max(0, found.column - 1)]
    return found._replace(column=len(before.decode(errors="ignore")) + 1 if found.column else 0)


def _too_deep(tree: ast.Module) -> int:
    """The line of the first statement that nests too deeply, 0 if none does."""
    level: list[tuple[ast.AST, int]] = [(tree, 1)]
    for _ in range(MAX_DEPTH):
        level = [
            (child, getattr(child, "lineno", line))
            for node, line in level
            for child in ast.iter_child_nodes(node)
        ]
        if not level:
            return 0
    return level[0][1]


def _report(found: Sequence[Found]) -> dict[str, Any]:
    """The first findings and the number of the others; no warning takes an error's place."""
    ordered = sorted(found, key=lambda each: RULES[each.rule].warns)
    # One character more than is shown, so that a reader sees that something was cut.
    cut = MAX_MESSAGE + 1
    shown = [each._replace(message=each.message[:cut]) for each in ordered[:MAX_FINDINGS]]
    return {"found": shown, "more": len(found) - len(shown)}


def main() -> None:
    """Limit this process, read the arguments of `check` as JSON, answer on standard output."""
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    found = check(**json.load(sys.stdin.buffer))
    json.dump(_report(found), sys.stdout)
