"""The rules that a region's code obeys, and the program that holds it against them.

`main` is a program of its own, in a child with limits (`limited_child.py`), on the standard library
alone: a hostile text may cost it its memory or its time, and not the host's. The rules keep
honest submissions comparable and readable; what holds a dishonest one is the sandbox.
"""

import ast
import builtins
import io
import json
import re
import resource
import sys
import tokenize
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from harness.intake import data_rules, definition_rules
from harness.intake.library_rules import Libraries
from harness.intake.module_scope import Binding, module_bindings
from harness.intake.refusals import RULES
from harness.intake.rule_tables import (
    ALLOWED_IMPORTS,
    ASSIGNED_SPECIAL,
    ATTRIBUTE_CALLS,
    BROAD_EXCEPTIONS,
    BUILTIN_CLASSES,
    DEFINED_SPECIAL,
    PLAIN_LETTERS,
    READ_SPECIAL,
    REFUSED_ATTRIBUTES,
    REFUSED_NAMES,
    Found,
    at,
    is_special,
)

CPU_SECONDS = 2
MEMORY_BYTES = 384 * 1024 * 1024
MAX_REPORTED = 60
"""Findings that are passed on, the rest is counted. A little more than anyone is shown."""

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
    libraries = Libraries(tree, nodes, fixed)
    found = [
        *definition_rules.missing(tree, nodes, classes, pristine, libraries.roots),
        *definition_rules.repeated(tree, nodes),
        *definition_rules.unreachable(nodes),
        *_rebound(tree, fixed),
        *_identifiers(region),
        *_constructs(nodes),
        *libraries.check(),
        *data_rules.totals(nodes),
    ]
    try:
        compile(tree, "region", "exec", dont_inherit=True)
    except SyntaxError as error:
        # What the parser lets through: a return outside a function, a parameter named twice.
        found.append(_syntax(error))
    except (RecursionError, MemoryError):
        found.append(Found("too-heavy", 0, 0, "Python cannot compile this within the limits"))
    return sorted({_in_characters(each, lines) for each in found}, key=lambda each: each[1:])


def _syntax(error: SyntaxError) -> Found:
    # Line numbers in it count in the region, wherever that was handed in.
    message = re.sub(r"(on|at) line \d+", r"\g<0> of the region", str(error.msg))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = error.lineno or 1, error.offset or 0
    return Found("syntax", *place, f"{message} (read as Python {version})")


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


def _identifiers(region: str) -> Iterator[Found]:
    # The tree holds names in NFKC already: the other rules cannot be evaded so, only a reader.
    if region.isascii():
        return
    for token in tokenize.generate_tokens(io.StringIO(region, newline="\n").readline):
        name = token.string
        # Python's parser takes for letters what this tokenizer takes for errors: a middle dot.
        if token.type not in (tokenize.NAME, tokenize.ERRORTOKEN) or name.isascii():
            continue
        read = unicodedata.normalize("NFKC", name)
        odd = next((each for each in name if not each.isascii() and each not in PLAIN_LETTERS), "")
        if odd:
            message = f"`{name}` holds {unicodedata.name(odd, 'a letter without a name')}"
        elif read != name:
            message = f"`{name}` is read as `{read}`"
        else:
            continue
        column = len(token.line[: token.start[1]].encode())
        yield Found("identifier", token.start[0], column + 1, message)


