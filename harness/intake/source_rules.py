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

from harness.intake.module_scope import dotted, fixed_roots, module_bindings

CPU_SECONDS = 2
MEMORY_BYTES = 384 * 1024 * 1024
MAX_REPORTED = 60
"""Findings that are passed on, the rest is counted. A little more than anyone is shown."""

MAX_DEPTH = 200
"""Levels of the syntax tree; an ordinary region has about 20."""
MAX_LITERAL = 1000
"""Characters of a string, bytes, digits of a number, or elements of a literal list."""
MAX_CHARACTERS = 4000
"""Of all strings and bytes together, docstrings apart."""
MAX_NUMBERS = 2000
"""Numbers written out in all; a long one counts once for each 32 bits."""


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
    "attrgetter methodcaller get_type_hints ForwardRef Formatter io StringIO BytesIO "
    "get_args get_annotations evaluate_forward_ref singledispatch singledispatchmethod "
    "make_dataclass runstring _evaluate "
    # Classes made without a class statement, and names put into or taken from a module by text.
    "ABCMeta EnumMeta EnumType new_class prepare_class global_enum convert_ "
    "update_wrapper WRAPPER_ASSIGNMENTS redirect_stdout redirect_stderr RedirectStream chdir "
    # Files and programs.
    "tofile dump dumps from_file fromfile memmap open_memmap genfromtxt loadtxt savetxt savez "
    "savez_compressed fromregex recfromtxt recfromcsv DataSource PyTorchFileReader "
    "PyTorchFileWriter export_chrome_trace export_stacks export_memory_timeline collect_env "
    "formatwarning showwarning warn_explicit "
    "datapipes IterDataPipe MapDataPipe DFIterDataPipe FileOpener FileLister"
)

MODULES = _words(
    "torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.optim "
    "torch.optim.lr_scheduler torch.autograd torch.distributions torch.func torch.linalg torch.fft "
    "torch.special torch.cuda torch.amp torch.utils torch.utils.data torch.jit torch.backends "
    "torch.random numpy.random numpy.linalg numpy.fft numpy.lib collections.abc"
)
"""Names for these are modules, beside those for what a plain `import` brings."""

_LIBRARY_REFUSED = _words(
    # Of torch: files, programs, code made of text.
    "load save hub package fx distributed multiprocessing library classes ops export onnx testing "
    "serialization storage profiler profiler_legacy profiler_util quantization ao futures monitor "
    "jiterator tunable gds cpp mtia windows textwrap get_file_path overrides annotations frontend "
    # Of numpy.
    "f2py ctypeslib distutils npyio core test lookfor source safe_eval info show_config "
    # Of any: what makes a function or a class out of names.
    "types stdlib_re weakref"
)
"""Refused as attributes of a library, free as names of one's own (`self.save`, `self.load`)."""
_LIBRARY_PARTS = {
    "torch.utils": _words("data checkpoint"),
    "torch.compiler": _words("disable is_compiling allow_in_graph cudagraph_mark_step_begin"),
    "numpy.lib": _words("stride_tricks mixins"),
    "torch.jit": _words(
        "script trace ignore export unused Final annotate freeze is_scripting ScriptModule "
        "ScriptFunction script_method optimize_for_inference fork wait"
    ),
}
"""Of these modules only these attributes."""
_CARRIED = ALLOWED_IMPORTS - _words("random copy time typing abc") | {"np"}
"""Modules that a library carries along; under another path the rules would not know them."""

_METHODS = _words(
    "init new call len getitem setitem delitem contains iter next reversed enter exit aenter aexit "
    "repr str format bool int float index hash eq ne lt le gt ge add radd iadd sub rsub isub mul "
    "rmul imul matmul rmatmul truediv rtruediv floordiv mod pow neg pos abs invert and or xor "
    "post_init set_name get set missing getattr setattr delattr copy deepcopy getstate setstate "
    "reduce reduce_ex getnewargs getnewargs_ex init_subclass class_getitem torch_function"
)
DEFINED_SPECIAL = frozenset(f"__{each}__" for each in _METHODS) | {"__slots__"}
"""Names with two underscores at both ends that a class may define; `super()` may read them."""
READ_SPECIAL = _words(
    "__name__ __qualname__ __class__ __version__ __init__ __call__ __new__ __len__ __getitem__ "
    "__iter__ __next__ __enter__ __exit__ __post_init__ __deepcopy__"
)
"""Those that may be read as attributes of anything."""
ASSIGNED_SPECIAL = _words("__name__ __qualname__")
"""Those that may be set as attributes."""

