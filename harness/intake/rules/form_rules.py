"""The rules on functions of libraries whose effect can be read in some forms alone.

It runs in the limited child, beside `source_rules`, on the standard library alone.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from harness.intake.rules.module_scope import Tree
from harness.intake.rules.rule_tables import FORMATS, FORMS, Found, at

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check(tree: Tree, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    hooks = [
        each.name
        for each in nodes
        if isinstance(each, Function) and each.name in ("__init_subclass__", "__set_name__")
    ]
    for node in nodes:
        match node:
            case ast.Name():
                yield from _form(tree, node, tree.name_of(node) or node.id, hooks)
            case ast.Attribute():
                yield from _form(tree, node, node.attr, hooks)
                yield from _format(node)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[first, ast.Constant(value=str(name)), *_]
            ):
                if name in FORMATS:
                    yield at("call-form", node, f"this takes a text's `{name}`")
                elif name in FORMS and tree.is_library(first):
                    yield at("call-form", node, f"`{name}` is taken by `getattr`")
            case ast.MatchClass(kwd_attrs=names) if not FORMATS.isdisjoint(names):
                yield at("call-form", node, "this takes a text's `format`")


def _form(
    tree: Tree, node: ast.Name | ast.Attribute, name: str, hooks: Sequence[str]
) -> Iterator[Found]:
    if not isinstance(node.ctx, ast.Load):
        return
    parent = tree.parents.get(id(node))
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    match name:
        case "dataclass":
            message = "`dataclass` is not the decorator directly above a class"
            above = parent if call is None else tree.parents.get(id(call))
            mine = node if call is None else call
            good = (
                isinstance(above, ast.ClassDef)
                and bool(above.decorator_list)
                and above.decorator_list[-1] is mine
            )
        case "wraps":
            # What it is given gets all that `__dict__` of the function holds, by computed names.
            message = "`wraps` is not a decorator above a `def`, with one function and nothing else"
            good = call is not None and _is_plain_wraps(tree, call)
        case "field" if tree.is_library(node):
            # Of its name `dataclass` makes text that it runs, in a class that derives.
            message = "`field` is not the value of a typed name in a class below `@dataclass`"
            good = call is not None and _is_plain_field(tree, call)
            if good and hooks:
                good = False
                message = f"`field` stands beside a `{hooks[0]}`, which could change it"
        case "catch_warnings" if tree.is_library(node):
            # It keeps the module that it is given, or its own.
            message = "`catch_warnings` is not called in a `with`, or with a module"
            good = (
                call is not None
                and not call.args
                and all(each.arg not in (None, "module") for each in call.keywords)
                and isinstance(tree.parents.get(id(call)), ast.withitem)
            )
        case "compile" if tree.path_of(node) == "torch.compile":
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


def _is_plain_wraps(tree: Tree, call: ast.Call) -> bool:
    above = tree.parents.get(id(call))
    if not isinstance(above, Function) or call not in above.decorator_list:
        return False
    # Torch's decorators give a function, too: `@wraps(f)` above `@torch.no_grad()`.
    below = above.decorator_list[above.decorator_list.index(call) + 1 :]
    functions = [each.func if isinstance(each, ast.Call) else each for each in below]
    return (
        len(call.args) == 1
        and not call.keywords
        and not isinstance(call.args[0], ast.Starred)
        and all((tree.path_of(each) or "").startswith("torch.") for each in functions)
    )


def _is_plain_field(tree: Tree, call: ast.Call) -> bool:
    statement, scope = tree.parents.get(id(call)), tree.scope_of(call)
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
            pass
        case _:
            return False
    if not isinstance(scope, ast.ClassDef) or not scope.decorator_list:
        return False
    last = scope.decorator_list[-1]
    decorator = last.func if isinstance(last, ast.Call) else last
    return (
        statement.value is call
        and tree.name_of(decorator) == "dataclass"
        # A name that dataclass skips keeps its field.
        and tree.name_of(annotation) != "KW_ONLY"
        and (id(scope), name) not in tree.read
    )


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
