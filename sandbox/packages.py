"""What a guest may import, as mounts: the standard library, torch, numpy and what those two need.

Everything lies under fixed names in the guest (/python, /packages, /code), so that neither the
place nor the name of the host's interpreter or virtual environment matters or shows in sys.path.
"""

import functools
import importlib.metadata
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INTERPRETER = "/python/bin/python3"
PYTHONPATH = "/code:/packages"

WANTED = ("torch", "numpy")
"""The distributions that a guest may import, beside what they require."""

_OURS = ("__init__.py", "wire.py", "pixels.py", "rows.py", "guest")
"""Of this package, what a guest gets."""

_ELSEWHERE = ("site-packages", "dist-packages")
"""Directories of packages that come with an interpreter and are no part of its library."""

# A page of a file that no guest needs is cold until a guest reads it, and then says so to those
# after it. So what is big and never imported is covered. Not all of it: each cover costs a start
# about a millisecond.
_UNUSED_LIBRARY = (
    "config-*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "turtledemo",
)
_UNUSED_PACKAGES = {
    "torch": ("bin", "include", "share", "test"),
    "numpy": ("tests", "*/tests", "_core/include", "_core/lib", "random/lib"),
}

_KEPT = "torch/bin/torch_shm_manager"
"""Of what is covered, a file without which torch is not imported."""


class Mount(NamedTuple):
    """A host file or directory that the guest sees, read-only."""

    source: Path
    target: str


class View(NamedTuple):
    """What to mount, in this order, and which guest directories to cover with empty ones then."""

    mounts: tuple[Mount, ...]
    masks: tuple[str, ...]
    kept: tuple[Mount, ...]
    """What to mount into the empty directories."""
    library_path: str | None
    """Value of LD_LIBRARY_PATH that the interpreter needs to start."""


@functools.cache
def view() -> View:
    """What this process's interpreter and packages amount to. Takes some 50 ms, once."""
    python, masks = _interpreter()
    packages = _packages()
    kept = (
        Mount(mount.source.parent / _KEPT, f"/packages/{_KEPT}")
        for mount in packages
        if mount.target == "/packages/torch"
    )
    own_library = sysconfig.get_config_var("Py_ENABLE_SHARED") and not _in_usr()
    return View(
        mounts=(*python, *packages),
        masks=_outermost([*masks, *_unused(packages)]),
        kept=tuple(mount for mount in kept if mount.source.exists()),
        library_path="/python/lib" if own_library else None,
    )


def code() -> list[Mount]:
    """This package's own part, not cached: the files may not be there yet, or change."""
    here = Path(__file__).parent
    return [Mount(here / name, f"/code/sandbox/{name}") for name in _OURS if (here / name).exists()]


def system_libraries() -> list[Path]:
    """Where the shared libraries of the system are, as narrow as it is known."""
    multiarch = sysconfig.get_config_var("MULTIARCH")
    names = ["/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32"]
    if multiarch and Path("/usr/lib", multiarch).is_dir():  # Debian and what descends from it
        names[:1] = [f"/usr/lib/{multiarch}", "/usr/lib/locale"]
    return [Path(name) for name in names if Path(name).is_dir()]


def _outermost(directories: list[str]) -> tuple[str, ...]:
    """Without those that lie below others."""
    found: list[str] = []
    for directory in sorted(set(directories), key=lambda name: f"{name}/"):
        if not found or not directory.startswith(f"{found[-1]}/"):
            found.append(directory)
    return tuple(found)


def _interpreter() -> tuple[list[Mount], list[str]]:
    base = Path(sys.base_prefix)
    executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    standard_library = Path(sysconfig.get_path("stdlib"))
    mounts = [Mount(executable, INTERPRETER)]
    if _in_usr():
        # The libraries it links are in /usr/lib, which every guest sees.
        mounts.append(
            Mount(standard_library, f"/python/{standard_library.relative_to(base).as_posix()}")
        )
    else:
        # Its libraries stand beside the standard library, and extension modules may need them.
        mounts.append(Mount(base / "lib", "/python/lib"))
    masks = [
        f"{mount.target}/{found.relative_to(mount.source).as_posix()}"
        for mount in mounts
        if mount.source.is_dir()
        for name in (*_ELSEWHERE, *_UNUSED_LIBRARY)
        for pattern in (name, f"*/{name}")
        for found in mount.source.glob(pattern)
        if found.is_dir() and not found.is_symlink()
    ]
    # The system's own Pythons: reachable where all of /usr/lib is, whatever interpreter runs here.
    if Path("/usr/lib") in system_libraries():
        masks += [str(found) for found in Path("/usr/lib").glob("python*") if found.is_dir()]
    return mounts, masks


def _unused(packages: list[Mount]) -> Iterator[str]:
    for mount in packages:
        for pattern in _UNUSED_PACKAGES.get(mount.source.name, ()):
            for found in sorted(mount.source.glob(pattern)):
                if found.is_dir() and not found.is_symlink():
                    yield f"{mount.target}/{found.relative_to(mount.source).as_posix()}"


def _in_usr() -> bool:
    return sys.base_prefix == "/usr"


def _packages() -> list[Mount]:
    return [
        Mount(source, f"/packages/{name}")
        for name, source in sorted(
            (name, source)
            for distribution in _closure()
            for name, source in _top_level(distribution)
        )
    ]


def _closure() -> Iterator[importlib.metadata.Distribution]:
    """WANTED and, transitively, what they require and is installed. Extras are left out."""
    seen: set[str] = set()
    waiting = list(WANTED)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not for this platform, or not installed at all: the import says so
        yield distribution
        for requirement in distribution.requires or ():
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match and "extra ==" not in requirement:
                waiting.append(match.group())


def _top_level(distribution: importlib.metadata.Distribution) -> set[tuple[str, Path]]:
    """Names to mount below /packages: a package, a module and its bytecode, the metadata."""
    record = distribution.read_text("RECORD") or ""  # read by hand: torch's has 10 000 lines
    names = {_unit(line.partition(",")[0].split("/")) for line in record.splitlines()}
    if not names:
        # A package of the operating system: no list of files, but one of modules.
        for module in (distribution.read_text("top_level.txt") or distribution.name).split():
            names |= {module, f"{module}.py"}
    found = ((name, Path(str(distribution.locate_file(name)))) for name in names if name)
    return {(name, path) for name, path in found if path.exists()}


def _unit(parts: list[str]) -> str | None:
    """The directory or file to mount for a file of a distribution; None for scripts and hooks."""
    if parts[0] == ".." or parts[0].endswith(".pth"):
        return None
    return "/".join(parts[:2]) if parts[0] == "__pycache__" else parts[0]
