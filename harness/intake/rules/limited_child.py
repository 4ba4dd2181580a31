"""Holding a region against the source rules in a child with limits, never in this process."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.intake.rules.rule_tables import Found
from harness.intake.rules.table import RULES

WALL_SECONDS = 10.0
MAX_ANSWER_BYTES = 512 * 1024

_ROOT = Path(__file__).resolve().parents[3]
# Isolated and without site-packages: the child finds the standard library and these rules.
_PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from harness.intake.rules.source_rules import main
main()
"""


class Answer(NamedTuple):
    """What the rules found, and how many findings were left out."""

    found: tuple[Found, ...]
    more: int


def check(
    region: str, scaffold: str, first: int, last: int, classes: Mapping[str, Sequence[str]]
) -> Answer:
    """`source_rules.check` in a child; one that exceeds its limits is the finding `too-heavy`."""
    request = {
        "region": region,
        "scaffold": scaffold,
        "first": first,
        "last": last,
        "classes": {name: list(methods) for name, methods in classes.items()},
    }
    with tempfile.TemporaryFile() as file:
        # A file and not a pipe: a child that never reads must not make this process wait.
        file.write(json.dumps(request).encode())
        file.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-W", "ignore", "-c", _PROGRAM, str(_ROOT)],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
    deadline = time.monotonic() + WALL_SECONDS
    with child:
        try:
            answer = _read(child, deadline)
            if answer is not None:
                child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            answer = None
        finally:
            child.kill()
    parsed = _parse(answer) if answer is not None and child.returncode == 0 else None
    if parsed is None:
        message = "the limits on memory and time were reached while reading the region"
        return Answer((Found("too-heavy", 0, 0, message),), 0)
    return parsed


def _read(child: "subprocess.Popen[bytes]", deadline: float) -> bytes | None:
    """All of the child's output, None if it is too long or too late."""
    assert child.stdout is not None
    parts: list[bytes] = []
    size = 0
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(child.stdout.fileno(), 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                return None
    return None


def _parse(answer: bytes) -> Answer | None:
    """The child's answer, None if it is not of the form that `source_rules.main` writes.

    The child has read a hostile text, so what it says is checked like one.
    """
    try:
        raw = json.loads(answer)
        found = tuple(Found._make(each) for each in raw["found"])
        more = raw["more"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    types = [tuple(map(type, each)) for each in found]
    if any(each != (str, int, int, str, int) for each in types) or type(more) is not int:
        return None
    return Answer(found, more) if all(each.rule in RULES for each in found) else None