def _constructs(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in ATTRIBUTE_CALLS and id(node) not in called:
            yield at("computed-attribute", node, f"`{node.id}` is used without being called")
        if rule := _RULES.get(type(node)):
            yield from rule(node)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    if isinstance(node, ast.ImportFrom) and node.level:
        yield at("import-form", node, "a relative import")
        return
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        message = "`from __future__` works at the top of a file alone, and the region is inside one"
        yield at("import", node, message)
        return
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else None
    for alias in node.names:
        yield from _defined(alias.asname or "", node)
        if alias.name == "*":
            yield at("import-form", node, f"`from {module} import *` brings unknown names")
        path = alias.name if module is None else module
        if path.split(".")[0] not in ALLOWED_IMPORTS:
            allowed = ", ".join(sorted(ALLOWED_IMPORTS))
            yield at("import", node, f"`{path}` is not among the allowed imports: {allowed}")
            continue
        for part in (*path.split(".")[1:], *([alias.name] if module is not None else [])):
            yield from _attribute_name(part, node)


def _name(node: ast.Name) -> Iterator[Found]:
    if node.id in REFUSED_NAMES:
        yield at("refused-name", node, f"`{node.id}` is not available")
    elif isinstance(node.ctx, ast.Load):
        if is_special(node.id) and node.id not in READ_SPECIAL:
            yield at("special-name", node, f"`{node.id}` is not available")
    else:
        yield from _defined(node.id, node)


def _defined(name: str, node: ast.AST) -> Iterator[Found]:
    """For a name that is bound: in a class, in a function or as a parameter."""
    if is_special(name) and name not in DEFINED_SPECIAL:
        yield at("special-name", node, f"`{name}` is not a region's to define")
    elif name == "super":
        # What may be read of `super()` may not be read of anything else.
        yield at("refused-name", node, "`super` keeps its meaning")


def _argument(node: ast.arg) -> Iterator[Found]:
    yield from _defined(node.arg, node)


def _attribute(node: ast.Attribute) -> Iterator[Found]:
    # The attribute's name ends where the expression does.
    column = (node.end_col_offset or 0) - len(node.attr.encode()) + 1
    if not isinstance(node.ctx, ast.Load) and is_special(node.attr):
        if node.attr not in ASSIGNED_SPECIAL:
            yield at("special-name", node, f"`{node.attr}` is not a region's to set")
        return
    match node.value:
        case ast.Call(func=ast.Name(id="super"), args=[], keywords=[]):
            if node.attr in DEFINED_SPECIAL:
                return
        case ast.Name(id="object") if node.attr == "__setattr__":
            return  # Judged by the form of the call.
    for each in _attribute_name(node.attr, node):
        yield each._replace(line=node.end_lineno or each.line, column=max(1, column))


def _attribute_name(name: str, node: ast.AST) -> Iterator[Found]:
    if is_special(name):
        if name not in READ_SPECIAL:
            yield at("special-name", node, f"`{name}` is not to be read")
    elif name in REFUSED_ATTRIBUTES or name.lstrip("_") in REFUSED_ATTRIBUTES:
        yield at("refused-attribute", node, f"`{name}` is not available as an attribute")


def _call(node: ast.Call) -> Iterator[Found]:
    if not isinstance(node.func, ast.Name):
        return
    name = node.func.id
    if name == "input":
        yield at("refused-name", node, "`input()` would wait for a person")
    elif name == "type" and (len(node.args) != 1 or isinstance(node.args[0], ast.Starred)):
        yield at("metaclass", node, "`type` with several arguments makes a class")
    elif name in ATTRIBUTE_CALLS:
        match node.args:
            case [_, ast.Constant(value=str(attribute)), *_]:
                yield from _attribute_name(attribute, node)
                if (
                    name != "getattr"
                    and is_special(attribute)
                    and attribute not in ASSIGNED_SPECIAL
                ):
                    yield at("special-name", node, f"`{attribute}` is not a region's to set")
            case _:
                yield at("computed-attribute", node, f"`{name}` with a computed name")


def _class(node: ast.ClassDef) -> Iterator[Found]:
    for keyword in node.keywords:
        if keyword.arg in ("metaclass", None):
            yield at("metaclass", keyword.value, f"class `{node.name}` is given a metaclass")
    yield from _defined(node.name, node)
    for base in node.bases:
        match base:
            case (
                ast.Name(id="type")
                | ast.Call(func=ast.Name(id="type"))
                | ast.Attribute(attr="__class__")
            ):
                yield at("metaclass", base, f"this base makes class `{node.name}` a metaclass")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    yield from _defined(node.name, node)


def _handler(node: ast.ExceptHandler) -> Iterator[Found]:
    yield from _defined(node.name or "", node)
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    for each in caught:
        if each is None:
            yield at("broad-except", node, "a bare `except`")
        elif isinstance(each, ast.Name) and each.id in BROAD_EXCEPTIONS:
            yield at("broad-except", each, f"`except {each.id}`")


def _finally(node: ast.Try | ast.TryStar) -> Iterator[Found]:
    stack: list[tuple[ast.AST, bool]] = [(each, False) for each in node.finalbody]
    while stack:
        each, loop = stack.pop()
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.Return():
                yield at("broad-except", each, "a `return` in `finally`")
            case ast.Break() | ast.Continue() if not loop:
                yield at("broad-except", each, "leaving a loop in `finally`")
            case ast.For() | ast.AsyncFor() | ast.While():
                loop = True
        stack += [(child, loop) for child in ast.iter_child_nodes(each)]


def _pattern(node: ast.MatchClass) -> Iterator[Found]:
    for name in node.kwd_attrs:
        yield from _attribute_name(name, node)
    if node.patterns and not (isinstance(node.cls, ast.Name) and node.cls.id in BUILTIN_CLASSES):
        message = "positional patterns read attributes by names that do not stand here"
        yield at("computed-attribute", node, message)


def _capture(node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> Iterator[Found]:
    name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    yield from _defined(name or "", node)


def _global(node: ast.Global) -> Iterator[Found]:
    yield at("global-statement", node, f"`global {', '.join(node.names)}`")


_RULES: dict[type[ast.AST], Callable[[Any], Iterator[Found]]] = {
    ast.Import: _imports,
    ast.ImportFrom: _imports,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.arg: _argument,
    ast.ClassDef: _class,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ExceptHandler: _handler,
    ast.Try: _finally,
    ast.TryStar: _finally,
    ast.MatchClass: _pattern,
    ast.MatchAs: _capture,
    ast.MatchStar: _capture,
    ast.MatchMapping: _capture,
    ast.Global: _global,
    ast.Constant: data_rules.literal,
    ast.List: data_rules.literal,
    ast.Tuple: data_rules.literal,
    ast.Set: data_rules.literal,
    ast.Dict: data_rules.literal,
}


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
    shown = [each._replace(message=each.message[:500]) for each in ordered[:MAX_REPORTED]]
    return {"found": shown, "more": len(found) - len(shown)}


def main() -> None:
    """Limit this process, read one request from standard input, answer on standard output."""
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    request = json.load(sys.stdin.buffer)
    found = check(
        request["region"],
        request["scaffold"],
        request["first"],
        request["last"],
        request["classes"],
    )
    json.dump(_report(found), sys.stdout)
