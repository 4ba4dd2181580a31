"""Which names a module's code binds, in every way of binding, and which lead to fixed code.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Binding(NamedTuple):
    """A name that a statement binds in the module, and the module path if it is an import."""

    name: str
    node: ast.AST
    imported: str | None
    value: ast.expr | None = None
    """What is assigned, where that is one expression for one name."""


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
                yield Binding(name, node.target, None, node.value)
                children = [node.value]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield Binding(name, node.target, None, value)
                children = [node.annotation, value]
            case ast.Assign():
                names = [each for each in node.targets if isinstance(each, ast.Name)]
                for each in names:
                    yield Binding(each.id, each, None, node.value)
                children = [*(each for each in node.targets if each not in names), node.value]
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
    annotations = [each.annotation for each in _parameters(arguments)]
    return [*arguments.defaults, *arguments.kw_defaults, *annotations]


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*named, *extra]


def dotted(node: ast.AST, roots: Mapping[int, str]) -> str | None:
    """The path of `a.b.c` if `a` is one of the `roots` (by id), None for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    root = roots.get(id(node))
    return None if root is None else ".".join([root, *reversed(names)])


class Tree:
    """A region's tree: what stands around a node, where it is evaluated and what it leads to."""

    def __init__(
        self, tree: ast.Module, nodes: Sequence[ast.AST], fixed: Sequence[ast.stmt]
    ) -> None:
        self.roots = fixed_roots(tree, fixed)
        self.parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
        self._scopes: dict[int, ast.AST] = {}
        """By id, the function, class, lambda or comprehension whose names a node sees first."""
        self._find_scopes(tree)
        self.read = {
            (id(self.scope_of(each)), each.id)
            for each in nodes
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
        }
        """The names that are read, each with the id of its scope."""

    def path_of(self, node: ast.AST) -> str | None:
        """As `dotted`."""
        return dotted(node, self.roots)

    def is_library(self, node: ast.AST) -> bool:
        """Whether it is a library's, or a part of one, under whatever name."""
        path = self.path_of(node)
        return path is not None and not path.startswith(".")

    def name_of(self, node: ast.AST) -> str | None:
        """The name under which a library has it, or that stands here; None for no name."""
        if (path := self.path_of(node)) is not None:
            return path.rpartition(".")[2]
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name
        return None

    def scope_of(self, node: ast.AST) -> ast.AST | None:
        """Where its names are looked up first; None for the module."""
        return self._scopes.get(id(node))

    def _find_scopes(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
        while stack:
            node, scope = stack.pop()
            if scope is not None:
                self._scopes[id(node)] = scope
            inside: Sequence[ast.AST] = []
            match node:
                case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                    inside = body
                case ast.ClassDef(body=body):
                    inside = body
                case ast.Lambda(body=value):
                    inside = [value]
                case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                    first = node.generators[0]
                    stack.append((first.iter, scope))
                    inside = [each for each in ast.iter_child_nodes(node) if each is not first]
                    inside += [first.target, *first.ifs]
                    stack += [(each, node) for each in inside]
                    continue
            mine = {id(each) for each in inside}
            stack += [
                (each, node if id(each) in mine else scope) for each in ast.iter_child_nodes(node)
            ]


def fixed_roots(tree: ast.Module, fixed: Sequence[ast.stmt]) -> dict[int, str]:
    """By id, each Name and each alias of an import that stands for something of the fixed part or
    of a library.

    Its value is the path of the import, or of what another name is bound to (`D = torch.nn`), or
    the name itself after a dot. A function's own names hide those of the module; a class's do not.
    """
    return _Roots(tree, fixed).found


Scope = dict[str, str | None]


class _Roots:
    def __init__(self, tree: ast.Module, fixed: Sequence[ast.stmt]) -> None:
        self.found: dict[int, str] = {}
        scope = self._scope(tree.body, ())
        for binding in module_bindings(fixed):
            scope[binding.name] = binding.imported or f".{binding.name}"
        self._resolve_aliases(tree.body, (scope,))
        self.stack: list[tuple[ast.AST, tuple[Scope, ...]]] = [(tree, (scope,))]
        while self.stack:
            self._visit(*self.stack.pop())

    def _visit(self, node: ast.AST, scopes: tuple[Scope, ...]) -> None:
        outside: Sequence[ast.AST | None] = []
        inside: Sequence[ast.AST | None] = []
        match node:
            case ast.Name():
                path = _look_up(node.id, scopes)
                if path is not None:
                    self.found[id(node)] = path
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    path = _look_up(alias.asname or alias.name.split(".")[0], scopes)
                    if path is not None:
                        self.found[id(alias)] = path
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                outside = [*node.decorator_list, *_evaluated(node.args), node.returns]
                inside = node.body
                scope = self._scope(node.body, _parameters(node.args))
                self._resolve_aliases(node.body, (*scopes, scope))
            case ast.Lambda():
                outside, inside = _evaluated(node.args), [node.body]
                scope = dict.fromkeys(each.arg for each in _parameters(node.args))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                first, *_ = node.generators
                outside = [first.iter]
                inside = [each for each in ast.iter_child_nodes(node) if each is not first]
                inside += [first.target, *first.ifs]
                targets = [each.target for each in node.generators]
                scope = dict.fromkeys(
                    each.id
                    for target in targets
                    for each in ast.walk(target)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                )
            case _:
                outside = list(ast.iter_child_nodes(node))
        self.stack += [(each, scopes) for each in outside if each is not None]
        if inside:
            self.stack += [(each, (*scopes, scope)) for each in inside if each is not None]

    def _scope(self, body: Sequence[ast.stmt], parameters: Sequence[ast.arg]) -> Scope:
        scope: Scope = dict.fromkeys(each.arg for each in parameters)
        for binding in module_bindings(body):
            scope[binding.name] = binding.imported or scope.get(binding.name)
        for name in _outer_names(body):
            scope.pop(name, None)
        return scope

    def _resolve_aliases(self, body: Sequence[ast.stmt], scopes: tuple[Scope, ...]) -> None:
        for binding in module_bindings(body):
            path = _path(binding.value, scopes) if binding.value is not None else None
            if path is not None and scopes[-1].get(binding.name, "") is None:
                scopes[-1][binding.name] = path


def _look_up(name: str, scopes: tuple[Scope, ...]) -> str | None:
    return next((each[name] for each in reversed(scopes) if name in each), None)


def _path(node: ast.expr, scopes: tuple[Scope, ...]) -> str | None:
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    path = _look_up(root.id, scopes) if isinstance(root, ast.Name) else None
    return None if path is None else dotted(node, {id(root): path})


def _outer_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that a function declares `global` or `nonlocal`: they are not its own."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack += ast.iter_child_nodes(node)
