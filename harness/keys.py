"""The operator's secret key, and every seed that a run uses.

Training seeds follow from the run's seed alone, so that anybody can repeat a training. Evaluation
seeds need the key: a submission that memorised the episodes of a public seed gains nothing. The
source of a submission is not among the inputs, or a comment would draw new episodes.
"""

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Literal

from harness.files import sync_directory

KEY_BYTES = 32
_SEED_BITS = 31
"""Every seeded library takes as much."""

Purpose = Literal["curve", "final", "second", "actor"]


class KeyMissing(Exception):
    """There are evaluations under a key that is gone; a new one would change their numbers."""


def create_key(path: Path) -> bytes:
    """Make a key file, readable by its owner alone, unless there is one; returns the key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        # Of two harnesses that start together, the second takes the first one's key.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()
        sync_directory(path.parent)
    return load_key(path)


def load_key(path: Path) -> bytes:
    """Read a key file. Raises KeyMissing that says which file, and what is wrong with it."""
    try:
        key = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise KeyMissing(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise KeyMissing(f"{path}: is no key ({KEY_BYTES} bytes in hexadecimal)") from error
    if len(key) != KEY_BYTES:
        raise KeyMissing(f"{path}: holds {len(key)} bytes where a key has {KEY_BYTES}")
    return key


def fingerprint(key: bytes) -> str:
    """What manifests say of a key: enough to tell two apart, nothing of use to guess one."""
    return hashlib.sha256(b"touchstone key fingerprint" + key).hexdigest()[:16]


def evaluation_seed(
    key: bytes,
    task: str,
    task_version: int,
    environment: str,
    seed: int,
    purpose: Purpose,
    index: int,
) -> int:
    """Seed of one evaluation episode, or of the actor's generators (`purpose` "actor")."""
    inputs = json.dumps([task, task_version, environment, seed, purpose, index])
    digest = hmac.new(key, inputs.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "little") >> (64 - _SEED_BITS)
