"""The names that source rules know: what may be imported, defined, read; and what they find."""

import ast
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ALLOWED_IMPORTS = words(
    "torch numpy math cmath copy typing typing_extensions dataclasses collections itertools "
    "functools random abc enum numbers statistics fractions heapq bisect contextlib time "
    "warnings operator"
)
"""Top-level packages; of torch and numpy everything but what REFUSED_ATTRIBUTES names."""

REFUSED_NAMES = words(
    "exec eval compile open globals locals vars breakpoint exit quit help "
    "sys os subprocess ctypes inspect gc importlib socket builtins"
)

REFUSED_ATTRIBUTES = words(
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
    # What an AttributeError was asked for: the module itself, where that has no such attribute.
    "obj "
    "FunctionType CodeType LambdaType MethodType ModuleType getframe "
    # Attribute access and evaluation by text, and files made of text.
    "attrgetter methodcaller get_type_hints ForwardRef Formatter io StringIO BytesIO "
    "get_args get_annotations evaluate_forward_ref singledispatch singledispatchmethod "
    "make_dataclass runstring _evaluate "
    # Classes made without a class statement, and names put into or taken from a module by text.
    "ABCMeta EnumMeta EnumType NamedTupleMeta GenericMeta FunctionMeta new_class prepare_class "
    "global_enum convert_ "
    "update_wrapper WRAPPER_ASSIGNMENTS redirect_stdout redirect_stderr RedirectStream chdir "
    # Files and programs.
    "tofile dump dumps from_file fromfile memmap open_memmap genfromtxt loadtxt savetxt savez "
    "savez_compressed fromregex recfromtxt recfromcsv DataSource PyTorchFileReader "
    "PyTorchFileWriter export_chrome_trace export_stacks export_memory_timeline collect_env "
    "formatwarning showwarning warn_explicit "
    "datapipes IterDataPipe MapDataPipe DFIterDataPipe FileOpener FileLister"
)

LIBRARY_REFUSED = words(
    # Of torch: files, programs, code made of text.
    "load save hub package fx distributed multiprocessing library classes ops export onnx testing "
    "serialization storage profiler profiler_legacy profiler_util quantization ao futures monitor "
    "jiterator tunable gds cpp mtia windows textwrap get_file_path overrides annotations frontend "
    "xeon numa nativert "
    # Of numpy.
    "f2py ctypeslib distutils npyio core test tests lookfor source safe_eval info show_config "
    # Of any: what makes a function or a class out of names.
    "types stdlib_re weakref fields Field"
)
"""Refused as attributes of a library, free as names of one's own (`self.save`, `self.load`)."""
INSTEAD = {
    "fields": "`asdict`, `astuple` and `replace` of `dataclasses` are",
    "Field": "`field` of `dataclasses` is, in a class below `@dataclass`",
}
"""For some of what a library has and a region has not: what there is."""
LIBRARY_PARTS = {
    "torch.utils": words("data checkpoint"),
    "torch.compiler": words("disable is_compiling allow_in_graph cudagraph_mark_step_begin"),
    "numpy.lib": words("stride_tricks mixins"),
    "torch.jit": words(
        "script trace ignore export unused Final annotate freeze is_scripting ScriptModule "
        "ScriptFunction script_method optimize_for_inference fork wait"
    ),
}
"""Of these modules only these attributes."""
CARRIED = ALLOWED_IMPORTS - words("random copy time typing abc") | {"np"}
"""Modules that a library carries along; under another path the rules would not know them."""

METHODS = words(
    "init new call len getitem setitem delitem contains iter next reversed enter exit aenter aexit "
    "repr str format bool int float index hash eq ne lt le gt ge add radd iadd sub rsub isub mul "
    "rmul imul matmul rmatmul truediv rtruediv floordiv rfloordiv mod rmod divmod pow rpow neg pos "
    "abs round invert and or xor "
    "post_init set_name get set missing getattr setattr delattr copy deepcopy getstate setstate "
    "init_subclass class_getitem torch_function"
)
DEFINED_SPECIAL = frozenset(f"__{each}__" for each in METHODS) | {"__slots__"}
"""Names with two underscores at both ends that a class may define; `super()` may read them."""
READ_SPECIAL = words(
    "__name__ __qualname__ __class__ __version__ __init__ __call__ __new__ __len__ __getitem__ "
    "__iter__ __next__ __enter__ __exit__ __post_init__ __deepcopy__"
)
"""Those that may be read as attributes of anything."""
ASSIGNED_SPECIAL = words("__name__ __qualname__")
"""Those that may be set as attributes."""

BUILTIN_CLASSES = words("bool bytearray bytes dict float frozenset int list set str tuple")
"""A positional pattern within one of these is the object itself."""

GUARDED = words("type object BaseException BaseExceptionGroup SystemExit")
BROAD_EXCEPTIONS = words("BaseException BaseExceptionGroup SystemExit KeyboardInterrupt")
SETTINGS = "torch.backends."
ATTRIBUTE_CALLS = frozenset({"getattr", "setattr", "delattr"})
FORMATS = frozenset({"format", "format_map"})
"""Methods of a text that read attributes by what stands in it."""

FORMS = words("dataclass field wraps catch_warnings compile")
"""Functions of libraries that may be used in some forms alone (`form_rules`)."""

PLAIN_LETTERS = frozenset("αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΦΨΩ") | (
    {chr(each) for each in range(0xC0, 0x180)} - set("×÷ıĸŉſ")
)
"""Beside ASCII: Greek without Α, Β, ο and others that look Latin; accented Latin letters."""


OTHER_LINE = "{other}"
"""Stands in a message for another line of the region, which is told where it was handed in."""


class Found(NamedTuple):
    """One broken rule; lines 1-based in the region, column 1-based in characters, 0 for none."""

    rule: str
    line: int
    column: int
    message: str
    other: int = 0
    """The line that OTHER_LINE stands for."""


def is_special(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def is_refused_attribute(name: str) -> bool:
    """Libraries hide what they import behind underscores: `random._os`."""
    return name in REFUSED_ATTRIBUTES or name.lstrip("_") in REFUSED_ATTRIBUTES


def at(rule: str, node: ast.AST, message: str, other: int = 0) -> Found:
    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
    return Found(rule, line, column, message, other)


def library_problem(path: str, name: str) -> str | None:
    """Why `name` is not to be had of the module `path` of a library; None if nothing is wrong."""
    if is_refused_attribute(name):
        return f"`{name}` is not available as an attribute"
    if name.startswith("_") and not name.startswith("_foreach_"):
        return f"`{name}` is private to `{path}`"
    if name not in LIBRARY_PARTS.get(path, {name} - LIBRARY_REFUSED - CARRIED):
        instead = f"; {INSTEAD[name]}" if name in INSTEAD else ""
        return f"`{name}` of `{path}` is not available{instead}"
    return None
