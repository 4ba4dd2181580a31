"""The leaderboard of one task and profile: every finished evaluation a row, as CSV and as text.

Only what compares is ranked: evaluations of the current task version and profile, with the current
held-out environments, each source once. All others are listed with an empty rank and the reason.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from harness.records import Manifest, Record, RunResult
from harness.results.scoring import RankRange, rank_ranges
from harness.results.submitter import manifest_for_submitter, summary_for_submitter
from harness.results.summary import EnvironmentSummary, RecordsError, Summary, result, summarise
from harness.results.untrusted import csv_cell, one_line

Value = str | int | float | None
Evaluated = tuple[Manifest, Sequence[Record | RunResult]]
"""An evaluation: its manifest and all its runs."""


class Current(NamedTuple):
    """What an evaluation must have been made with to be ranked on a board."""

    task: str
    task_version: int
    profile: str
    profile_sha256: str
    heldout_sha256: str | None


class Row(NamedTuple):
    """One evaluation on the board."""

    manifest: Manifest
    summary: Summary
    rank: RankRange | None
    why_unranked: str
    """Empty where it has a rank."""
    shipped: bool
    """Whether its runs came with the task, and were not made by this operator."""


class Board(NamedTuple):
    """A leaderboard: ranked rows by score, then the others by score."""

    current: Current
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]
    """Evaluations that do not appear, each with the reason: not finished, or mixed-up records."""


class _Judged(NamedTuple):
    row: Row
    exact: Summary


def build_board(
    current: Current,
    evaluations: Iterable[Evaluated],
    for_submitter: bool = False,
    shipped: Iterable[Evaluated] = (),
) -> Board:
    """The board of `current`'s task and profile; evaluations of others are passed over.

    A source ranks by its first evaluation (by creation), so that evaluating it again, under
    another name or on another machine, neither picks the luckier one nor fills the board. The order
    depends on nothing but the evaluations themselves. `for_submitter` leaves held-out runs out of
    all but the scores and counts.

    `shipped` are the reference runs that came with the task: evaluations like the others, but that
    this operator's own evaluation of that id stands in their place once it is finished.
    """
    judged: list[_Judged] = []
    left_out: list[str] = []
    ranked_as: dict[str, str] = {}
    entries = [(*each, False) for each in evaluations]
    finished = {
        manifest.evaluation
        for manifest, records, _ in entries
        if len({(each.environment, each.seed) for each in records}) == len(manifest.runs)
    }
    entries += [(*each, True) for each in shipped if each[0].evaluation not in finished]
    entries.sort(key=lambda entry: (entry[0].created, entry[0].evaluation))
    for manifest, records, came_along in entries:
        if (manifest.task, manifest.profile) != (current.task, current.profile):
            continue
        try:
            runs = [result(each) for each in records]
            summary = summarise(manifest, runs)
            shown = summary_for_submitter(manifest, runs, summary) if for_submitter else summary
        except RecordsError as error:
            reason = "its records contradict its manifest" if for_submitter else str(error)
            left_out.append(f"{manifest.evaluation}: {reason}")
            continue
        if not summary.finished:
            left_out.append(f"{manifest.evaluation}: {shown.why_no_score}")
            continue
        why = _why_unranked(manifest, shown, current)
        if not why and manifest.source_sha256 in ranked_as:
            why = f"same source as {ranked_as[manifest.source_sha256]}, which was evaluated first"
        if not why:
            ranked_as[manifest.source_sha256] = manifest.evaluation
        row_manifest = manifest_for_submitter(manifest) if for_submitter else manifest
        judged.append(_Judged(Row(row_manifest, shown, None, why, came_along), summary))
    # Order and ranks come from exact figures, also where rounded ones are shown.
    judged.sort(key=_order)
    ranked = [each for each in judged if not each.row.why_unranked]
    ranks = rank_ranges([_interval(each.exact) for each in ranked])
    rows = [each.row._replace(rank=rank) for each, rank in zip(ranked, ranks, strict=True)]
    rows += [each.row for each in judged if each.row.why_unranked]
    return Board(current, tuple(rows), tuple(left_out))


def file_name(task: str, profile: str) -> str:
    """Of the board's CSV in `leaderboard/`."""
    return f"{task}.csv" if profile == "full" else f"{task}.{profile}.csv"


def to_csv(board: Board) -> str:
    """The board as CSV text with "\\n" line ends; without rows it is the header alone.

    Text is made safe for spreadsheets; numbers stand bare, floats with six significant digits
    (exact ones are in `report.json`), and an empty cell means that there is no value. Memorised
    runs and stopped games have columns where the task has second evaluations.
    """
    columns = _columns(board)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(column.name) for column in columns])
    writer.writerows([_cell(column.value(row)) for column in columns] for row in board.rows)
    return file.getvalue()


