"""Writes what people read: reports beside an evaluation's records, leaderboards from the store.

Nothing here is a source of anything: every file can be deleted and is made again.
"""

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.files import write_durably
from harness.layout import PATCH, RECORD, attempt_directory
from harness.records import PlannedRun, Record
from harness.results.leaderboard import (
    Board,
    Current,
    Evaluated,
    build_board,
    file_name,
    to_csv,
)
from harness.results.report.json_report import Report, build_report, to_json
from harness.results.report.markdown import to_markdown
from harness.results.store import Say, Store, Stored


class Published(NamedTuple):
    """Where the reports of one evaluation lie."""

    report: Report
    json: Path
    markdown: Path


def write_reports(stored: Stored, for_submitter: bool = False) -> Published:
    """Write `report.json` and `report.md`, or their `submitter-` editions, into the evaluation."""

    def where(record: Record) -> str:
        run = PlannedRun(environment=record.environment, heldout=record.heldout, seed=record.seed)
        attempt = attempt_directory(stored.directory, run.id, record.attempt)
        return str((attempt / RECORD).relative_to(stored.directory))

    report = build_report(
        stored.manifest, stored.records, where, for_submitter, _patch(stored.directory)
    )
    stem = "submitter-report" if for_submitter else "report"
    as_json = stored.directory / f"{stem}.json"
    as_markdown = stored.directory / f"{stem}.md"
    write_durably(as_json, to_json(report).encode())
    write_durably(as_markdown, to_markdown(report).encode())
    return Published(report, as_json, as_markdown)


def _patch(evaluation: Path) -> str:
    """Evaluations that were begun by an earlier version have none."""
    try:
        return (evaluation / PATCH).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def write_leaderboard(
    store: Store,
    current: Current,
    directory: Path,
    say: Say,
    for_submitter: bool = False,
    shipped: Sequence[Evaluated] = (),
) -> tuple[Board, Path]:
    """Rebuild one leaderboard from the store and the reference runs that came with the task.

    Two harnesses that finish together wait in turn.
    """
    directory.mkdir(parents=True, exist_ok=True)
    prefix = "submitter-" if for_submitter else ""
    path = directory / f"{prefix}{file_name(current.task, current.profile)}"
    with (directory / f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored = store.evaluations(current.task, current.profile, say)
        evaluations = ((each.manifest, each.records) for each in stored)
        board = build_board(current, evaluations, for_submitter, shipped)
        write_durably(path, to_csv(board).encode())
    return board, path
