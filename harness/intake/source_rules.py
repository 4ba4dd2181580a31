"""The rules that a region's code obeys, and the program that holds it against them.

`main` is a program of its own, in a child with limits (`limited_child.py`), on the standard library
alone: a hostile text may cost it its memory or its time, and not the host's. The rules keep
honest submissions comparable and readable; what holds a dishonest one is the sandbox.
"""

import ast
import builtins
import io
import json
import resource
import sys
import tokenize
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from harness.intake.module_scope import module_bindings

CPU_SECONDS = 2
MEMORY_BYTES = 384 * 1024 * 1024
MAX_REPORTED = 60
"""Findings that are passed on, the rest is counted. A little more than anyone is shown."""

MAX_DEPTH = 200
"""Levels of the syntax tree; an ordinary region has about 20."""
MAX_LITERAL = 1000
"""Characters of a string, bytes, digits of a number, or elements of a literal list."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_IMPORTS = _words(
    "torch numpy math cmath copy typing typing_extensions dataclasses collections itertools "
    "functools random abc enum numbers statistics fractions heapq bisect contextlib time "
    "warnings operator"
)
"""Top-level packages; of torch and numpy everything but what REFUSED_ATTRIBUTES names."""

REFUSED_NAMES = _words(
    "exec eval compile open globals locals vars breakpoint exit quit help "
    "sys os subprocess ctypes inspect gc importlib socket builtins"
)

REFUSED_ATTRIBUTES = _words(
    # Modules that a library carries along (torch.os, enum.bltns, random._os), by the name without
    # leading underscores.
    "os sys posix bltns builtins subprocess ctypes ctypeslib importlib inspect gc socket pickle "
    "copyreg marshal shutil pathlib tempfile multiprocessing threading thread asyncio "
    "runpy pkgutil zipimport linecache traceback tokenize fcntl mmap pty urllib requests platform "
    "cpp_extension load_library hub f2py distutils glob mp python_multiprocessing concurrent "
    "tarfile zipfile gzip osp unittest "
    # Ways from an object to its class tree, code or frames.
    "mro tb_frame tb_next gi_frame gi_code cr_frame cr_code ag_frame ag_code "
    "f_back f_builtins f_code f_globals f_locals co_code co_consts "
    "FunctionType CodeType LambdaType MethodType ModuleType getframe "
    # Attribute access and evaluation by text, and files made of text.
    "attrgetter methodcaller get_type_hints ForwardRef Formatter io StringIO BytesIO"
)

_METHODS = _words(
    "init new call len getitem setitem delitem contains iter next reversed enter exit aenter aexit "
    "repr str format bool int float index hash eq ne lt le gt ge add radd iadd sub rsub isub mul "
    "rmul imul matmul rmatmul truediv rtruediv floordiv mod pow neg pos abs invert and or xor "
    "post_init set_name get set missing getattr setattr copy deepcopy getstate setstate "
    "init_subclass class_getitem torch_function"
)
ALLOWED_SPECIAL = frozenset(f"__{each}__" for each in _METHODS) | _words(
    "__name__ __qualname__ __class__ __slots__ __version__ __annotations__"
)
"""Names with two underscores at both ends that a region may define, read and call."""


class Found(NamedTuple):
    """One broken rule; line 1-based in the region, column 1-based in characters, 0 for none."""

    rule: str
    line: int
    column: int
    message: str


def check(region: str, scaffold: str, first: int, last: int, classes: Sequence[str]) -> list[Found]:
    """Every rule that `region` breaks, by line.

    `scaffold` is the pristine file and `first` to `last` its region's lines (1-based): the names
    to protect are those of the other lines. A syntax error or a tree that is too deep hides the
    other findings.
    """
    try:
        tree = ast.parse(region)
    except SyntaxError as error:
        return [Found("syntax", error.lineno or 1, error.offset or 0, f"{error.msg}")]
    except (MemoryError, RecursionError):
        return [Found("too-deep", 0, 0, "this nests too deeply for Python's parser")]
    if deep := _too_deep(tree):
        return [Found("too-deep", deep, 0, f"this nests more than {MAX_DEPTH} levels deep")]
    lines = region.split("\n")
    fixed = [
        each for each in ast.parse(scaffold).body if not first <= getattr(each, "lineno", 0) <= last
    ]
    found = [
        *_classes(tree, classes),
        *_rebound(tree, fixed),
        *_identifiers(region),
        *_constructs(tree),
    ]
    try:
        compile(tree, "region", "exec", dont_inherit=True)
    except SyntaxError as error:
        # What the parser lets through: a return outside a function, a parameter named twice.
        found.append(Found("syntax", error.lineno or 1, error.offset or 0, f"{error.msg}"))
    except (RecursionError, MemoryError):
        found.append(Found("too-heavy", 0, 0, "Python cannot compile this within the limits"))
    return sorted({_in_characters(each, lines) for each in found}, key=lambda each: each[1:])


def _classes(tree: ast.Module, classes: Sequence[str]) -> Iterator[Found]:
    there = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    for name in classes:
        if name in there:
            continue
        nested = [
            each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == name
        ]
        if nested:
            yield _at("missing-class", nested[0], f"class `{name}` is not at the top level")
        else:
            yield Found("missing-class", 0, 0, f"the region does not define class `{name}`")


def _rebound(tree: ast.Module, fixed: Sequence[ast.stmt]) -> Iterator[Found]:
    own: defaultdict[str, set[str | None]] = defaultdict(set)
    for binding in module_bindings(fixed):
        own[binding.name].add(binding.imported)
    used = {
        node.id for each in fixed for node in ast.walk(each) if isinstance(node, ast.Name)
    } & set(dir(builtins))
    for binding in module_bindings(tree.body):
        name = binding.name
        if name in own:
            if binding.imported is None or own[name] != {binding.imported}:
                yield _at("fixed-name", binding.node, f"`{name}` belongs to the fixed part")
        elif _special(name):
            yield _at("special-name", binding.node, f"`{name}` is not the module's to set")
        elif name in used:
            yield _at("fixed-builtin", binding.node, f"the fixed part uses the builtin `{name}`")


def _identifiers(region: str) -> Iterator[Found]:
    # The tree holds names in NFKC already: the other rules cannot be evaded so, only a reader.
    if region.isascii():
        return
    for token in tokenize.generate_tokens(io.StringIO(region, newline="\n").readline):
        name = token.string
        if token.type != tokenize.NAME or name.isascii():
            continue
        if unicodedata.normalize("NFKC", name) != name:
            message = f"`{name}` is read as `{unicodedata.normalize('NFKC', name)}`"
        elif odd := next((each for each in name if not _plain_letter(each)), None):
            message = f"`{name}` holds {unicodedata.name(odd, 'a letter without a name')}"
        else:
            continue
        column = len(token.line[: token.start[1]].encode())
        yield Found("identifier", token.start[0], column + 1, message)


def _plain_letter(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "").startswith(("LATIN", "GREEK"))


def _constructs(tree: ast.Module) -> Iterator[Found]:
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # Data that nothing can read: `__doc__` is not available.
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.Name) and node.id in _ATTRIBUTE_CALLS and id(node) not in called:
            yield _at("computed-attribute", node, f"`{node.id}` is used without being called")
        if rule := _RULES.get(type(node)):
            yield from rule(node)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    if isinstance(node, ast.ImportFrom) and node.level:
        yield _at("import-form", node, "relative import")
        return
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else None
    for alias in node.names:
        if alias.name == "*":
            yield _at("import-form", node, f"`from {module} import *` brings unknown names")
        path = alias.name if module is None else module
        if path.split(".")[0] not in ALLOWED_IMPORTS:
            allowed = ", ".join(sorted(ALLOWED_IMPORTS))
            yield _at("import", node, f"`{path}` is not among the allowed imports: {allowed}")
            continue
        for part in (*path.split(".")[1:], *([alias.name] if module is not None else [])):
            yield from _attribute_name(part, node)


def _name(node: ast.Name) -> Iterator[Found]:
    if node.id in REFUSED_NAMES:
        yield _at("refused-name", node, f"`{node.id}` is not available")
    elif _special(node.id) and node.id not in ALLOWED_SPECIAL:
        yield _at("special-name", node, f"`{node.id}` is not available")


def _attribute(node: ast.Attribute) -> Iterator[Found]:
    # The attribute's name ends where the expression does.
    column = (node.end_col_offset or 0) - len(node.attr.encode()) + 1
    for each in _attribute_name(node.attr, node):
        yield each._replace(line=node.end_lineno or each.line, column=max(1, column))


def _attribute_name(name: str, node: ast.AST) -> Iterator[Found]:
    if _special(name):
        if name not in ALLOWED_SPECIAL:
            yield _at("special-name", node, f"`{name}` is not available")
    elif name.lstrip("_") in REFUSED_ATTRIBUTES:
        yield _at("refused-attribute", node, f"`{name}` is not available as an attribute")


def _call(node: ast.Call) -> Iterator[Found]:
    if not isinstance(node.func, ast.Name):
        return
    name = node.func.id
    if name == "input":
        yield _at("refused-name", node, "`input()` would wait for a person")
    elif name == "type" and (len(node.args) != 1 or isinstance(node.args[0], ast.Starred)):
        yield _at("metaclass", node, "`type` with several arguments makes a class")
    elif name in _ATTRIBUTE_CALLS:
        match node.args:
            case [_, ast.Constant(value=str(attribute)), *_]:
                yield from _attribute_name(attribute, node)
            case _:
                yield _at("computed-attribute", node, f"`{name}` with a computed name")


def _class(node: ast.ClassDef) -> Iterator[Found]:
    for keyword in node.keywords:
        if keyword.arg in ("metaclass", None):
            yield _at("metaclass", keyword.value, "a metaclass")
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id == "type":
            yield _at("metaclass", base, "a class of classes")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    if _special(node.name) and node.name not in ALLOWED_SPECIAL:
        yield _at("special-name", node, f"`{node.name}` is not available")


def _handler(node: ast.ExceptHandler) -> Iterator[Found]:
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    for each in caught:
        if each is None:
            yield _at("broad-except", node, "a bare `except`")
        elif isinstance(each, ast.Name) and each.id in ("BaseException", "SystemExit"):
            yield _at("broad-except", each, f"`except {each.id}`")


def _pattern(node: ast.MatchClass) -> Iterator[Found]:
    for name in node.kwd_attrs:
        yield from _attribute_name(name, node)


def _global(node: ast.Global) -> Iterator[Found]:
    yield _at("global-statement", node, f"`global {', '.join(node.names)}`")


def _constant(node: ast.Constant) -> Iterator[Found]:
    match node.value:
        case str(value) | bytes(value) if len(value) > MAX_LITERAL:
            message = f"a literal of {len(value):,} characters; at most {MAX_LITERAL:,} are allowed"
            yield _at("literal-length", node, message)
        # Ten bits hold three digits; the digits themselves would be slow to write out.
        case int(value) if value.bit_length() > MAX_LITERAL * 10 // 3:
            yield _at("literal-length", node, f"a number of more than {MAX_LITERAL:,} digits")


def _display(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterator[Found]:
    elements = node.values if isinstance(node, ast.Dict) else node.elts
    if len(elements) > MAX_LITERAL:
        message = f"{len(elements):,} elements written out; at most {MAX_LITERAL:,} are allowed"
        yield _at("literal-length", node, message)


_ATTRIBUTE_CALLS = frozenset({"getattr", "setattr", "delattr"})

_RULES: dict[type[ast.AST], Callable[[Any], Iterator[Found]]] = {
    ast.Import: _imports,
    ast.ImportFrom: _imports,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.ClassDef: _class,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ExceptHandler: _handler,
    ast.MatchClass: _pattern,
    ast.Global: _global,
    ast.Constant: _constant,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: _display,
}


def _special(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def _at(rule: str, node: ast.AST, message: str) -> Found:
    return Found(rule, getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1, message)


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
    shown = [each._replace(message=each.message[:500]) for each in found[:MAX_REPORTED]]
    json.dump({"found": shown, "more": len(found) - len(shown)}, sys.stdout)
