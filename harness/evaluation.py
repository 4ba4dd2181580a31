"""The matrix of runs of one submission: begun once, resumable at any instant, run over an executor.

What holds here:
- the first start writes the manifest; a later one obeys it or is refused, naming the difference;
- a run that has a record is never run again; one whose training has ended is scored, not trained;
- a record is composed from files that are complete, and is written once;
- `infrastructure` is retried three times and never becomes a record: the same command tries again.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from harness import keys
from harness.executors.base import Executor, Job
from harness.files import write_durably
from harness.intake.forms.canonical import canonical_patch
from harness.intake.submission import Submission
from harness.layout import (
    LOCK,
    MANIFEST,
    PATCH,
    PLAN,
    SOURCE,
    SUBMISSION,
    attempt_directory,
    attempts,
    read_manifest,
)
from harness.manifest import Conditions, make_manifest, make_plan, obey
from harness.records import Evaluation as EvaluatedPolicy
from harness.records import Manifest, Plan, PlannedRun, Progress, Record, Verdict
from harness.results.store import Say, Store, read_record, write_record
from harness.training.evaluator import next_export
from harness.training.workbench import Damaged, Workbench

RETRY_PAUSES_SECONDS = (1.0, 10.0, 60.0)
"""Before each retry of a run that failed for infrastructure's reasons; then it is given up."""
POLL_SECONDS = 0.25


class Busy(Exception):
    """Another harness is at this evaluation; the message says which."""


class RunState(NamedTuple):
    """One run as a watcher sees it."""

    run: PlannedRun
    stage: Literal["waiting", "training", "evaluating", "ended", "infrastructure"]
    progress: Progress | None
    verdict: Verdict | None
    mean_return: float | None
    """Of the final evaluation, or of the newest point of the curve."""


class Watcher(Protocol):
    """Shows an evaluation while it runs."""

    def show(self, states: list[RunState]) -> None:
        """Called a few times a second."""

    def say(self, line: str) -> None:
        """Something that happened, once."""


class Unwritten(NamedTuple):
    """What a new evaluation will consist of once it is started."""

    accepted: Submission
    patch: bytes
    plan: Plan


