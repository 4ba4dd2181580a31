"""What `touchstone eval` does, from an accepted source to an exit status."""

import sys
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from harness import references
from harness.cli import ExitStatus
from harness.estimate import Estimate, TooSmall, estimate
from harness.evaluation import Busy, Evaluation, begin
from harness.executors.base import EvaluatorFailed
from harness.executors.local import LocalExecutor
from harness.intake.submission import Accepted, accept
from harness.keys import KeyMissing
from harness.layout import LOGS
from harness.live import duration, watch
from harness.manifest import Conditions, ManifestDiffers, make_plan, profile_hash
from harness.numerics import STOCK, choose
from harness.results.leaderboard import Current, to_table
from harness.results.publish import write_leaderboard, write_reports
from harness.results.store import OtherSchema, Say, Store
from harness.results.summary import RecordsError, Summary
from harness.results.untrusted import one_line
from harness.task import HeldOut, Profile, Task, TaskError, content_hash
from harness.training.environments import EnvironmentMismatch, make
from sandbox.base import SandboxError, load_backend

SANDBOX = "bubblewrap"
DEVICE = "cpu"


class Request(NamedTuple):
    """What the user asked for. `name` is the submission's."""

    task: Task
    profile: Profile
    heldout: HeldOut | None
    heldout_kind: Literal["none", "example", "own"]
    name: str
    workers: int | None
    yes: bool
    rerun: bool
    stock: bool
    store_root: Path
    board_root: Path


def run(request: Request, accepted: Accepted) -> ExitStatus:
    """Evaluate, and show what came of it. Messages go to stdout, faults to stderr."""
    console = Console(highlight=False)
    for note in accepted.notes:
        console.print(Text(f"note: {note}"))
    try:
        return _run(request, accepted, console)
    except KeyboardInterrupt:
        return _fail(ExitStatus.INTERRUPTED, "interrupted; the same command goes on from here")
    except (EnvironmentMismatch, TaskError) as error:
        return _fail(ExitStatus.USAGE, str(error))
    except (
        Busy,
        ManifestDiffers,
        KeyMissing,
        TooSmall,
        SandboxError,
        EvaluatorFailed,
        OtherSchema,
        RecordsError,
        ValidationError,
        OSError,
    ) as error:
        return _fail(ExitStatus.INFRASTRUCTURE, str(error))


def run_references(request: Request, ship: bool) -> ExitStatus:
    """Evaluate every reference of the task; `ship` writes their runs into the task's directory.

    Each is an evaluation like any other: what has finished is kept, and the same command goes on.
    """
    sources: set[str] = set()
    worst = ExitStatus.SCORED
    for path in references.algorithms(request.task):
        accepted = accept(request.task, path)
        sources.add(accepted.sha256)
        status = run(request._replace(name=path.stem), accepted)
        if status in (ExitStatus.INTERRUPTED, ExitStatus.USAGE):
            return status
        worst = max(worst, status)
    if ship:
        say = _printer(Console(highlight=False))
        task, profile = request.task, request.profile
        store = Store(request.store_root.absolute())
        stored = [
            each
            for each in store.evaluations(task.name, profile.name, say)
            if each.manifest.source_sha256 in sources
            and each.manifest.heldout != "own"
            and each.manifest.numerics != STOCK
        ]
        say(f"reference runs: {references.write(task, profile, stored)}")
    return worst


def _fail(status: ExitStatus, message: str) -> ExitStatus:
    print(f"touchstone: {message}", file=sys.stderr)
    return status


def _run(request: Request, accepted: Accepted, console: Console) -> ExitStatus:
    sandbox = load_backend(SANDBOX)
    problems = sandbox.problems()
    if problems:
        raise SandboxError(
            "\n".join(f"{each.what}. What to do: {each.remedy}" for each in problems)
        )
    conditions = Conditions(
        request.task,
        request.profile,
        request.heldout,
        request.heldout_kind,
        sandbox,
        DEVICE,
        choose(request.stock),
    )
    store = Store(request.store_root.absolute())
    say = _printer(console)

    with begin(conditions, accepted, request.name, store, say) as evaluation:
        # Of an evaluation that has not come to its end, the same command is a resume and no more.
        rerun = request.rerun and evaluation.finished
        runs = evaluation.unscored if rerun else evaluation.unfinished
        if runs:
            frozen = make_plan(conditions)
            for each in frozen.environments:
                make(each.environment).close()  # a mistake in a table shows now, not after days
            expected = estimate(frozen, runs, request.workers, store.root)
            _announce(console, request, accepted, len(evaluation.manifest.runs), runs, expected)
            if not _agreed(request, console):
                say("not started")
                return ExitStatus.USAGE
            if rerun:
                evaluation.rerun_unscored()
            executor = LocalExecutor(evaluation.directory, store.key_file, expected.workers)
            with watch(console) as watcher:
                evaluation.run(executor, watcher)
        return _publish(request, evaluation, store, console)


