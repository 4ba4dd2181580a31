"""What `touchstone eval` does, from an accepted source to an exit status."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from harness import references
from harness.cli import ExitStatus
from harness.datasets.places import DEFAULT_ROOT, DatasetError, command
from harness.datasets.prepare import Ready, ready
from harness.estimate import Estimate, TooSmall, estimate
from harness.evaluation import Busy, Evaluation, begin
from harness.executors.base import EvaluatorFailed
from harness.executors.local import LocalExecutor
from harness.intake.refusals import Refused
from harness.intake.submission import Submission, accept
from harness.intake.trial import CannotTry, try_out
from harness.keys import KeyMissing
from harness.layout import LOGS, MANIFEST, read_manifest, write_datasets
from harness.live import duration, watch
from harness.manifest import (
    Conditions,
    ManifestDiffers,
    evaluation_id,
    make_plan,
    profile_hash,
)
from harness.numerics import choose
from harness.records import Manifest
from harness.results.leaderboard import Current, Evaluated, to_table
from harness.results.publish import write_leaderboard, write_reports
from harness.results.store import OtherSchema, Say, Store
from harness.results.summary import RecordsError, Summary, last_attempts
from harness.results.untrusted import one_line
from harness.task import HeldOut, OfflineDataset, Profile, Task, TaskError, plan
from harness.training.environments import EnvironmentMismatch, family_of
from sandbox.base import DEFAULT, SandboxError, load_backend

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
    datasets_root: Path = DEFAULT_ROOT
    """Where the data of an offline task are."""
    heldout_option: str = ""
    """As it was typed, for advice."""


def run(request: Request, accepted: Submission) -> ExitStatus:
    """Evaluate, and show what came of it. Messages go to stdout, faults to stderr."""
    console = Console(highlight=False)
    for note in accepted.notes:
        console.print(Text(f"note: {note}"))
    for warning in accepted.warnings:
        print(f"{warning.render()}\n", file=sys.stderr)
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
        CannotTry,
        SandboxError,
        EvaluatorFailed,
        OtherSchema,
        RecordsError,
        DatasetError,
        ValidationError,
        OSError,
    ) as error:
        return _fail(ExitStatus.INFRASTRUCTURE, str(error))


def run_references(request: Request, ship: bool) -> ExitStatus:
    """Evaluate every reference of the task; `ship` writes their runs into the task's directory.

    Each is an evaluation like any other: what has finished is kept, and the same command goes on.
    """
    task, profile = request.task, request.profile
    ids: set[str] = set()
    worst = ExitStatus.SCORED
    for path in references.algorithms(task):
        try:
            accepted = accept(task, path)
        except Refused as refused:
            return _refuse(refused)
        named = request._replace(name=path.stem)
        ids.add(_evaluation_id(named, accepted))
        status = run(named, accepted)
        if status in (ExitStatus.INTERRUPTED, ExitStatus.USAGE):
            return status
        worst = max(worst, status)
    if ship:
        say = _printer(Console(highlight=False))
        store = Store(request.store_root.absolute())
        evaluations = store.evaluations(task.name, profile.name, say)
        made = [each for each in evaluations if each.manifest.evaluation in ids]
        finished = {
            each.manifest.evaluation
            for each in made
            if len(last_attempts(each.manifest, each.records)) == len(each.manifest.runs)
        }
        if finished != ids:
            return _fail(
                worst or ExitStatus.INFRASTRUCTURE,
                f"{len(ids) - len(finished)} of {len(ids)} references have not finished here. Runs "
                "are shipped all together: those that were shipped are left as they are",
            )
        try:
            say(f"reference runs: {references.write(task, profile, made)}")
        except (OSError, ValidationError, RecordsError) as error:
            return _fail(ExitStatus.INFRASTRUCTURE, str(error))
    return worst


def _evaluation_id(request: Request, accepted: Submission) -> str:
    environments = plan(request.task, request.profile, request.heldout)
    return evaluation_id(
        request.task,
        request.profile,
        request.name,
        accepted.sha256,
        request.heldout_kind if any(each.heldout for each in environments) else "none",
        request.stock,
    )


def _numerics(request: Request, accepted: Submission, store: Store) -> Mapping[str, str]:
    """Those of the evaluation's manifest; a new one's are chosen, which may take a probe."""
    if (_directory(request, accepted, store) / MANIFEST).exists():
        return _manifest(request, accepted, store).numerics
    return choose(request.stock)


def _manifest(request: Request, accepted: Submission, store: Store) -> Manifest:
    return read_manifest(_directory(request, accepted, store))


def _data(
    request: Request, accepted: Submission, store: Store, say: Say
) -> tuple[Mapping[str, Ready], DatasetError | None]:
    """The data of an offline task, checked and laid out; none for another task.

    Where they are missing, an evaluation that has begun may still be read: then the error is kept,
    for whoever wants to train. Raises DatasetError for a new one.
    """
    environments = [
        each.environment
        for each in plan(request.task, request.profile, request.heldout)
        if isinstance(each.environment, OfflineDataset)
    ]
    if not environments:
        return {}, None
    make = command(
        request.task.name, request.profile.name, request.datasets_root, request.heldout_option
    )
    try:
        return ready(environments, request.datasets_root, make, say), None
    except DatasetError as error:
        if not (_directory(request, accepted, store) / MANIFEST).exists():
            raise
        return {}, error


def _directory(request: Request, accepted: Submission, store: Store) -> Path:
    id_ = _evaluation_id(request, accepted)
    return store.directory(request.task.name, request.profile.name, id_)


def _refuse(refused: Refused) -> ExitStatus:
    print(refused, file=sys.stderr)
    return ExitStatus.REJECTED


def _fail(status: ExitStatus, message: str) -> ExitStatus:
    print(f"touchstone: {message}", file=sys.stderr)
    return status


def _run(request: Request, accepted: Submission, console: Console) -> ExitStatus:
    sandbox = load_backend(DEFAULT)
    problems = sandbox.problems()
    if problems:
        raise SandboxError("\n".join(map(str, problems)))
    store = Store(request.store_root.absolute())
    say = _printer(console)
    # Read now: what is wrong with it should not show after days.
    shipped = references.evaluations(request.task, request.profile, say)
    data, missing = _data(request, accepted, store, say)
    if not (_directory(request, accepted, store) / MANIFEST).exists():
        # Once, before anything is stored: what has begun has passed it.
        trial = try_out(request.task, request.heldout, accepted)
        if trial.findings:
            return _refuse(Refused(trial.findings))
        tried = len(trial.tried)
        say(f"trial: passed at the shapes of {tried} environments in {trial.seconds:.1f} s")
    conditions = Conditions(
        request.task,
        request.profile,
        request.heldout,
        request.heldout_kind,
        sandbox,
        DEVICE,
        _numerics(request, accepted, store),
        {id_: each.sha256 for id_, each in data.items()},
    )
    if missing is not None:
        conditions = conditions._replace(datasets=_manifest(request, accepted, store).datasets)

    with begin(conditions, accepted, request.name, store, say) as evaluation:
        # Of an evaluation that has not come to its end, the same command is a resume and no more.
        rerun = request.rerun and evaluation.finished
        runs = evaluation.unscored if rerun else evaluation.unfinished
        if runs and missing is not None:
            raise missing
        if runs:
            frozen = make_plan(conditions)
            for each in frozen.environments:
                # A mistake in a table shows now, not after days.
                family_of(each.environment).check(each.environment)
            expected = estimate(frozen, runs, request.workers, store.root)
            _announce(console, request, accepted, len(evaluation.manifest.runs), runs, expected)
            if not _agreed(request, console):
                evaluation.forget()
                return _fail(ExitStatus.USAGE, "not started")
            if rerun:
                evaluation.rerun_unscored()
            if data:
                write_datasets(evaluation.directory, {id_: each.path for id_, each in data.items()})
            executor = LocalExecutor(evaluation.directory, store.key_file, expected.workers)
            with watch(console) as watcher:
                evaluation.run(executor, watcher)
        return _publish(request, evaluation, store, console, shipped)


def _shown(name: str) -> str:
    """A submission's name for a terminal: it is often that of a file which somebody handed in."""
    return one_line(name) or "(no name)"


