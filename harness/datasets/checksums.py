"""What a file's bytes were at first sight, beside it, as `sha256sum -c` reads it."""

import hashlib
import re
from pathlib import Path

from harness.datasets.places import DatasetError
from harness.files import write_durably

_OTHER_BITS = (
    "\nIf the same comes of it, this machine rounds otherwise (another CPU, or another "
    "build of numpy or MuJoCo): copy the file from a machine where it came out as the task says"
)

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)\n?")


def sidecar(path: Path) -> Path:
    """Where a file's checksum lies."""
    return path.with_name(f"{path.name}.sha256")


def sha256_of(path: Path) -> str:
    """In hex, of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified(path: Path, wanted: str | None, command: str, made_here: bool = False) -> str:
    """The file's SHA-256, which is that of its sidecar, if there is one, and `wanted`, if given.

    `made_here`: by this or another machine's generator. Raises DatasetError otherwise.
    """
    found = sha256_of(path)
    kept = _kept(path)
    if kept not in (None, found):
        raise DatasetError(
            f"{path}: damaged or exchanged: its SHA-256 is {found}, and {sidecar(path).name} says "
            f"{kept}. Remove the file and its .sha256, then run: {command}"
        )
    if wanted not in (None, found):
        raise DatasetError(
            f"{path}: not the file that the task names: its SHA-256 is {found}, the task says "
            f"{wanted}. Remove the file and its .sha256, then run: {command}"
            + (_OTHER_BITS if made_here else "")
        )
    return found


def keep(path: Path, digest: str) -> None:
    """Write the sidecar, unless it is there."""
    if not sidecar(path).exists():
        write_durably(sidecar(path), f"{digest}  {path.name}\n".encode())


def _kept(path: Path) -> str | None:
    beside = sidecar(path)
    if not beside.exists():
        return None
    match = _LINE.fullmatch(beside.read_text(encoding="utf-8", errors="replace"))
    if match is None:
        raise DatasetError(f"{beside}: not a line of sha256sum; remove it if {path.name} is right")
    if match[2] != path.name:
        raise DatasetError(
            f"{beside}: of another file, {match[2]}; remove it if {path.name} is right"
        )
    return match[1]
