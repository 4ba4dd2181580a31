"""The rules on classes that are got from objects: `type(x)`, `x.__class__` and names for them.

The class of a class is a metaclass, which makes classes of computed names. What an object is
cannot be seen, so these rules look at what is done with its class.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
import builtins
from collections.abc import Iterator, Sequence

from harness.intake.rules.module_scope import Tree
from harness.intake.rules.rule_tables import Found, at

_BUILTIN_CLASSES = {name for name, value in vars(builtins).items() if isinstance(value, type)}


def check(tree: Tree, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    rules = _Classes(tree, nodes)
    for node in nodes:
        yield from rules.judge(node)


def owner(node: ast.AST | None) -> ast.expr | None:
    """The `x` whose class the expression is; None for any other."""
    match node:
        case (
            ast.Call(func=ast.Name(id="type"), args=[x], keywords=[])
            | ast.Attribute(attr="__class__", value=x)
            | ast.Call(func=ast.Name(id="getattr"), args=[x, ast.Constant(value="__class__"), *_])
            | ast.NamedExpr(value=ast.Attribute(attr="__class__", value=x))
            | ast.NamedExpr(value=ast.Call(func=ast.Name(id="type"), args=[x], keywords=[]))
        ):
            return x
    return None


class _Classes:
    def __init__(self, tree: Tree, nodes: Sequence[ast.AST]) -> None:
        self.tree = tree
        self.own = {each.name for each in nodes if isinstance(each, ast.ClassDef)}
        self.kept: dict[tuple[int, str], ast.expr] = {}
        """By scope and name, the object whose class the name was given."""
        for node in nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                    | ast.NamedExpr(target=ast.Name(id=name), value=value)
                ) if (x := owner(value)) is not None:
                    self.kept[id(tree.scope_of(node)), name] = x

    def judge(self, node: ast.AST) -> Iterator[Found]:
        match node:
            case ast.Call(func=func, args=[_, _, _] as args):
                x = self._owner(func)
                starred = any(isinstance(each, ast.Starred) for each in args)
                if not (x is None or _is_self(x) or self._is_class(x) or starred):
                    message = (
                        "three arguments by position would make a class, if this is the class of a "
                        "class: give them by name"
                    )
                    yield at("metaclass", node, message)
            case ast.ClassDef():
                for base in node.bases:
                    if self._owner(base) is not None:
                        message = f"this base makes class `{node.name}` a metaclass"
                        yield at("metaclass", base, f"{message}, if it is the class of a class")
        x = owner(node)
        # A base is told already.
        if x is not None and self._is_class(x) and not self._is_base(node):
            yield at("metaclass", node, "this is the class of a class, which makes classes")

    def _owner(self, node: ast.expr) -> ast.expr | None:
        """As `owner`, through a name that was given the class."""
        if not isinstance(node, ast.Name):
            return owner(node)
        scope = self.tree.scope_of(node)
        while True:
            if (id(scope), node.id) in self.kept:
                return self.kept[id(scope), node.id]
            if scope is None:
                return None
            scope = self.tree.scope_of(scope)

    def _is_class(self, x: ast.expr) -> bool:
        match x:
            case ast.Name(id=name) if name in self.own or name in _BUILTIN_CLASSES:
                return True
        return self._owner(x) is not None or self.tree.path_of(x) is not None

    def _is_base(self, node: ast.AST) -> bool:
        above = self.tree.parents.get(id(node))
        return isinstance(above, ast.ClassDef) and node in above.bases


def _is_self(x: ast.expr) -> bool:
    return isinstance(x, ast.Name) and x.id == "self"
