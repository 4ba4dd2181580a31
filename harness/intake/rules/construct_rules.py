"""The rules on names and constructs, each judged by its own node of the tree.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.intake.rules import data_rules
from harness.intake.rules.rule_tables import (
    ALLOWED_IMPORTS,
    ASSIGNED_SPECIAL,
    ATTRIBUTE_CALLS,
    BROAD_EXCEPTIONS,
    BUILTIN_CLASSES,
    DEFINED_SPECIAL,
    READ_SPECIAL,
    REFUSED_NAMES,
    Found,
    at,
    is_refused_attribute,
    is_special,
)


def check(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    yield from _states(nodes)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in ATTRIBUTE_CALLS and id(node) not in called:
            yield at("computed-attribute", node, f"`{node.id}` is used without being called")
        if judge := _CHECKS.get(type(node)):
            yield from judge(node)


def _states(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`copy` and `pickle` set what a state names on whatever `__new__` gives."""
    empty = {
        id(node.targets[0])
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple | ast.List)
        and not node.value.elts
    }
    bound = [(name, node) for node in nodes if (name := _bound(node)) is not None]
    if any(name == "__new__" for name, _ in bound):
        for name, node in bound:
            if name == "__getstate__" or (name == "__slots__" and id(node) not in empty):
                message = f"`{name}` and a `__new__` let a copy set attributes of others: keep one"
                yield at("special-name", node, message)


def _bound(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.alias(name=name, asname=other):
            return other or name
    return None


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
    elif is_refused_attribute(name):
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
        if isinstance(base, ast.Name) and base.id == "type":
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
        if name == "__class__":
            yield at("special-name", node, "`__class__` is not to be read by a pattern")
    if node.patterns and not (isinstance(node.cls, ast.Name) and node.cls.id in BUILTIN_CLASSES):
        message = "positional patterns read attributes by names that do not stand here"
        yield at("computed-attribute", node, message)


def _capture(node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> Iterator[Found]:
    name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    yield from _defined(name or "", node)


def _global(node: ast.Global) -> Iterator[Found]:
    yield at("global-statement", node, f"`global {', '.join(node.names)}`")


_CHECKS: dict[type[ast.AST], Callable[[Any], Iterator[Found]]] = {
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