_BUILTIN_CLASSES = _words("bool bytearray bytes dict float frozenset int list set str tuple")
"""A positional pattern within one of these is the object itself."""


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
    nodes = [each for each in ast.walk(tree) if not isinstance(each, ast.expr_context)]
    # Constants that stand alone are data that nothing reads, as `__doc__` is refused.
    alone = {
        id(each.value)
        for each in nodes
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }
    nodes = [each for each in nodes if id(each) not in alone]
    found = [
        *_classes(tree, classes),
        *_rebound(tree, fixed),
        *_identifiers(region),
        *_constructs(nodes),
        *_Libraries(tree, nodes, fixed).check(),
        *_total(nodes),
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


def _constructs(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in _ATTRIBUTE_CALLS and id(node) not in called:
            yield _at("computed-attribute", node, f"`{node.id}` is used without being called")
        if rule := _RULES.get(type(node)):
            yield from rule(node)


def _total(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """One finding for each total, at the literal that exceeds it."""
    constants = [node for node in nodes if isinstance(node, ast.Constant)]
    characters = numbers = 0
    for node in sorted(constants, key=lambda each: (each.lineno, each.col_offset)):
        match node.value:
            case str(value) | bytes(value):
                before, characters = characters, characters + len(value)
                if before <= MAX_CHARACTERS < characters:
                    message = f"more than {MAX_CHARACTERS:,} characters of literals in all"
                    yield _at("literal-length", node, message)
            case bool():
                pass
            case int(value):
                before, numbers = numbers, numbers + 1 + value.bit_length() // 32
                if before <= MAX_NUMBERS < numbers:
                    message = f"more than {MAX_NUMBERS:,} numbers written out in all"
                    yield _at("literal-length", node, message)
            case float() | complex():
                before, numbers = numbers, numbers + 1
                if before <= MAX_NUMBERS < numbers:
                    message = f"more than {MAX_NUMBERS:,} numbers written out in all"
                    yield _at("literal-length", node, message)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Found]:
    if isinstance(node, ast.ImportFrom) and node.level:
        yield _at("import-form", node, "relative import")
        return
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else None
    for alias in node.names:
        yield from _defined(alias.asname or "", node)
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
    elif isinstance(node.ctx, ast.Load):
        if _special(node.id) and node.id not in READ_SPECIAL:
            yield _at("special-name", node, f"`{node.id}` is not available")
    else:
        yield from _defined(node.id, node)


def _defined(name: str, node: ast.AST) -> Iterator[Found]:
    """For a name that is bound: in a class, in a function or as a parameter."""
    if _special(name) and name not in DEFINED_SPECIAL:
        yield _at("special-name", node, f"`{name}` is not a region's to define")
    elif name == "super":
        # What may be read of `super()` may not be read of anything else.
        yield _at("refused-name", node, "`super` keeps its meaning")


def _argument(node: ast.arg) -> Iterator[Found]:
    yield from _defined(node.arg, node)


def _attribute(node: ast.Attribute) -> Iterator[Found]:
    # The attribute's name ends where the expression does.
    column = (node.end_col_offset or 0) - len(node.attr.encode()) + 1
    if not isinstance(node.ctx, ast.Load) and _special(node.attr):
        if node.attr not in ASSIGNED_SPECIAL:
            yield _at("special-name", node, f"`{node.attr}` is not a region's to set")
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
    if _special(name):
        if name not in READ_SPECIAL:
            yield _at("special-name", node, f"`{name}` is not to be read")
    elif name in REFUSED_ATTRIBUTES or name.lstrip("_") in REFUSED_ATTRIBUTES:
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
                if name != "getattr" and _special(attribute) and attribute not in ASSIGNED_SPECIAL:
                    yield _at("special-name", node, f"`{attribute}` is not a region's to set")
            case _:
                yield _at("computed-attribute", node, f"`{name}` with a computed name")


def _class(node: ast.ClassDef) -> Iterator[Found]:
    for keyword in node.keywords:
        if keyword.arg in ("metaclass", None):
            yield _at("metaclass", keyword.value, "a metaclass")
    yield from _defined(node.name, node)
    for base in node.bases:
        match base:
            case ast.Name(id="type") | ast.Call(func=ast.Name(id="type")):
                yield _at("metaclass", base, "a class of classes")
            case ast.Attribute(attr="__class__"):
                yield _at("metaclass", base, "a class of classes")


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    yield from _defined(node.name, node)


def _handler(node: ast.ExceptHandler) -> Iterator[Found]:
    yield from _defined(node.name or "", node)
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    for each in caught:
        if each is None:
            yield _at("broad-except", node, "a bare `except`")
        elif isinstance(each, ast.Name) and each.id in ("BaseException", "SystemExit"):
            yield _at("broad-except", each, f"`except {each.id}`")


def _finally(node: ast.Try | ast.TryStar) -> Iterator[Found]:
    stack: list[tuple[ast.AST, bool]] = [(each, False) for each in node.finalbody]
    while stack:
        each, loop = stack.pop()
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.Return():
                yield _at("broad-except", each, "a `return` in `finally`")
            case ast.Break() | ast.Continue() if not loop:
                yield _at("broad-except", each, "leaving a loop in `finally`")
            case ast.For() | ast.AsyncFor() | ast.While():
                loop = True
        stack += [(child, loop) for child in ast.iter_child_nodes(each)]


def _pattern(node: ast.MatchClass) -> Iterator[Found]:
    for name in node.kwd_attrs:
        yield from _attribute_name(name, node)
    if node.patterns and not (isinstance(node.cls, ast.Name) and node.cls.id in _BUILTIN_CLASSES):
        message = "positional patterns read attributes by names that do not stand here"
        yield _at("computed-attribute", node, message)


def _capture(node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> Iterator[Found]:
    name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    yield from _defined(name or "", node)


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
    ast.Constant: _constant,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: _display,
}


class _Libraries:
    """The rules on fixed names, libraries and a few builtins: what stands around a name counts."""

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
                case ast.Subscript():
                    yield from self._target(node)
                case ast.Call():
                    yield from self._call(node)
                case ast.Import():
                    for alias in node.names:
                        yield from self._import(alias.name, node)
                case ast.ImportFrom(level=0, module=str(module)):
                    for alias in node.names:
                        yield from self._import(f"{module}.{alias.name}", node)

    def _import(self, path: str, node: ast.stmt) -> Iterator[Found]:
        parts = path.split(".")
        for index in range(1, len(parts)):
            yield from _library_name(".".join(parts[:index]), parts[index], node)

    def _library(self, node: ast.Attribute) -> Iterator[Found]:
        path = dotted(node.value, self.roots)
        if path is not None:
            yield from _library_name(path, node.attr, node)

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
                if name in _ATTRIBUTE_CALLS or name == "hasattr":
                    return
            case ast.Assign(value=value, targets=[ast.Name()]) if value is node and "." in path:
                # `D = torch.distributions`: the rules follow the new name, not into a class.
                if not isinstance(self.parents.get(id(self.parents[id(node)])), ast.ClassDef):
                    return
        yield _at("module-value", node, f"the module `{path}` is used as a value")

    def _builtin(self, node: ast.Name) -> Iterator[Found]:
        name = node.id
        if name not in _GUARDED or not isinstance(node.ctx, ast.Load):
            return
        parent = self.parents.get(id(node))
        child: ast.AST = node
        if isinstance(parent, ast.Attribute) and name == "object":
            # A frozen dataclass sets its own attributes so.
            match self.parents.get(id(parent)):
                case ast.Call(
                    func=func, args=[ast.Name(id="self"), ast.Constant(value=str(attribute)), _]
                ) if func is parent and parent.attr == "__setattr__" and not _special(attribute):
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
        yield _at("builtin-value", node, f"`{name}` is used as a value")

    def _form(self, node: ast.Name | ast.Attribute, name: str) -> Iterator[Found]:
        """`dataclass`, `wraps` and `super` in the forms whose effect can be read."""
        if not isinstance(node.ctx, ast.Load):
            return
        parent = self.parents.get(id(node))
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        match name:
            case "dataclass":
                above = parent if call is None else self.parents.get(id(call))
                mine = node if call is None else call
                good = (
                    isinstance(above, ast.ClassDef)
                    and bool(above.decorator_list)
                    and above.decorator_list[-1] is mine
                )
            case "wraps":
                good = (
                    call is not None
                    and len(call.args) == 1
                    and not call.keywords
                    and not isinstance(call.args[0], ast.Starred)
                )
            case "compile" if dotted(node, self.roots) == "torch.compile":
                # A backend that is a function gets a graph that makes code of text.
                good = (
                    isinstance(parent, ast.FunctionDef)
                    if call is None
                    else all(
                        each.arg is not None and isinstance(each.value, ast.Constant)
                        for each in call.keywords
                    )
                )
            case "super" if isinstance(node, ast.Name):
                good = call is not None
            case _:
                return
        if not good:
            yield _at("call-form", node, f"`{name}` in a form that is not available")

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
                    yield from _library_name(path, name, node)

    def _changed(self, owner: ast.expr, node: ast.expr) -> Iterator[Found]:
        """For an assignment to an attribute or an element of `owner`."""
        root = owner
        through_class = False
        while True:
            match root:
                case ast.Attribute():
                    through_class = through_class or root.attr == "__class__"
                    root = root.value
                case ast.Subscript() | ast.Starred():
                    root = root.value
                case ast.Call(func=ast.Name(id="getattr"), args=[first, *_]):
                    root = first
                case ast.Call(func=ast.Name(id="type"), args=[first]):
                    through_class = True
                    root = first
                case _:
                    break
        path = self.roots.get(id(root))
        if path is not None and not (dotted(owner, self.roots) or path).startswith(_SETTINGS):
            yield _at("fixed-attribute", node, f"this changes a part of `{path.lstrip('.')}`")
        elif through_class and not (isinstance(root, ast.Name) and root.id == "self"):
            yield _at("fixed-attribute", node, "this changes the class of another object")


def _library_name(path: str, name: str, node: ast.AST) -> Iterator[Found]:
    """For the attribute `name` of what `path` stands for."""
    if path.startswith(".") or _special(name):
        return
    if name.startswith("_") and not name.startswith("_foreach_"):
        yield _at("library-private", node, f"`{name}` is private to `{path}`")
    elif name not in _LIBRARY_PARTS.get(path, {name} - _LIBRARY_REFUSED - _CARRIED):
        yield _at("library-private", node, f"`{name}` of `{path}` is not available")


_GUARDED = _words("type object BaseException BaseExceptionGroup SystemExit")
_SETTINGS = "torch.backends."


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
