"""Scores artefacts: steps the evaluation environments itself and asks a fresh actor for actions.

`python -m harness.training.evaluator EVALUATION KEY PARENT` is the one low-priority evaluator that
an evaluation has on a machine: it watches the runs and scores what they export, one actor at a
time, until it is ended; of a run the oldest step first, and first those runs for whose environment
it has a pool. The final evaluation of a run begins when its learner is
dead.
"""

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.files import sync_directory
from harness.guest_config import guest_config
from harness.guest_session import GuestSession
from harness.keys import Purpose, evaluation_seed, load_key
from harness.layout import (
    RECORD,
    attempt_directory,
    attempts,
    read_manifest,
    read_plan,
    read_source,
)
from harness.machine import provenance
from harness.numerics import variables
from harness.processes import die_with_parent
from harness.records import (
    Evaluation,
    ExportMean,
    Manifest,
    Plan,
    PlannedRun,
    Scored,
    SecondEvaluation,
)
from harness.task import Environment
from harness.training.environments import POOL_SIZE, EvaluatedEnvironment, Start, family_of
from harness.training.run import EXIT_INFRASTRUCTURE, guest_limits
from harness.training.workbench import Damaged, Workbench
from harness.verdict import (
    GuestFault,
    InfrastructureError,
    Vanished,
    answerable,
    settle,
)
from sandbox import wire
from sandbox.base import Sandbox, SandboxError, load_backend
from sandbox.wire import Frame, Kind

NICENESS = 10
POLL_SECONDS = 0.2


class Pool:
    """At most POOL_SIZE environments of one kind, kept from one evaluation to the next."""

    def __init__(self) -> None:
        self._what: tuple[Environment, bool] | None = None
        self._kept: list[EvaluatedEnvironment] = []

    def holds(self, environment: Environment) -> bool:
        """Whether it has environments of that kind now: making others may take seconds."""
        return self._what is not None and self._what[0] == environment

    def take(
        self, environment: Environment, second: bool, count: int
    ) -> list[EvaluatedEnvironment]:
        """So many environments. `second`: in the settings of a second evaluation."""
        if (environment, second) != self._what:
            for each in self._kept:
                each.close()
            self._kept, self._what = [], (environment, second)
        while len(self._kept) < count:
            self._kept.append(family_of(environment).evaluated(environment, second))
        return self._kept[:count]


class Episodes(NamedTuple):
    """What an actor did. Index = episode, in the order of its starts."""

    returns: list[float]
    lengths: list[int]
    stopped: list[bool]
    """Whether we ended it, at its longest."""
    actions: list[NDArray[Any]]
    """float32 (length, A) each, or int32 (length,), as executed."""


class Asked(Protocol):
    """Whoever answers observations with actions: a guest session."""

    def ask(self, kind: Kind, payload: bytes, expected: set[Kind]) -> Frame: ...


class Acting:
    """One evaluation in progress. `answers` is true at any moment, for a verdict's step."""

    def __init__(
        self,
        session: Asked,
        environments: Sequence[EvaluatedEnvironment],
        environment: Environment,
    ) -> None:
        self.answers = 0
        self._session = session
        self._environments = environments
        self._environment = environment
        self._family = family_of(environment)

    def play(self, starts: Sequence[Start]) -> Episodes:
        """Play one episode a start and count every one.

        Environment i of n plays the episodes i, i + n, i + 2n, ...: they are assigned before they
        start, so that short episodes are not favoured.
        """
        count = len(self._environments)
        returns, lengths = [0.0] * len(starts), [0] * len(starts)
        stopped = [False] * len(starts)
        actions: list[list[NDArray[Any]]] = [[] for _ in starts]
        playing = {slot: slot for slot in range(min(count, len(starts)))}
        obs = {slot: self._environments[slot].reset(starts[slot]) for slot in playing}
        while playing:
            slots = list(playing)
            answer = self._act(np.stack([obs[slot] for slot in slots]))
            for slot, raw in zip(slots, answer, strict=True):
                environment, episode = self._environments[slot], playing[slot]
                action = environment.clip(raw)
                actions[episode].append(action)
                obs[slot], over = environment.step(action)
                if over:
                    returns[episode] = environment.episode_return
                    lengths[episode] = environment.episode_length
                    stopped[episode] = environment.stopped
                    following = episode + count
                    if following < len(starts):
                        playing[slot] = following
                        obs[slot] = environment.reset(starts[following])
                    else:
                        del playing[slot]
        return Episodes(returns, lengths, stopped, [np.stack(each) for each in actions])

    def _act(self, observations: NDArray[Any]) -> NDArray[Any]:
        frame = self._session.ask(Kind.OBSERVATIONS, observations.tobytes(), {Kind.ACTIONS})
        try:
            actions = self._family.decode_actions(
                self._environment, frame.payload, len(observations)
            )
        except wire.Malformed as error:
            raise GuestFault("protocol-violation", f"it {error}") from error
        self.answers += 1
        return actions


