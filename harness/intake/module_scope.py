"""Which names a module's code binds: every way of binding, in the module's own scope and no other.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Binding(NamedTuple):
    """A name that a statement binds in the module, and the module path if it is an import."""

    name: str
    node: ast.AST
    imported: str | None


def module_bindings(statements: Sequence[ast.stmt]) -> Iterator[Binding]:
    """Every binding that the statements make in the module's own scope, `del` included."""
    # Beside each node: whether it stands in a comprehension, where only := reaches the module.
    stack: list[tuple[ast.AST, bool]] = [(each, False) for each in reversed(statements)]
    while stack:
        node, inner = stack.pop()
        children: Sequence[ast.AST | None] = list(ast.iter_child_nodes(node))
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Binding(node.name, node, None)
                children = [*node.decorator_list, *_evaluated(node.args), node.returns]
            case ast.Lambda():
                children = _evaluated(node.args)
            case ast.ClassDef():
                yield Binding(node.name, node, None)
                children = [*node.decorator_list, *node.bases, *node.keywords]
            case ast.Import():
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    yield Binding(alias.asname or top, node, alias.name if alias.asname else top)
            case ast.ImportFrom():
                for alias in node.names:
                    path = f"{'.' * node.level}{node.module or ''}.{alias.name}"
                    yield Binding(alias.asname or alias.name, node, path)
            case ast.NamedExpr(target=ast.Name(id=name)):
                yield Binding(name, node.target, None)
                children = [node.value]
            case ast.Name(ctx=ast.Store() | ast.Del()) if not inner:
                yield Binding(node.id, node, None)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield Binding(name, node, None)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield Binding(name, node, None)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = True
        stack += [(each, inner) for each in children if each is not None]


def _evaluated(arguments: ast.arguments) -> list[ast.AST | None]:
    """What a function's signature evaluates where the function stands."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    annotations = [each.annotation for each in (*named, *extra)]
    return [*arguments.defaults, *arguments.kw_defaults, *annotations]
