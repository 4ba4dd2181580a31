"""The store: run records on disk, immutable, checksummed and written in one step.

Everything else (reports, leaderboards) is derived from them and can be made again.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from harness.files import sync_directory, write_durably
from harness.layout import KEY, MANIFEST, RECORD, attempt_directory, attempts, read_manifest
from harness.records import SCHEMA, Manifest, Record

Say = Callable[[str], None]
"""Where a remark for the user goes."""


class OtherSchema(Exception):
    """A record of another version of the harness: whole, and not ours to touch."""


class Stored(NamedTuple):
    """One evaluation as it lies on disk."""

    directory: Path
    manifest: Manifest
    records: tuple[Record, ...]
    """Of all attempts, in the order of the plan and then of attempts."""


class Store:
    """All evaluations of one operator."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def key_file(self) -> Path:
        return self.root / KEY

    def directory(self, task: str, profile: str, evaluation: str) -> Path:
        return self.root / task / profile / evaluation

    def has_evaluations(self) -> bool:
        """Whether any evaluation was ever begun here."""
        return next(self.root.glob(f"*/*/*/{MANIFEST}"), None) is not None

    def evaluations(self, task: str, profile: str, say: Say) -> Iterator[Stored]:
        """Every evaluation of a task and profile, by id. Unreadable ones are left out, and said."""
        for path in sorted((self.root / task / profile).glob(f"*/{MANIFEST}")):
            try:
                yield self.load(path.parent, say)
            except (OSError, ValidationError, OtherSchema) as error:
                say(f"{path}: cannot be read and is left out: {_first_line(error)}")

    def load(self, directory: Path, say: Say) -> Stored:
        """One evaluation. Damaged records are set aside, said, and missing from the answer.

        A run whose last attempt has no record is not finished, whatever earlier attempts say: none
        of its records are in the answer.
        """
        manifest = read_manifest(directory)
        records: list[Record] = []
        for run in manifest.runs:
            read = [
                read_record(attempt_directory(directory, run.id, attempt), say)
                for attempt in attempts(directory, run.id)
            ]
            if read and read[-1] is not None:
                records += [record for record in read if record is not None]
        return Stored(directory, manifest, tuple(records))


def write_record(attempt: Path, record: Record) -> None:
    """Store a record for good. Raises FileExistsError where the attempt has one already."""
    path = attempt / RECORD
    if path.exists():
        raise FileExistsError(f"{path}: records are never written twice")
    body = record.model_dump_json(indent=1)
    digest = hashlib.sha256(body.encode()).hexdigest()
    write_durably(path, f'{{"sha256": "{digest}", "record":\n{body}}}\n'.encode(), mode=0o444)


def read_record(attempt: Path, say: Say) -> Record | None:
    """The record of an attempt, or None where there is none.

    A damaged one (half a file, a flipped bit) is renamed, said and treated as none. Raises
    OtherSchema for a whole one of another version of the harness, and OSError.
    """
    path = attempt / RECORD
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        _set_aside(path, error, say)
        return None
    try:
        body = content.split("\n", 1)[1].removesuffix("}\n")
        declared = json.loads(content)["sha256"]
        if hashlib.sha256(body.encode()).hexdigest() != declared:
            raise ValueError("its checksum does not fit its content")
        schema = json.loads(body)["schema_version"]
        if schema != SCHEMA:
            raise OtherSchema(f"{path} has schema {schema}; this harness reads {SCHEMA}")
        return Record.model_validate_json(body)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        _set_aside(path, error, say)
        return None


def _set_aside(path: Path, error: Exception, say: Say) -> None:
    aside = path.with_name(f"{RECORD}.damaged-{os.getpid()}-{time.time_ns()}")
    path.rename(aside)
    sync_directory(path.parent)
    say(f"{path}: damaged ({_first_line(error)}); set aside as {aside.name}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
