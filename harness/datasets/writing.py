"""One writer of a file at a time, and files that are there whole or not at all."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.datasets.places import Say
from harness.files import sync_directory


@contextmanager
def alone(path: Path, say: Say) -> Iterator[None]:
    """The right to make a file. Waits, and says so, while another process has it.

    What it waited for may be there afterwards: look again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The lock's own file stays: whoever removed it could remove one that is waited for.
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{path.name}: another process is at it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in path.parent.glob(f".{path.name}.*.tmp"):
            left.unlink(missing_ok=True)  # by one that was killed
        yield


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` in one step once the block is through.

    After that the file survives a power cut. Everyone may read it, whatever the umask: a guest
    runs as nobody. After an exception nothing has changed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