class Evaluator:
    """Scores the artefacts of one evaluation's runs."""

    def __init__(self, directory: Path, key: bytes) -> None:
        self._directory = directory
        self._key = key
        self._manifest: Manifest = read_manifest(directory)
        self._plan: Plan = read_plan(directory)
        self._source = read_source(directory, self._manifest).decode()
        self._sandbox: Sandbox = load_backend(self._manifest.sandbox)
        self._provenance = provenance(
            self._sandbox.describe(), self._manifest.device, self._manifest.numerics
        )
        self._pool = Pool()

    def work(self) -> bool:
        """Score one artefact, if there is one; whether there was.

        First what can be played in the environments that are there: making others may take long.
        """
        open_runs = list(self._benches())
        here = [each for each in open_runs if self._has_environments_of(each[0])]
        return self._work_on(here) or self._work_on(open_runs)

    def _work_on(self, open_runs: Sequence[tuple[PlannedRun, Workbench]]) -> bool:
        for run, bench in open_runs:
            step = next_export(bench)
            if step is not None and self._score_curve_point(run, bench, step):
                return True
        for run, bench in open_runs:
            if self._is_due(bench):
                self._score_final(run, bench)
                return True
        return False

    def _benches(self) -> Iterator[tuple[PlannedRun, Workbench]]:
        """Of the runs that have begun and have no record."""
        for run in self._manifest.runs:
            begun = attempts(self._directory, run.id)
            if begun:
                last = attempt_directory(self._directory, run.id, begun[-1])
                if not (last / RECORD).exists():
                    yield run, Workbench(last)

    def _has_environments_of(self, run: PlannedRun) -> bool:
        return self._pool.holds(self._plan.planned(run.environment).environment)

    @staticmethod
    def _is_due(bench: Workbench) -> bool:
        """Whether what it exported is to be scored for good, its learner being dead."""
        if not bench.worker_gone() or bench.read_final() is not None:
            return False
        try:
            training = bench.read_training()
        except Damaged:
            return False  # The harness notices too, and has the run trained again.
        if training is None or training.verdict is not None:
            return False
        return not bench.has_failed_evaluation()

    def _score_curve_point(self, run: PlannedRun, bench: Workbench, step: int) -> bool:
        """False where the run is being started again, and the artefact is gone or another's."""
        artefact = _current_export(bench, step)
        if artefact is None:
            return False
        episodes = self._plan.profile.eval_episodes
        scored, _ = self._score(run, bench, step, artefact, "curve", episodes)
        if _current_export(bench, step) != artefact:
            return False
        bench.write_curve_point(step, scored)
        return True

    def _score_final(self, run: PlannedRun, bench: Workbench) -> None:
        """Every export that counts, each from starts of its own; then the second evaluation.

        An actor that fails with one of them, fails.
        """
        count, steps = self._plan.profile.final_episodes, self._plan.profile.final_steps()
        evaluations: list[Evaluation] = []
        played: list[Episodes] = []
        for number, step in enumerate(steps):
            artefact = bench.read_export(step)
            first = number * count
            scored, episodes = self._score(run, bench, step, artefact, "final", count, first)
            if scored.evaluation is None or episodes is None:
                bench.write_final(scored)
                return
            evaluations.append(scored.evaluation)
            played.append(episodes)
        if len(steps) > 1:
            scored = scored.model_copy(update={"evaluation": _together(evaluations)})
        scored = self._with_second(scored, run, bench, steps[-1], artefact, count)
        if scored.verdict is None:
            digest = _write_trace(bench.trace, steps, played)
            scored = scored.model_copy(update={"trace_sha256": digest})
        bench.write_final(scored)

    def _with_second(
        self,
        first: Scored,
        run: PlannedRun,
        bench: Workbench,
        step: int,
        artefact: bytes,
        count: int,
    ) -> Scored:
        """With the second evaluation of a task that has one; an actor that fails there, fails."""
        environment = self._plan.planned(run.environment).environment
        differs = family_of(environment).second(environment)
        if differs is None:
            return first
        again, _ = self._score(run, bench, step, artefact, "second", count)
        if again.evaluation is None:
            return again
        second = SecondEvaluation(how=differs.how, floor=differs.floor, evaluation=again.evaluation)
        return first.model_copy(update={"second": second})

    def _score(
        self,
        run: PlannedRun,
        bench: Workbench,
        step: int,
        artefact: bytes,
        purpose: Purpose,
        count: int,
        first: int = 0,
    ) -> tuple[Scored, Episodes | None]:
        """`count` episodes, from the starts numbered `first` on."""
        environment = self._plan.planned(run.environment).environment
        limits = self._plan.profile.limits
        slots = min(POOL_SIZE, count)
        answers = -(-count // slots) * environment.time_limit

        def seed(purpose: Purpose, index: int) -> int:
            manifest = self._manifest
            return evaluation_seed(
                self._key,
                manifest.task,
                manifest.task_version,
                run.environment,
                run.seed,
                purpose,
                index,
            )

        config = guest_config(
            "actor",
            environment,
            self._plan,
            seed("actor", 0),
            self._source,
            self._manifest.device,
            self._manifest.numerics,
        )
        differs = family_of(environment).second(environment) if purpose == "second" else None
        export = f"the export of step {step}" + (f" with {differs.how}" if differs else "")
        phase = f"importing the source to evaluate {export}"
        acting: Acting | None = None
        # Before a guest is there: what fails here is no fault of its.
        pool = self._pool.take(environment, purpose == "second", slots)
        with GuestSession(
            self._sandbox,
            guest_limits(self._plan, 0),
            bench.actor_log,
            variables(self._manifest.numerics),
            wire.actor_caps(environment.action_bytes, slots),
            limits.frame_seconds,
            2 * limits.start_seconds,
        ) as session:
            try:
                with answerable():
                    session.configure(config)
                    session.give(Kind.ARTEFACT, artefact)
                    session.await_({Kind.IMPORTED}, limits.start_seconds)
                    phase = f"loading {export}"
                    session.await_({Kind.READY}, limits.start_seconds)
                    session.restart_clock(
                        answers * limits.acting_milliseconds / 1000,
                        "thinking time of the evaluation",
                    )
                    phase = f"acting with {export}"
                    acting = Acting(session, pool, environment)
                    starts = family_of(environment).starts(purpose, first + count, seed)
                    episodes = acting.play(starts[first:])
            except (GuestFault, Vanished) as fault:
                verdict = settle(
                    fault,
                    session.end_after(fault),
                    phase,
                    None if acting is None else acting.answers,
                    bench.actor_log,
                )
                return Scored(evaluation=None, verdict=verdict, provenance=self._provenance), None
            evaluation = Evaluation(
                step=step,
                returns=tuple(episodes.returns),
                lengths=tuple(episodes.lengths),
                mean=float(np.mean(episodes.returns)),
                thinking_seconds=session.thinking_seconds,
                stopped=sum(episodes.stopped),
                settings={} if purpose == "curve" else pool[0].settings,
            )
        return Scored(evaluation=evaluation, verdict=None, provenance=self._provenance), episodes


def next_export(bench: Workbench) -> int | None:
    """The earliest artefact of a run that has no curve point yet, unless an earlier one failed."""
    if bench.has_failed_evaluation():
        return None
    done = bench.evaluated_steps()
    return next((step for step in bench.exported_steps() if step not in done), None)


def _current_export(bench: Workbench, step: int) -> bytes | None:
    """None where a worker that starts the run again has just cleared its workbench."""
    try:
        return bench.read_export(step)
    except FileNotFoundError:
        return None


def _together(evaluations: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of several exports, ascending by step, all of whose episodes count alike."""
    returns = [each for one in evaluations for each in one.returns]
    return Evaluation(
        step=evaluations[-1].step,
        returns=tuple(returns),
        lengths=tuple(each for one in evaluations for each in one.lengths),
        mean=float(np.mean(returns)),
        thinking_seconds=sum(one.thinking_seconds for one in evaluations),
        stopped=sum(one.stopped for one in evaluations),
        settings=evaluations[-1].settings,
        by_export=tuple(ExportMean(step=one.step, mean=one.mean) for one in evaluations),
    )


def _write_trace(path: Path, steps: Sequence[int], played: Sequence[Episodes]) -> str:
    """Store the final evaluation's actions, enough to simulate it again; SHA-256 of the file.

    One line an episode, `steps` being those of the exports that played them, one after the other.
    """
    temporary = path.with_suffix(".tmp.npz")
    lengths = [each for episodes in played for each in episodes.lengths]
    np.savez_compressed(
        temporary,
        step=np.repeat(np.array(steps, dtype=np.int64), [len(each.lengths) for each in played]),
        seed_index=np.arange(len(lengths), dtype=np.int32),
        lengths=np.array(lengths, dtype=np.int32),
        actions=np.concatenate([each for episodes in played for each in episodes.actions]),
    )
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    temporary.replace(path)
    sync_directory(path.parent)
    return digest


def main(directory: Path, key_file: Path) -> int:
    """Score until the harness ends this process."""
    os.nice(NICENESS)
    try:
        evaluator = Evaluator(directory, load_key(key_file))
        while True:
            if not evaluator.work():
                time.sleep(POLL_SECONDS)
    except (InfrastructureError, SandboxError, OSError) as error:
        print(f"evaluator: {error}", file=sys.stderr)
        return EXIT_INFRASTRUCTURE


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
