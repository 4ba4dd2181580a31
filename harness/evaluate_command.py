"""What `touchstone eval` does, from an accepted source to an exit status."""

import sys
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from harness.cli import ExitStatus
from harness.estimate import Estimate, TooSmall, estimate
from harness.evaluation import Busy, Evaluation, begin
from harness.executors.base import EvaluatorFailed
from harness.executors.local import LocalExecutor
from harness.intake.submission import Accepted
from harness.keys import KeyMissing
from harness.live import duration, watch
from harness.manifest import Conditions, ManifestDiffers, make_plan, profile_hash
from harness.records import Manifest
from harness.results.leaderboard import Current, to_table
from harness.results.publish import write_leaderboard, write_reports
from harness.results.store import Store
from harness.results.summary import Summary
from harness.task import HeldOut, Profile, Task, content_hash
from sandbox.base import SandboxError, load_backend

SANDBOX = "bubblewrap"
DEVICE = "cpu"


class Request(NamedTuple):
    """What the user asked for."""

    task: Task
    profile: Profile
    heldout: HeldOut | None
    heldout_kind: Literal["none", "example", "own"]
    name: str
    workers: int | None
    yes: bool
    rerun: bool
    store_root: Path
    board_root: Path


def run(request: Request, accepted: Accepted) -> ExitStatus:
    """Evaluate, and show what came of it. Messages go to stdout, faults to stderr."""
    console = Console(highlight=False)
    for note in accepted.notes:
        console.print(Text(f"note: {note}"))
    try:
        return _run(request, accepted, console)
    except (Busy, ManifestDiffers, KeyMissing, TooSmall, SandboxError, EvaluatorFailed) as error:
        print(f"touchstone: {error}", file=sys.stderr)
        return ExitStatus.INFRASTRUCTURE


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
    )
    store = Store(request.store_root.absolute())

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    with begin(conditions, accepted, request.name, store, say) as evaluation:
        if request.rerun:
            say(f"appended an attempt to {evaluation.rerun_failed()} run(s) without a score")
        if not evaluation.finished:
            expected = estimate(
                make_plan(conditions), evaluation.unfinished, request.workers, store.root
            )
            _announce(console, request, accepted, evaluation, expected)
            if not _agreed(request, console):
                say("not started")
                return ExitStatus.USAGE
            executor = LocalExecutor(evaluation.directory, store.key_file, expected.workers)
            with watch(console) as watcher:
                evaluation.run(executor, watcher)
        return _publish(request, evaluation, store, console)


def _announce(
    console: Console,
    request: Request,
    accepted: Accepted,
    evaluation: Evaluation,
    expected: Estimate,
) -> None:
    runs = evaluation.unfinished
    total = len(evaluation.manifest.runs)
    done = f", {total - runs} already finished" if runs < total else ""
    console.print(
        Text(
            f"{request.name}: {accepted.form}, source {accepted.sha256[:12]}\n"
            f"{request.task.name}, profile {request.profile.name}: {total} runs{done}, "
            f"{expected.workers} at once\n"
            f"estimate for this machine: {duration(expected.seconds)}, "
            f"{expected.memory_bytes / (1 << 30):.1f} GiB of memory, "
            f"up to {expected.disk_bytes / (1 << 20):,.0f} MiB of disk"
        ),
        soft_wrap=True,
    )


def _agreed(request: Request, console: Console) -> bool:
    if not request.profile.confirm or request.yes or not sys.stdin.isatty():
        return True
    return Confirm.ask("Start?", console=console, default=False)


def _publish(
    request: Request, evaluation: Evaluation, store: Store, console: Console
) -> ExitStatus:
    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    published = write_reports(store.load(evaluation.directory, say))
    summary = published.report.summary
    say(_score_line(request.name, summary))
    say(f"report:      {published.markdown}\n             {published.json}")
    if request.profile.table:
        current = _current(request.task, request.profile, request.heldout, evaluation.manifest)
        _, path = write_leaderboard(store, current, request.board_root, say)
        say(f"leaderboard: {path}")
    if evaluation.abandoned:
        print(
            f"touchstone: infrastructure failed for {', '.join(evaluation.abandoned)}; nothing is "
            f"held against the submission. Logs: {evaluation.directory / 'logs'}. The same command "
            f"tries again.",
            file=sys.stderr,
        )
        return ExitStatus.INFRASTRUCTURE
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
    task: Task, profile: Profile, heldout: HeldOut | None, store_root: Path, board_root: Path
) -> None:
    """Rebuild a board and print its first columns."""
    console = Console(highlight=False)
    store = Store(store_root.absolute())
    board, path = write_leaderboard(
        store, _current(task, profile, heldout, None), board_root, lambda line: print(line)
    )
    console.print(to_table(board))
    for each in board.left_out:
        console.print(Text(f"left out: {each}"), soft_wrap=True)
    console.print(Text(str(path)), soft_wrap=True)


def _current(
    task: Task, profile: Profile, heldout: HeldOut | None, manifest: Manifest | None
) -> Current:
    """What the board ranks: an evaluation of the visible environments does not change that."""
    if manifest is not None and manifest.heldout == "own":
        heldout_hash = manifest.heldout_sha256
    else:
        shown = heldout or task.load_heldout()
        heldout_hash = content_hash(shown) if shown.profiles.get(profile.name) else None
    return Current(
        task=task.name,
        task_version=task.version,
        profile=profile.name,
        profile_sha256=profile_hash(task, profile),
        heldout_sha256=heldout_hash,
    )
