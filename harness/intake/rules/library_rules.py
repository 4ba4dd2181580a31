"""The rules on libraries, fixed names and a few builtins: what stands around a name counts."""

import ast
from collections.abc import Iterator, Sequence

from harness.intake.rules.library_modules import CARRIED_MODULES, MODULES
from harness.intake.rules.module_scope import Tree, module_bindings
from harness.intake.rules.rule_tables import (
    ALLOWED_IMPORTS,
    ATTRIBUTE_CALLS,
    GUARDED,
    SETTINGS,
    Found,
    at,
    is_refused_attribute,
    is_special,
    library_problem,
)

MAX_PATH = 20
"""Parts of an import's path that are looked at: no module lies deeper."""


class Libraries:
    """One region's tree, with what its names lead to; `check` yields what breaks these rules."""

    def __init__(self, tree: Tree, nodes: Sequence[ast.AST], fixed: Sequence[ast.stmt]) -> None:
        self.tree = tree
        self.nodes = nodes
        self.fixed = {each.name for each in module_bindings(fixed)}

    def check(self) -> Iterator[Found]:
        for node in self.nodes:
            match node:
                case ast.Name():
                    yield from self._module(node)
                    yield from self._builtin(node)
                case ast.Attribute():
                    yield from self._module(node)
                    yield from self._library(node)
                    yield from self._target(node)
                case ast.Subscript():
                    yield from self._target(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.Import():
                    for alias in node.names:
                        yield from self._import(alias.name, node)
                        top, *_ = alias.name.split(".")
                        yield from self._imported(alias, alias.name if alias.asname else top, node)
                case ast.ImportFrom(level=0, module=str(module)):
                    for alias in node.names:
                        yield from self._import(f"{module}.{alias.name}", node)
                        yield from self._imported(alias, f"{module}.{alias.name}", node)

    def _imported(self, alias: ast.alias, path: str, node: ast.stmt) -> Iterator[Found]:
        """For the module `path` under the name that an import gives it."""
        name, scope = alias.asname or path.rpartition(".")[2], self.tree.scope_of(node)
        if not _is_module(path) or (scope is None and name in self.fixed):
            return
        if isinstance(scope, ast.ClassDef):
            message = f"the module `{path}` is imported inside a class, as an attribute of it"
            yield at("module-value", node, message)
        elif self.tree.roots.get(id(alias)) != path:
            message = f"`{name}` stands for the module `{path}` here and for something else, too"
            yield at("module-value", node, message)

    def _import(self, path: str, node: ast.stmt) -> Iterator[Found]:
        parts = path.split(".")
        if parts[0] not in ALLOWED_IMPORTS:
            return
        for index in range(1, min(len(parts), MAX_PATH)):
            yield from library_name(".".join(parts[:index]), parts[index], node)

    def _library(self, node: ast.Attribute) -> Iterator[Found]:
        path = self.tree.path_of(node.value)
        if path is not None:
            yield from library_name(path, node.attr, node)

    def _module(self, node: ast.Name | ast.Attribute) -> Iterator[Found]:
        path = self.tree.path_of(node)
        if path is None or not isinstance(node.ctx, ast.Load):
            return
        if not _is_module(path):
            return
        match self.tree.parents.get(id(node)):
            case ast.Attribute():
                return
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if first is node:
                if name in ATTRIBUTE_CALLS or name == "hasattr":
                    return
            case ast.Assign(value=value, targets=[ast.Name() as name]) if value is node:
                # `D = torch.distributions`: the rules follow the new name, not into a class.
                followed = self.tree.roots.get(id(name)) == path
                inside = isinstance(self.tree.scope_of(node), ast.ClassDef)
                if followed and "." in path and not inside:
                    return
        yield at("module-value", node, f"the module `{path}` is used as a value")

    def _builtin(self, node: ast.Name) -> Iterator[Found]:
        name = node.id
        if name not in GUARDED or not isinstance(node.ctx, ast.Load):
            return
        parent = self.tree.parents.get(id(node))
        child: ast.AST = node
        if isinstance(parent, ast.Attribute) and name == "object":
            # A frozen dataclass sets its own attributes so.
            match self.tree.parents.get(id(parent)):
                case ast.Call(
                    func=func, args=[ast.Name(id="self"), ast.Constant(value=str(attribute)), _]
                ) if func is parent and parent.attr == "__setattr__" and not is_special(attribute):
                    return
        while isinstance(parent, ast.Tuple | ast.Subscript | ast.BinOp):
            child, parent = parent, self.tree.parents.get(id(parent))
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
                path = self.tree.path_of(first)
                if path is not None:
                    yield from library_name(path, name, node)
                    # `getattr(torch.backends, "mps", None) is not None` asks what there is.
                    asks = isinstance(self.tree.parents.get(id(node)), ast.Compare)
                    if _is_module(whole := f"{path}.{name}") and not asks:
                        yield at("module-value", node, f"the module `{whole}` is used as a value")

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
        path = self.tree.roots.get(id(root))
        if path is not None and not (self.tree.path_of(owner) or path).startswith(SETTINGS):
            yield at("fixed-attribute", node, f"this changes a part of `{path.lstrip('.')}`")
        elif through_class and not (isinstance(root, ast.Name) and root.id == "self"):
            yield at("fixed-attribute", node, "this changes the class of another object")


def library_name(path: str, name: str, node: ast.AST) -> Iterator[Found]:
    """For the attribute `name` of what `path` stands for."""
    if path.startswith(".") or is_special(name) or is_refused_attribute(name):
        return  # `refused-attribute` and others, whatever it belongs to.
    problem = library_problem(path, name)
    if problem is None and (own := CARRIED_MODULES.get(f"{path}.{name}")) is not None:
        problem = f"`{name}` of `{path}` is the module `{own}`, "
        problem += "to be named so" if _is_module(own) else "which is not available"
    if problem is not None:
        yield at("library-private", node, problem)


def _is_module(path: str) -> bool:
    return path in MODULES or path in ALLOWED_IMPORTS