def _printer(console: Console) -> Say:
    """Prints a line as it is: no markup, no wrapping."""
    return lambda line: console.print(Text(line), soft_wrap=True)


def _announce(
    console: Console,
    request: Request,
    accepted: Submission,
    total: int,
    runs: int,
    expected: Estimate,
) -> None:
    offline = any(isinstance(each, OfflineDataset) for each in request.task.environments.values())
    data = "dataset" if offline else "replay buffer"
    rest = f", {runs} of them to be run" if runs < total else ""
    _printer(console)(
        f"{_shown(request.name)}: {accepted.form}, source {accepted.sha256[:12]}\n"
        f"{request.task.name}, profile {request.profile.name}: {total} runs{rest}, "
        f"{expected.workers} at once\n"
        f"estimate for this machine: {duration(expected.seconds)}, "
        f"{expected.memory_bytes / (1 << 30):.1f} GiB of memory "
        f"(each {data} {expected.buffer_bytes / (1 << 30):.2f} GiB), "
        f"up to {expected.disk_bytes / (1 << 20):,.0f} MiB of disk"
    )


def _agreed(request: Request, console: Console) -> bool:
    if not request.profile.confirm or request.yes:
        return True
    if not sys.stdin.isatty():
        console.print("Nobody is there to ask whether to start: say YES=1 (--yes).")
        return False
    return Confirm.ask("Start?", console=console, default=False)


def _publish(
    request: Request,
    evaluation: Evaluation,
    store: Store,
    console: Console,
    shipped: Sequence[Evaluated],
) -> ExitStatus:
    say = _printer(console)
    published = write_reports(store.load(evaluation.directory, say))
    summary = published.report.summary
    say(_score_line(_shown(request.name), summary))
    say(f"report:      {published.markdown}\n             {published.json}")
    if request.profile.table:
        own = request.heldout if request.heldout_kind == "own" else None
        current = _current(request.task, request.profile, own, store, say)
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
        shown = plan(task, profile, None if for_submitter else own or task.load_heldout())
        console.print(references.published_table(task, elsewhere, shown))
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
            heldout_hash = task.load_heldout().digest(profile.name)
    else:
        heldout_hash = own.digest(profile.name)
    return Current(
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        profile_sha256=profile_hash(task, profile),
        heldout_sha256=heldout_hash,
    )
