"""Serves the training environment to one learner, in lock step, and counts every step.

The host decides what comes next: a step that it draws, a step, or an export. A learner that sends
anything else has ended its run. So a step more than the budget, a reset in the middle of an
episode or an update-free shortcut have no message to be asked with.
"""

import csv
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from harness.guest_config import guest_config
from harness.guest_session import GuestSession
from harness.records import Manifest, Plan, Progress
from harness.task import Environment, OfflineDataset
from harness.training.environments import family_of
from harness.training.workbench import Workbench
from harness.verdict import EvaluationFailed, GuestFault
from sandbox import wire
from sandbox.base import GUEST_DATA
from sandbox.wire import MEBIBYTE, Frame, Kind, Malformed

T = TypeVar("T")

PROGRESS_SECONDS = 0.5
_SPEED_WINDOW = 10  # entries of progress over which a speed is measured


class EnvironmentHost:
    """One learner's training from its first frame to its last artefact.

    `phase`, `step`, `exports` and `episode_returns` are true at any moment, so that whoever catches
    an exception of `serve` can say where it happened.
    """

    def __init__(
        self,
        session: GuestSession,
        environment: Environment,
        plan: Plan,
        seed: int,
        source: str,
        manifest: Manifest,
        bench: Workbench,
    ) -> None:
        self.phase = "importing the source"
        self.step = 0
        self.parameters: int | None = None
        self.exports: list[int] = []
        self._session = session
        self._environment = environment
        self._plan = plan
        self._profile = plan.profile
        self._seed = seed
        self._source = source
        self._manifest = manifest
        self._bench = bench
        self._episodes = family_of(environment).training(environment, plan, seed)
        self._progress: deque[tuple[float, int]] = deque(maxlen=_SPEED_WINDOW)
        self._next_progress = 0.0
        self._logged_step = -1

    @property
    def settings(self) -> dict[str, str | int | float | bool]:
        return dict(self._episodes.settings)

    @property
    def episode_returns(self) -> list[float]:
        """Raw returns of the training episodes that ended, in order."""
        return self._episodes.returns

    def serve(self) -> bytes:
        """Train to the end; returns the final artefact, which is fsynced by then.

        Raises GuestFault or Vanished where the guest fails, EvaluationFailed where the evaluator
        has given a verdict meanwhile.
        """
        with self._bench.metrics.open("w", newline="", encoding="utf-8") as file:
            self._metrics_file = file
            self._metrics = csv.writer(file)
            self._metrics.writerow(["step", "name", "value"])
            try:
                return self._serve()
            finally:
                self._episodes.close()

    def _serve(self) -> bytes:
        limits = self._profile.limits
        self._note_progress(force=True)
        self._session.configure(
            guest_config(
                "learner",
                self._environment,
                self._plan,
                self._seed,
                self._source,
                self._manifest.device,
                self._manifest.numerics,
                GUEST_DATA if isinstance(self._environment, OfflineDataset) else "",
            )
        )
        self._session.await_({Kind.IMPORTED}, limits.start_seconds)
        self.phase = "constructing the algorithm"
        self._note_progress(force=True)
        built = self._session.await_({Kind.BUILT}, limits.start_seconds)
        self.parameters = _decoded(wire.decode_count, built.payload)
        self.phase = "training"

        answer: tuple[Kind, bytes] = (Kind.OBSERVATION, self._episodes.begin())
        due = set(self._profile.export_steps())
        while True:
            if self.step in due:
                due.remove(self.step)
                artefact = self._ask(answer, Kind.EXPORT).payload
                self._bench.write_export(self.step, artefact)
                self.exports.append(self.step)
                self._note_progress(force=True)
                if self.step == self._profile.total_timesteps:
                    return artefact
                answer = (Kind.CONTINUE, b"")
            answer = (Kind.TRANSITION, self._execute(answer))
            self._note_progress()

    def _execute(self, answer: tuple[Kind, bytes]) -> bytes:
        """Get the next action, or draw it where that is the host's, and take one step with it."""
        if self._episodes.host_draws:
            self._ask(answer, Kind.DRAW)
            action = self._episodes.draw()
        else:
            action = _decoded(self._episodes.decode, self._ask(answer, Kind.ACTION).payload)
        transition = self._episodes.take(action)
        self.step += 1
        return transition

    def _ask(self, answer: tuple[Kind, bytes], due: Kind) -> Frame:
        frame = self._session.ask(*answer, {due, Kind.METRICS})
        if frame.kind is Kind.METRICS:
            # Metrics have no answer, so nothing but this rule paces them: once a step at most.
            if self._logged_step == self.step:
                raise GuestFault("protocol-violation", "it sent METRICS twice for one step")
            self._logged_step = self.step
            self._write_metrics(_decoded(wire.decode_metrics, frame.payload))
            frame = self._session.await_({due}, self._profile.limits.frame_seconds)
        return frame

    def _write_metrics(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._metrics.writerow([self.step, name, repr(value)])
        written, allowed = self._metrics_file.tell(), self._profile.limits.output_mib * MEBIBYTE
        if written > allowed:
            raise GuestFault(
                "too-much-output",
                f"metrics: {written:,} bytes of {allowed:,} allowed",
                limit="metrics",
                allowed=allowed,
                measured=written,
            )

    def _note_progress(self, force: bool = False) -> None:
        now = time.monotonic()
        if now < self._next_progress and not force:
            return
        self._next_progress = now + PROGRESS_SECONDS
        self._progress.append((now, self.step))
        (then, step_then) = self._progress[0]
        self._bench.write_progress(
            Progress(
                phase=self.phase,
                step=self.step,
                total=self._profile.total_timesteps,
                steps_per_second=(self.step - step_then) / max(now - then, 1e-9),
                last_return=self.episode_returns[-1] if self.episode_returns else None,
                updated=time.time(),
            )
        )
        if self._bench.has_failed_evaluation():
            raise EvaluationFailed


def _decoded(decode: Callable[..., T], *arguments: object) -> T:
    try:
        return decode(*arguments)
    except Malformed as error:
        raise GuestFault("protocol-violation", f"it {error}") from error
