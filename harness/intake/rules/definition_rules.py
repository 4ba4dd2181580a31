"""What a region defines: the task's classes with their methods, and nothing twice or in vain.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
import builtins
import symtable
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from harness.intake.rules.module_scope import Tree, dotted, module_bindings
from harness.intake.rules.rule_tables import OTHER_LINE, Found, at, words

PLAIN_BASES = words("torch.nn.Module abc.ABC typing.Generic typing.Protocol")
"""Bases that bring none of the methods that a task can ask for, beside `object`."""
REPEATABLE = words("overload setter getter deleter register")
"""Decorators under which a name is meant to be defined again."""
LEAVES = {ast.Return: "return", ast.Raise: "raise", ast.Continue: "continue", ast.Break: "break"}

IN_CLASSES = frozenset({"__module__", "__qualname__"})
"""What a class body has beside the builtins."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Classes = Mapping[str, Sequence[ast.ClassDef]]


def missing(
    tree: ast.Module,
    nodes: Sequence[ast.AST],
    wanted: Mapping[str, Sequence[str]],
    scaffold: ast.Module,
    roots: Mapping[int, str],
) -> Iterator[Found]:
    """Classes that the task names and the region lacks, and methods that those lack.

    `wanted` holds the methods by class; `scaffold` shows their signatures; `roots` are the names
    that lead to libraries (`module_scope.fixed_roots`).
    """
    classes = _top_level_classes(tree)
    # `self.get_action = self.forward`, `Actor.get_action = act`: the trial finds what that gives.
    set_later = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    for name, methods in wanted.items():
        if name not in classes:
            yield _missing_class(name, nodes)
            continue
        defined = _methods(name, classes, roots)
        for method in methods:
            if defined is not None and method not in defined | set_later:
                message = f"class `{name}` does not define `{_signature(scaffold, name, method)}`"
                yield at("missing-method", classes[name][-1], message)


def _top_level_classes(tree: ast.Module) -> Classes:
    """By name, its definitions; `Actor = MyActor` gives a class a second name."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for each in tree.body:
        match each:
            case ast.ClassDef():
                classes.setdefault(each.name, []).append(each)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)):
                if other in classes:
                    classes.setdefault(name, classes[other])
    return classes


def _missing_class(name: str, nodes: Sequence[ast.AST]) -> Found:
    for each in nodes:
        if isinstance(each, ast.ClassDef) and each.name == name:
            return at("missing-class", each, f"class `{name}` is not at the top level")
    return Found("missing-class", 0, 0, f"the region does not define class `{name}`")


def _methods(name: str, classes: Classes, roots: Mapping[int, str]) -> set[str] | None:
    """What the class and its bases bind, None where a base or a decorator may bind more."""
    names: set[str] = set()
    left = [name]
    seen = {name}
    while left:
        for each in classes[left.pop()]:
            names |= {binding.name for binding in module_bindings(each.body)}
            for base in each.bases:
                base = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(base, ast.Name) and base.id in classes:
                    left += {base.id} - seen
                    seen.add(base.id)
                elif not _is_plain(base, roots):
                    return None
            if each.decorator_list or "__getattr__" in names:
                return None
    return names


def _is_plain(base: ast.expr, roots: Mapping[int, str]) -> bool:
    if isinstance(base, ast.Name) and base.id == "object":
        return True
    return dotted(base, roots) in PLAIN_BASES


def _signature(scaffold: ast.Module, name: str, method: str) -> str:
    """As the pristine scaffold's own class has it; the method's name where it has none."""
    for each in scaffold.body:
        if isinstance(each, ast.ClassDef) and each.name == name:
            for inner in each.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == method:
                    return f"{method}({ast.unparse(inner.args)})"
    return method


def repeated(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """Definitions of one name in one body: of the module, or of a class."""
    for body in (tree.body, *(each.body for each in nodes if isinstance(each, ast.ClassDef))):
        earlier: dict[str, Definition] = {}
        for each in body:
            if not isinstance(each, Definition) or each.name == "_":
                continue
            before = earlier.get(each.name)
            if before is not None and not _may_repeat(before) and not _may_repeat(each):
                kind = "class" if isinstance(before, ast.ClassDef) else "def"
                message = (
                    f"`{each.name}` is defined again: the `{kind}` on {OTHER_LINE} has no effect"
                )
                yield at("repeated-definition", each, message, before.lineno)
            earlier[each.name] = each


def _may_repeat(definition: Definition) -> bool:
    for each in definition.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in REPEATABLE:
            return True
    return False


def unreachable(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The first statement of each block that stands after one which leaves the block."""
    for node in nodes:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            for statement, following in pairwise(block):
                if type(statement) in LEAVES and not _is_yield(following):
                    message = f"this stands after a `{LEAVES[type(statement)]}` and never runs"
                    yield at("unreachable-code", following, message)
                    break


def undefined(
    region: str, tree: Tree, nodes: Sequence[ast.AST], statements: Sequence[ast.stmt]
) -> Iterator[Found]:
    """Names that are read and defined nowhere, each at its first place.

    `statements` are those of the module, the fixed ones among them. Raises what `compile` raises
    for the region.
    """
    known = {each.name for each in module_bindings(statements)} | set(dir(builtins)) | IN_CLASSES
    unknown = {scope: names - known for scope, names in _looked_up_in_the_module(region).items()}
    told: set[str] = set()
    names = [node for node in nodes if isinstance(node, ast.Name)]
    for node in sorted(names, key=lambda each: (each.lineno, each.col_offset)):
        scope = tree.scope_of(node)
        while scope is not None and _key(scope) not in unknown:
            scope = tree.scope_of(scope)  # a comprehension that has no scope of its own here
        if (
            isinstance(node.ctx, ast.Load)
            and node.id not in told
            and node.id in unknown[_key(scope)]
        ):
            told.add(node.id)
            yield at("undefined-name", node, f"`{node.id}` is defined nowhere")


def _looked_up_in_the_module(region: str) -> dict[tuple[int, str], set[str]]:
    """By scope, the names that it reads and does not bind, nor does a function around it."""
    found: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    stack = [symtable.symtable(region, "region", "exec")]
    while stack:
        table = stack.pop()
        module = table.get_type() == "module"
        found[0 if module else table.get_lineno(), table.get_name()] |= {
            each.get_name()
            for each in table.get_symbols()
            if each.is_referenced() and (module or each.is_global())
        }
        stack += table.get_children()
    return found


def _key(scope: ast.AST | None) -> tuple[int, str]:
    """A scope as Python's symbol table names it; two lambdas on a line are told as one."""
    match scope:
        case None:
            return 0, "top"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            pass
        case ast.GeneratorExp():
            name = "genexpr"
        case _:
            name = type(scope).__name__.lower()
    return getattr(scope, "lineno", 0), name


def _is_yield(statement: ast.stmt) -> bool:
    """A `yield` after a `return` makes an empty generator: there it is meant."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield)