class Evaluation:
    """One evaluation on disk, held by this process. Made by `begin`."""

    def __init__(
        self, directory: Path, manifest: Manifest, say: Say, unwritten: Unwritten | None = None
    ) -> None:
        self.directory = directory
        self.manifest = manifest
        self._unwritten = unwritten
        self._say = say
        self._records: dict[str, Record] = {}
        self._abandoned: set[str] = set()
        for run in manifest.runs:
            begun = attempts(directory, run.id)
            if begun:
                record = read_record(attempt_directory(directory, run.id, begun[-1]), say)
                if record is not None:
                    self._records[run.id] = record

    def start(self) -> None:
        """Write down what the evaluation is, if that is not done: from then on it exists."""
        if self._unwritten is None:
            return
        write_durably(self.directory / SOURCE, self._unwritten.accepted.source)
        write_durably(self.directory / SUBMISSION, self._unwritten.accepted.original)
        write_durably(self.directory / PATCH, self._unwritten.patch)
        write_durably(
            self.directory / PLAN, self._unwritten.plan.model_dump_json(indent=1).encode()
        )
        # Last: a kill before this leaves nothing that a resume would take for an evaluation.
        write_durably(self.directory / MANIFEST, self.manifest.model_dump_json(indent=1).encode())
        self._unwritten = None

    def forget(self) -> None:
        """Leave nothing behind, if it was not started."""
        if self._unwritten is not None:
            (self.directory / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is in it
                self.directory.rmdir()

    @property
    def finished(self) -> bool:
        """Whether every planned run has its record."""
        return len(self._records) == len(self.manifest.runs)

    @property
    def unfinished(self) -> int:
        """How many runs have no record yet."""
        return len(self.manifest.runs) - len(self._records)

    @property
    def abandoned(self) -> tuple[str, ...]:
        """Runs that failed for infrastructure's reasons until the retries were used up."""
        return tuple(sorted(self._abandoned))

    @property
    def unscored(self) -> int:
        """How many runs have ended without a score."""
        return sum(record.final is None for record in self._records.values())

    def rerun_unscored(self) -> None:
        """Append an attempt to every run that has ended without a score."""
        for run in [run for run, record in self._records.items() if record.final is None]:
            record = self._records.pop(run)
            following = attempt_directory(self.directory, run, record.attempt + 1)
            following.mkdir(parents=True, exist_ok=True)

    def run(self, executor: Executor, watcher: Watcher) -> None:
        """Bring every run to its record, or to the end of its retries. Closes the executor."""
        self.start()
        waiting = deque(run for run in self.manifest.runs if self._needs_training(run))
        at_work: dict[str, PlannedRun] = {}
        failures: Counter[str] = Counter()
        not_before: dict[str, float] = {}

        def again(run: PlannedRun, reason: str) -> None:
            """Before those that have not been tried yet: a retry does not wait for the set."""
            if failures[run.id] == len(RETRY_PAUSES_SECONDS):
                self._abandoned.add(run.id)
                watcher.say(f"{run.id}: given up: infrastructure: {reason}")
                return
            not_before[run.id] = time.monotonic() + RETRY_PAUSES_SECONDS[failures[run.id]]
            failures[run.id] += 1
            waiting.appendleft(run)
            watcher.say(f"{run.id}: infrastructure, runs again: {reason}")

        def next_run() -> PlannedRun | None:
            now = time.monotonic()
            return next((run for run in waiting if not_before.get(run.id, now) <= now), None)

        try:
            while True:
                for end in executor.poll():
                    run = at_work.pop(end.job.run_id)
                    # Whatever a worker says: a run whose training is on disk is not trained again.
                    if end.status != 0 and not self._bench(run).has_training():
                        again(run, end.message or f"its worker ended with status {end.status}")
                while executor.free() > 0 and (following := next_run()) is not None:
                    waiting.remove(following)
                    executor.submit(Job(following.id, self._attempt(following)))
                    at_work[following.id] = following
                for run in self._open_runs():
                    if run.id in at_work or run in waiting:
                        continue
                    if self._bench(run).has_training():
                        self._settle(run, watcher)
                    else:
                        again(run, "the end of its training is not on disk, or damaged")
                watcher.show(self.states(at_work.keys()))
                if not at_work and not waiting and not any(self._open_runs()):
                    return
                time.sleep(POLL_SECONDS)
        finally:
            executor.close()

    def states(self, at_work: Collection[str] = ()) -> list[RunState]:
        """Every run, in the order of the plan."""
        return [self._state(run, run.id in at_work) for run in self.manifest.runs]

    def _open_runs(self) -> Iterator[PlannedRun]:
        for run in self.manifest.runs:
            if run.id not in self._records and run.id not in self._abandoned:
                yield run

    def _attempt(self, run: PlannedRun) -> int:
        return (attempts(self.directory, run.id) or [1])[-1]

    def _bench(self, run: PlannedRun) -> Workbench:
        return Workbench(attempt_directory(self.directory, run.id, self._attempt(run)))

    def _needs_training(self, run: PlannedRun) -> bool:
        if run.id in self._records:
            return False
        try:
            return self._bench(run).read_training() is None
        except Damaged as error:
            self._say(f"{error}; the run is trained again")
            return True

    def _settle(self, run: PlannedRun, watcher: Watcher) -> None:
        """Write the record of a trained run, if all that belongs in it is there."""
        bench = self._bench(run)
        try:
            record = compose(self.manifest, run, self._attempt(run), bench)
        except Damaged as error:
            watcher.say(str(error))
            return
        if record is None:
            return
        write_record(bench.directory, record)
        self._records[run.id] = record
        for step in bench.exported_steps():
            if step != record.training.steps and step not in record.training.scored_sha256:
                bench.drop_export(step)
        if record.final is not None:
            what = "success rate in %" if record.training.data else "mean return"
            watcher.say(f"{run.id}: scored: {what} {record.final.mean:,.1f}")
        else:
            watcher.say(f"{run.id}: {record.verdict.kind}: {record.verdict.cause}")

    def _state(self, run: PlannedRun, at_work: bool) -> RunState:
        record = self._records.get(run.id)
        if record is not None:
            mean = None if record.final is None else record.final.mean
            return RunState(run, "ended", None, record.verdict, mean)
        if run.id in self._abandoned:
            return RunState(run, "infrastructure", None, None, None)
        bench = self._bench(run)
        point = bench.read_newest_curve_point()
        mean = point.evaluation.mean if point is not None and point.evaluation else None
        if at_work:
            return RunState(run, "training", bench.read_progress(), None, mean)
        trained = bench.has_training()
        return RunState(run, "evaluating" if trained else "waiting", None, None, mean)


def compose(manifest: Manifest, run: PlannedRun, attempt: int, bench: Workbench) -> Record | None:
    """The record of an attempt, or None while something that belongs in it is missing.

    The verdict does not depend on who was faster: the earliest export that cannot be scored
    decides, else how the training ended, else the final evaluation. Raises workbench.Damaged.
    """
    training = bench.read_training()
    if training is None:
        return None
    if next_export(bench) is not None:
        return None
    curve = bench.read_curve()
    if next_export(bench) is not None:
        return None  # a damaged point was set aside, and is scored again
    final = bench.read_final()
    failed = next((point.verdict for point in curve.values() if point.verdict is not None), None)
    evaluation: EvaluatedPolicy | None = None
    if failed is not None:
        verdict = failed
    elif training.verdict is not None:
        verdict = training.verdict
    elif final is None:
        return None
    elif final.verdict is not None:
        verdict = final.verdict
    else:
        evaluation = final.evaluation
        verdict = Verdict(
            kind="scored",
            cause="trained to the end and scored",
            advice="",
            phase="done",
            step=training.steps,
        )
    scorers = [*curve.values(), *([final] if final is not None else [])]
    return Record(
        evaluation=manifest.evaluation,
        task=manifest.task,
        task_version=manifest.task_version,
        profile=manifest.profile,
        source_sha256=manifest.source_sha256,
        environment=run.environment,
        heldout=run.heldout,
        seed=run.seed,
        attempt=attempt,
        verdict=verdict,
        final=evaluation,
        second=final.second if evaluation is not None and final is not None else None,
        curve=tuple(point.evaluation for point in curve.values() if point.evaluation is not None),
        training=training,
        evaluator=scorers[-1].provenance if scorers else None,
        trace_sha256=final.trace_sha256 if evaluation is not None and final is not None else None,
        recorded=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@contextmanager
def begin(
    conditions: Conditions, accepted: Submission, name: str, store: Store, say: Say
) -> Iterator[Evaluation]:
    """Prepare an evaluation, or take up one that was started, and hold its lock meanwhile.

    A new one exists once `start` or `run` is called. Raises Busy, ManifestDiffers, keys.KeyMissing,
    or OSError.
    """
    key = operator_key(store)
    fresh = make_manifest(conditions, accepted, name, keys.fingerprint(key))
    directory = store.directory(fresh.task, fresh.profile, fresh.evaluation)
    directory.mkdir(parents=True, exist_ok=True)
    with hold(directory / LOCK):
        if (directory / MANIFEST).exists():
            manifest = read_manifest(directory)
            evaluation = Evaluation(directory, manifest, say)
            obey(manifest, fresh, evaluation.finished)
        else:
            patch = canonical_patch(accepted.source, conditions.task)
            unwritten = Unwritten(accepted, patch, make_plan(conditions))
            evaluation = Evaluation(directory, fresh, say, unwritten)
        yield evaluation


def operator_key(store: Store) -> bytes:
    """The store's key, made on first use. Raises keys.KeyMissing once evaluations depend on it."""
    if not store.key_file.exists() and not store.has_evaluations():
        return keys.create_key(store.key_file)
    try:
        return keys.load_key(store.key_file)
    except keys.KeyMissing as error:
        raise keys.KeyMissing(
            f"{error}. The evaluations in {store.root} were seeded with it: put the file back, or "
            f"begin a new store (STORE=directory)"
        ) from error


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a lock file until the context ends or this process does. Raises Busy that says who."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "a harness that has not said its name yet"
            raise Busy(f"{path.parent} is held by {holder}") from error
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        yield
        file.truncate(0)