def to_table(board: Board) -> Table:
    """The board's first columns, for rich to print. Names are plain text, never markup."""
    table = Table(title=Text(one_line(f"{board.current.task}, {board.current.profile}")))
    captions = []
    if any(row.shipped for row in board.rows):
        captions.append("*: reference runs that came with the task")
    again = _second_columns(board)
    if again:
        captions.append(
            "memorised?: runs with more than half of their return gone in a second evaluation\n"
            "stopped: games that were stopped at their longest, and count as they stood"
        )
    reasons = sorted({row.why_unranked for row in board.rows if row.why_unranked})
    if reasons:
        captions.append(one_line(f"not ranked (-): {'; '.join(reasons)}"))
    if captions:
        table.caption = Text("\n".join(captions))
    names = ["rank", "name", "score", "95 % interval", "visible", "held-out", "scored"]
    for name in [*names, "memorised?", "stopped"] if again else names:
        table.add_column(name, justify="left" if name == "name" else "right")
    for row in board.rows:
        summary = row.summary
        interval = f"{_short(summary.interval_low)} to {_short(summary.interval_high)}"
        cells = (
            _rank(row.rank) or "-",
            (one_line(row.manifest.name, 40) or "(no name)") + (" *" if row.shipped else ""),
            _short(summary.score),
            interval if summary.interval_low is not None else "-",
            _short(summary.visible_score),
            _short(summary.heldout_score),
            f"{summary.runs_scored}/{summary.runs_planned}",
            *("-" if (count := each.value(row)) is None else str(count) for each in again),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _why_unranked(manifest: Manifest, summary: Summary, current: Current) -> str:
    reasons = [] if summary.ranked else [summary.why_unranked]
    return "; ".join([*reasons, *_differences(manifest, current)])


def _differences(manifest: Manifest, current: Current) -> list[str]:
    """What keeps an evaluation from being compared with the board's others."""
    reasons = []
    if manifest.task_version != current.task_version:
        reasons.append(f"task version {manifest.task_version}, now {current.task_version}")
    elif manifest.profile_sha256 != current.profile_sha256:
        reasons.append("another edition of the profile")
    if manifest.heldout_sha256 != current.heldout_sha256:
        reasons.append("other held-out environments")
    return reasons


def _order(judged: _Judged) -> tuple[float, str, str]:
    score = -1.0 if judged.exact.score is None else judged.exact.score
    return (-score, judged.row.manifest.name, judged.row.manifest.evaluation)


def _interval(summary: Summary) -> tuple[float, float]:
    if summary.interval_low is None or summary.interval_high is None:
        return (float("nan"), float("nan"))
    return (summary.interval_low, summary.interval_high)


def _environments(board: Board) -> list[str]:
    """Ids of all environments on the board, visible ones first, in order of appearance."""
    seen = {each.id: each.heldout for row in board.rows for each in row.summary.environments}
    return sorted(seen, key=lambda id_: seen[id_])


class _Column(NamedTuple):
    name: str
    value: Callable[[Row], Value]


def _columns(board: Board) -> list[_Column]:
    """The one place that says what the columns are."""
    by_environment = [
        column
        for id_ in _environments(board)
        for column in (
            _Column(f"{id_} mean", _of_environment(id_, lambda each: each.mean)),
            _Column(f"{id_} std", _of_environment(id_, lambda each: each.std)),
            _Column(f"{id_} seeds", _of_environment(id_, lambda each: each.scored)),
        )
    ]
    return [
        _Column("rank_range", lambda row: _rank(row.rank)),
        _Column("name", lambda row: one_line(row.manifest.name, 80) or "(no name)"),
        _Column("score", lambda row: row.summary.score),
        _Column("interval_low", lambda row: row.summary.interval_low),
        _Column("interval_high", lambda row: row.summary.interval_high),
        _Column("visible_score", lambda row: row.summary.visible_score),
        _Column("heldout_score", lambda row: row.summary.heldout_score),
        _Column("iqm", lambda row: row.summary.iqm),
        *by_environment,
        _Column("runs_scored", lambda row: row.summary.runs_scored),
        _Column("runs_planned", lambda row: row.summary.runs_planned),
        _Column("attempts", lambda row: row.summary.attempts),
        *_second_columns(board),
        _Column("parameters", lambda row: row.summary.parameters),
        _Column("steps_per_second", lambda row: row.summary.steps_per_second),
        _Column("cpu_hours", lambda row: row.summary.cpu_hours),
        _Column("profile", lambda row: row.manifest.profile),
        _Column("task_version", lambda row: row.manifest.task_version),
        _Column("numerics", lambda row: _numerics(row.manifest)),
        _Column("sandbox", lambda row: row.summary.sandbox),
        _Column("hardware", lambda row: row.summary.hardware),
        _Column("date", lambda row: row.summary.date),
        _Column("origin", lambda row: "shipped" if row.shipped else "here"),
        _Column("source_sha256", lambda row: row.manifest.source_sha256),
        _Column("evaluation", lambda row: row.manifest.evaluation),
        _Column("ranked", lambda row: "yes" if row.rank else "no"),
        _Column("why_unranked", lambda row: row.why_unranked),
    ]


def _second_columns(board: Board) -> list[_Column]:
    """What a second evaluation says of a row; none on the board of a task without any."""
    if not any(row.summary.second_evaluations for row in board.rows):
        return []
    return [
        _Column("memorised_runs", _where_evaluated_again(lambda summary: summary.memorised_runs)),
        _Column("stopped_games", _where_evaluated_again(lambda summary: summary.stopped_games)),
    ]


def _where_evaluated_again(value: Callable[[Summary], int]) -> Callable[[Row], Value]:
    return lambda row: value(row.summary) if row.summary.second_evaluations else None


def _of_environment(
    id_: str, value: Callable[[EnvironmentSummary], Value]
) -> Callable[[Row], Value]:
    def of_row(row: Row) -> Value:
        return next((value(each) for each in row.summary.environments if each.id == id_), None)

    return of_row


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return csv_cell(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _numerics(manifest: Manifest) -> str:
    return "; ".join(f"{name}={value}" for name, value in sorted(manifest.numerics.items()))


def _rank(rank: RankRange | None) -> str:
    """Words, because a spreadsheet reads "1-3" as a date."""
    return f"{rank.best} to {rank.worst}" if rank else ""


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
