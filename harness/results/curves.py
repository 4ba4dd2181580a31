"""Learning curves of all evaluations of a task and profile in one file, for people who plot them.

Long format: one row a point. Unlike a leaderboard it holds every run that was recorded, ranked or
not, scored or not. pandas is imported where a table is made, so that no other command waits for it.
"""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.files import write_durably
from harness.records import Record
from harness.results.store import Say, Store, Stored
from harness.results.submitter import visible_records
from harness.results.summary import RecordsError, last_attempts
from harness.results.untrusted import csv_cell, one_line

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "submission": "str",
    "environment": "str",
    "seed": "int64",
    "step": "int64",
    "return": "float64",
}
"""Names and pandas dtypes, in order. Plain text and no categories: a category that has no row left
would still stand in the file, and could be a held-out name."""

SUFFIXES = (".parquet", ".csv")


class CannotExport(Exception):
    """There is no store, or no such file can be written; the message says which."""


class Exported(NamedTuple):
    """What a file of curves holds."""

    submissions: int
    runs: int
    """With at least one point."""
    points: int
    heldout: bool
    """Whether any of it is of a held-out run."""


class _Run(NamedTuple):
    """A recorded run, by the attempt that counts."""

    submission: str
    record: Record


def write_curves(
    store: Store, task: str, profile: str, path: Path, say: Say, for_submitter: bool = False
) -> Exported:
    """Write the curves to `path`, as its suffix says. Raises CannotExport and OSError.

    `for_submitter` leaves held-out runs out, and out of what is said too.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise CannotExport(f"{path}: the file's name must end in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise CannotExport(f"{path} is a directory")
    if not path.parent.is_dir():
        raise CannotExport(f"{path}: there is no directory {path.parent}")
    if not store.root.is_dir():
        raise CannotExport(f"there is no store {store.root}")
    remarks: list[str] = []
    stored = list(store.evaluations(task, profile, remarks.append))
    if for_submitter and remarks:
        where = store.root / task / profile
        remarks = [f"{where}: some records cannot be read; which, is withheld from submitters"]
    for each in remarks:
        say(each)
    runs = _runs(stored, say, for_submitter)
    frame = _frame(runs)
    write_durably(path, _to_parquet(frame) if suffix == ".parquet" else _to_csv(frame))
    return Exported(
        submissions=len({run.submission for run in runs}),
        runs=len(runs),
        points=len(frame),
        heldout=any(run.record.heldout for run in runs),
    )


def labels(stored: Sequence[Stored]) -> list[str]:
    """What to call each evaluation: its name as leaderboards show it, else its id.

    The id, where the name is that of another evaluation too or looks like another's id. Names are
    compared as CSV has them, so that evaluations are apart in every format.
    """
    names = [one_line(each.manifest.name, 80) or "(no name)" for each in stored]
    cells = [csv_cell(name) for name in names]
    taken = Counter(cells) + Counter(each.directory.name for each in stored)
    return [
        name if taken[cell] == 1 else each.directory.name
        for name, cell, each in zip(names, cells, stored, strict=True)
    ]


def _runs(stored: Sequence[Stored], say: Say, for_submitter: bool) -> list[_Run]:
    """Those with a point, by evaluation id and then as the manifest has them."""
    runs: list[_Run] = []
    for each, label in zip(stored, labels(stored), strict=True):
        try:
            last = last_attempts(each.manifest, each.records)
        except RecordsError as error:
            reason = "its records contradict its manifest" if for_submitter else str(error)
            say(f"left out: {each.directory.name}: {reason}")
            continue
        cells = [(run.environment, run.seed) for run in each.manifest.runs]
        records = [last[cell] for cell in cells if cell in last]
        shown = visible_records(records) if for_submitter else records
        runs += [_Run(label, record) for record in shown if record.curve]
    return runs


def _frame(runs: Sequence[_Run]) -> "pd.DataFrame":
    """A row a point, by run and step. Columns and dtypes are COLUMNS, without a row too."""
    import pandas as pd

    rows = [
        (run.submission, run.record.environment, run.record.seed, point.step, point.mean)
        for run in runs
        for point in run.record.curve
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _to_parquet(frame: "pd.DataFrame") -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()


def _to_csv(frame: "pd.DataFrame") -> bytes:
    """Text made safe for spreadsheets; returns with all their digits."""
    safe = frame.assign(
        submission=frame["submission"].map(csv_cell), environment=frame["environment"].map(csv_cell)
    )
    return safe.to_csv(index=False, lineterminator="\n").encode()
