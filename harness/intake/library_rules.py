"""The rules on libraries, fixed names and a few builtins: what stands around a name counts."""

import ast
import re
from collections.abc import Iterator, Sequence

from harness.intake.module_scope import dotted, fixed_roots
from harness.intake.rule_tables import (
    ALLOWED_IMPORTS,
    ATTRIBUTE_CALLS,
    CARRIED,
    FORMATS,
    GUARDED,
    LIBRARY_PARTS,
    LIBRARY_REFUSED,
    MODULES,
    SETTINGS,
    Found,
    at,
    is_refused_attribute,
    is_special,
)

MAX_PATH = 20
"""Parts of an import's path that are looked at: no module lies deeper."""


class Libraries:
    """One region's tree, with what its names lead to; `check` yields what breaks these rules."""

    def __init__(
        self, tree: ast.Module, nodes: Sequence[ast.AST], fixed: Sequence[ast.stmt]
    ) -> None:
        self.nodes = nodes
        self.roots = fixed_roots(tree, fixed)
        self.parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}

    def check(self) -> Iterator[Found]:
        for node in self.nodes:
            match node:
                case ast.Name():
                    yield from self._module(node)
                    yield from self._builtin(node)
                    yield from self._form(node, node.id)
                case ast.Attribute():
                    yield from self._module(node)
                    yield from self._library(node)
                    yield from self._form(node, node.attr)
                    yield from self._target(node)
                    yield from _format(node)
                case ast.Subscript():
                    yield from self._target(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.MatchClass(kwd_attrs=names) if not FORMATS.isdisjoint(names):
                    yield at("call-form", node, "this takes a text's `format`")
                case ast.Import():
                    for alias in node.names:
                        yield from self._import(alias.name, node)
                case ast.ImportFrom(level=0, module=str(module)):
                    for alias in node.names:
                        yield from self._import(f"{module}.{alias.name}", node)

    def _import(self, path: str, node: ast.stmt) -> Iterator[Found]:
        parts = path.split(".")
        if parts[0] not in ALLOWED_IMPORTS:
            return
        for index in range(1, min(len(parts), MAX_PATH)):
            yield from library_name(".".join(parts[:index]), parts[index], node)

    def _library(self, node: ast.Attribute) -> Iterator[Found]:
        path = dotted(node.value, self.roots)
        if path is not None:
            yield from library_name(path, node.attr, node)

    def _module(self, node: ast.Name | ast.Attribute) -> Iterator[Found]:
        path = dotted(node, self.roots)
        if path is None or not isinstance(node.ctx, ast.Load):
            return
        if path not in MODULES and path not in ALLOWED_IMPORTS:
            return
        match self.parents.get(id(node)):
            case ast.Attribute():
                return
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if first is node:
                if name in ATTRIBUTE_CALLS or name == "hasattr":
                    return
            case ast.Assign(value=value, targets=[ast.Name()]) if value is node and "." in path:
                # `D = torch.distributions`: the rules follow the new name, not into a class.
                if not isinstance(self.parents.get(id(self.parents[id(node)])), ast.ClassDef):
                    return
        yield at("module-value", node, f"the module `{path}` is used as a value")

    def _builtin(self, node: ast.Name) -> Iterator[Found]:
        name = node.id
        if name not in GUARDED or not isinstance(node.ctx, ast.Load):
            return
        parent = self.parents.get(id(node))
        child: ast.AST = node
        if isinstance(parent, ast.Attribute) and name == "object":
            # A frozen dataclass sets its own attributes so.
            match self.parents.get(id(parent)):
                case ast.Call(
                    func=func, args=[ast.Name(id="self"), ast.Constant(value=str(attribute)), _]
                ) if func is parent and parent.attr == "__setattr__" and not is_special(attribute):
                    return
        while isinstance(parent, ast.Tuple | ast.Subscript | ast.BinOp):
            child, parent = parent, self.parents.get(id(parent))
        match parent:
            case ast.Call(func=func) if func is node:
                if name != "object":
                    return  # Judged by the number of arguments; an exception may be made.
                if not parent.args and not parent.keywords:
                    return
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, second]):
                if second is child:
                    return
            case ast.ClassDef():
                if child is node and any(each is node for each in parent.bases):
                    return
            case ast.ExceptHandler(type=caught) if caught is child:
                return  # `broad-except`.
            case ast.MatchClass(cls=cls) if cls is node:
                return
            case ast.arg() | ast.FunctionDef(returns=ast.expr()) | ast.AsyncFunctionDef():
                if child is getattr(parent, "annotation", getattr(parent, "returns", None)):
                    return
            case ast.AnnAssign(annotation=annotation) if annotation is child:
                return
        yield at("builtin-value", node, f"`{name}` is used as a value")

    def _form(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Found]:
        """`dataclass`, `wraps` and `super` in the forms whose effect can be read."""
        if not isinstance(node.ctx, ast.Load):
            return
        parent = self.parents.get(id(node))
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        match name:
            case "dataclass":
                message = "`dataclass` is not the decorator directly above a class"
                above = parent if call is None else self.parents.get(id(call))
                mine = node if call is None else call
                good = (
                    isinstance(above, ast.ClassDef)
                    and bool(above.decorator_list)
                    and above.decorator_list[-1] is mine
                )
            case "wraps":
                message = "`wraps` is not called with one function and nothing else"
                good = (
                    call is not None
                    and len(call.args) == 1
                    and not call.keywords
                    and not isinstance(call.args[0], ast.Starred)
                )
            case "compile" if dotted(node, self.roots) == "torch.compile":
                # A backend that is a function gets a graph that makes code of text.
                message = "`torch.compile` is used as a value, or with options that are no literals"
                good = (
                    isinstance(parent, ast.FunctionDef)
                    if call is None
                    else all(
                        each.arg is not None and isinstance(each.value, ast.Constant)
                        for each in call.keywords
                    )
                )
            case "super" if isinstance(node, ast.Name):
                message = "`super` is used without being called"
                good = call is not None
            case _:
                return
        if not good:
            yield at("call-form", node, message)

    def _target(self, node: ast.Attribute | ast.Subscript) -> Iterator[Found]:
        if not isinstance(node.ctx, ast.Load):
            yield from self._changed(node.value, node)

    def _call(self, node: ast.Call) -> Iterator[Found]:
        match node:
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[first, *_]):
                yield from self._changed(first, node)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[first, ast.Constant(value=str(name)), *_]
            ):
                path = dotted(first, self.roots)
                if path is not None:
                    yield from library_name(path, name, node)
                if name in FORMATS:
                    yield at("call-form", node, f"this takes a text's `{name}`")

    def _changed(self, owner: ast.expr, node: ast.expr) -> Iterator[Found]:
        """For an assignment to an attribute or an element of `owner`."""
        root = owner
        through_class = False
        while True:
            match root:
                case ast.Attribute():
                    through_class = through_class or root.attr == "__class__"
                    root = root.value
                case ast.Subscript() | ast.Starred() | ast.NamedExpr():
                    root = root.value
                case ast.Call(func=ast.Name(id="getattr"), args=[first, *_]):
                    root = first
                case ast.Call(func=ast.Name(id="type"), args=[first]):
                    through_class = True
                    root = first
                case ast.IfExp(body=one, orelse=other):
                    yield from self._changed(one, node)
                    root = other
                case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                    for each in parts:
                        yield from self._changed(each, node)
                    return
                case _:
                    break
        path = self.roots.get(id(root))
        if path is not None and not (dotted(owner, self.roots) or path).startswith(SETTINGS):
            yield at("fixed-attribute", node, f"this changes a part of `{path.lstrip('.')}`")
        elif through_class and not (isinstance(root, ast.Name) and root.id == "self"):
            yield at("fixed-attribute", node, "this changes the class of another object")


def library_name(path: str, name: str, node: ast.AST) -> Iterator[Found]:
    """For the attribute `name` of what `path` stands for."""
    if path.startswith(".") or is_special(name):
        return
    if is_refused_attribute(name):
        return  # `refused-attribute`, whatever it belongs to.
    if name.startswith("_") and not name.startswith("_foreach_"):
        yield at("library-private", node, f"`{name}` is private to `{path}`")
    elif name not in LIBRARY_PARTS.get(path, {name} - LIBRARY_REFUSED - CARRIED):
        yield at("library-private", node, f"`{name}` of `{path}` is not available")


def _format(node: ast.Attribute) -> Iterator[Found]:
    """`format` reads attributes by what stands in its text, so that text has to stand there."""
    if node.attr not in FORMATS or not isinstance(node.ctx, ast.Load):
        return
    match node.value:
        case ast.Constant(value=str(text)):
            if re.search(r"\{[^{}:!]*[.\[]", text):
                message = f"a field of this `{node.attr}` reads an attribute or an element"
                yield at("call-form", node, message)
        case _:
            yield at("call-form", node, f"`{node.attr}` of a text that does not stand here")