def _shown(name: str) -> str:
    """A submission's name for a terminal: it is often that of a file which somebody handed in."""
    return one_line(name) or "(no name)"


def _printer(console: Console) -> Say:
    """Prints a line as it is: no markup, no wrapping."""
    return lambda line: console.print(Text(line), soft_wrap=True)


def _announce(
    console: Console,
    request: Request,
    accepted: Accepted,
    total: int,
    runs: int,
    expected: Estimate,
) -> None:
    rest = f", {runs} of them to be run" if runs < total else ""
    _printer(console)(
        f"{_shown(request.name)}: {accepted.form}, source {accepted.sha256[:12]}\n"
        f"{request.task.name}, profile {request.profile.name}: {total} runs{rest}, "
        f"{expected.workers} at once\n"
        f"estimate for this machine: {duration(expected.seconds)}, "
        f"{expected.memory_bytes / (1 << 30):.1f} GiB of memory, "
        f"up to {expected.disk_bytes / (1 << 20):,.0f} MiB of disk"
    )


def _agreed(request: Request, console: Console) -> bool:
    if not request.profile.confirm or request.yes or not sys.stdin.isatty():
        return True
    return Confirm.ask("Start?", console=console, default=False)


def _publish(
    request: Request, evaluation: Evaluation, store: Store, console: Console
) -> ExitStatus:
    say = _printer(console)
    published = write_reports(store.load(evaluation.directory, say))
    summary = published.report.summary
    say(_score_line(_shown(request.name), summary))
    say(f"report:      {published.markdown}\n             {published.json}")
    if request.profile.table:
        own = request.heldout if request.heldout_kind == "own" else None
        current = _current(request.task, request.profile, own, store, say)
        shipped = references.evaluations(request.task, request.profile, say)
        _, path = write_leaderboard(store, current, request.board_root, say, shipped=shipped)
        say(f"leaderboard: {path}")
    if evaluation.abandoned:
        return _fail(
            ExitStatus.INFRASTRUCTURE,
            f"infrastructure failed for {', '.join(evaluation.abandoned)}; nothing is held against "
            f"the submission. Logs: {evaluation.directory / LOGS}. The same command tries again.",
        )
    if summary.runs_scored < summary.runs_planned:
        return ExitStatus.UNSCORED_RUNS
    return ExitStatus.SCORED


def _score_line(name: str, summary: Summary) -> str:
    runs = f"{summary.runs_scored} of {summary.runs_planned} runs scored"
    if summary.score is None:
        return f"{name}: no score ({summary.why_no_score}); {runs}"
    interval = (
        f", 95 % interval {summary.interval_low:.1f} to {summary.interval_high:.1f}"
        if summary.interval_low is not None
        else ""
    )
    unranked = "" if summary.ranked else f"; not ranked: {summary.why_unranked}"
    return f"{name}: score {summary.score:.1f}{interval}; {runs}{unranked}"


def show_leaderboard(
    task: Task,
    profile: Profile,
    own: HeldOut | None,
    store_root: Path,
    board_root: Path,
    for_submitter: bool,
) -> None:
    """Rebuild a board and print its first columns."""
    console = Console(highlight=False)
    say = _printer(console)
    store = Store(store_root.absolute())
    current = _current(task, profile, own, store, say)
    shipped = references.evaluations(task, profile, say)
    board, path = write_leaderboard(store, current, board_root, say, for_submitter, shipped)
    console.print(to_table(board))
    elsewhere = references.published(task, profile)
    if elsewhere:
        console.print(references.published_table(task, profile, elsewhere))
    for each in board.left_out:
        say(f"left out: {each}")
    say(str(path))


def _current(task: Task, profile: Profile, own: HeldOut | None, store: Store, say: Say) -> Current:
    """What the board ranks: evaluations with the held-out list in force.

    That is the operator's own where it is given, else the one that the store's newest evaluation
    with a list of its own used, else the repository's example.
    """
    if own is None:
        earlier = [
            each.manifest
            for each in store.evaluations(task.name, profile.name, say)
            if each.manifest.heldout == "own"
        ]
        if earlier:
            newest = max(earlier, key=lambda manifest: manifest.created)
            heldout_hash = newest.heldout_sha256
        else:
            example = task.load_heldout()
            heldout_hash = (
                content_hash(example.only(profile.name))
                if example.profiles.get(profile.name)
                else None
            )
    else:
        heldout_hash = content_hash(own.only(profile.name))
    return Current(
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        profile_sha256=profile_hash(task, profile),
        heldout_sha256=heldout_hash,
    )
