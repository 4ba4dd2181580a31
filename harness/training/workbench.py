"""The directory in which one attempt at a run is made: who writes which file, and when.

    lock                 held by the worker as long as it or its learner lives
    progress.json        the worker's, for whoever watches; never resumed from
    learner.log          what the learner printed, its first MiB
    metrics.csv          what the learner logged; shown to people, never scored
    exports/<step>.policy   artefacts, opaque; kept until the run has its record
    training.json        written once, when training has ended: from then on it is not run again
    evaluations/<step>.json   the evaluator's: a point of the curve; .failed.json: a verdict
    final.json  trace.npz   the evaluator's: the final evaluation, its seed indices and actions
    actor.log            what the last actor printed

All but the logs, the metrics and the progress are there whole or not at all, and fsynced. Resuming
looks at files alone: no training.json means that the attempt starts anew. A file of ours that
cannot be what was written is set aside (`*.damaged-*`), and what it held is made again.
"""

import contextlib
import fcntl
import hashlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from harness.files import write_briefly, write_durably
from harness.records import Progress, Scored, Training

_LOCK_PATIENCE_SECONDS = 15.0
_DIGITS = 10  # of a step in a file's name, so that names sort as steps do
_FAILED = ".failed.json"
_DAMAGED = ".damaged-"


class Damaged(Exception):
    """A file of ours that cannot be what was written; it has been set aside."""


class Workbench:
    """Paths of one attempt, and the reading and writing of what lies there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.exports = directory / "exports"
        self.evaluations = directory / "evaluations"
        self.trace = directory / "trace.npz"
        self.learner_log = directory / "learner.log"
        self.actor_log = directory / "actor.log"
        self.metrics = directory / "metrics.csv"
        self._training = directory / "training.json"
        self._final = directory / "final.json"
        self._progress = directory / "progress.json"
        self._lock = directory / "lock"

    @contextmanager
    def worker_lock(self) -> Iterator[None]:
        """Held while a worker is at this attempt. Waits for one that is just being killed.

        Raises TimeoutError where another worker keeps it.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"another worker is at {self.directory}") from error
                    time.sleep(0.05)
            yield

    def worker_gone(self) -> bool:
        """Whether no worker, and so no learner, is alive here."""
        try:
            with self._lock.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        return True

    def clear(self) -> None:
        """Remove what an attempt that did not end has left. Only under the lock."""
        for path in self.directory.iterdir():
            if path == self._lock or _DAMAGED in path.name:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self.exports.mkdir()
        self.evaluations.mkdir()

    # --- artefacts --------------------------------------------------------------------------------

    def write_export(self, step: int, artefact: bytes) -> None:
        write_durably(self._export(step), artefact)

    def read_export(self, step: int) -> bytes:
        return self._export(step).read_bytes()

    def drop_export(self, step: int) -> None:
        """Once the run has its record, the curve's artefacts are not needed again."""
        self._export(step).unlink(missing_ok=True)

    def exported_steps(self) -> list[int]:
        """Steps of the artefacts on disk, ascending."""
        return sorted(int(path.stem) for path in self.exports.glob("[0-9]*.policy"))

    # --- results ----------------------------------------------------------------------------------

    def write_training(self, training: Training) -> None:
        write_durably(self._training, training.model_dump_json(indent=1).encode())

    def read_training(self) -> Training | None:
        """None where training has not ended.

        Raises Damaged, also where the final artefact is not the one that was trained.
        """
        try:
            training = Training.model_validate_json(self._training.read_bytes())
            if training.verdict is None:
                artefact = self.read_export(training.steps)
                if hashlib.sha256(artefact).hexdigest() != training.policy_sha256:
                    raise ValueError("the final artefact is not the one that was trained")
                for step, digest in training.scored_sha256.items():
                    if hashlib.sha256(self.read_export(step)).hexdigest() != digest:
                        raise ValueError(
                            f"the artefact of step {step} is not the one that was made"
                        )
        except FileNotFoundError as error:
            if not self._training.exists():
                return None
            raise Damaged(self._damage(error)) from error
        except ValueError as error:
            raise Damaged(self._damage(error)) from error
        return training

    def _damage(self, error: Exception) -> str:
        aside = _set_aside(self._training)
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        return f"{self._training}: {first_line}; set aside as {aside.name}"

    def has_training(self) -> bool:
        """Whether training has ended, without reading how."""
        return self._training.exists()

    def write_curve_point(self, step: int, scored: Scored) -> None:
        suffix = ".json" if scored.verdict is None else _FAILED
        write_durably(
            self.evaluations / f"{step:0{_DIGITS}d}{suffix}", scored.model_dump_json().encode()
        )

    def write_final(self, scored: Scored) -> None:
        write_durably(self._final, scored.model_dump_json().encode())

    def evaluated_steps(self) -> set[int]:
        """Steps of the artefacts that have a curve point, or a verdict in its place."""
        return {_step(path) for path in self.evaluations.glob("[0-9]*.json")}

    def has_failed_evaluation(self) -> bool:
        """Whether an artefact earned a verdict. Cheap enough for a worker to ask twice a second."""
        return next(self.evaluations.glob(f"*{_FAILED}"), None) is not None

    def read_curve(self) -> dict[int, Scored]:
        """Curve points by step, ascending. Damaged ones are set aside, and so scored again."""
        points = {
            _step(path): self._read_scored(path)
            for path in sorted(self.evaluations.glob("[0-9]*.json"))
        }
        return {step: point for step, point in points.items() if point is not None}

    def read_newest_curve_point(self) -> Scored | None:
        newest = max(self.evaluations.glob("[0-9]*.json"), default=None)
        return None if newest is None else self._read_scored(newest)

    def read_final(self) -> Scored | None:
        return self._read_scored(self._final) if self._final.exists() else None

    def write_progress(self, progress: Progress) -> None:
        """A training of hours does not end because this could not be written."""
        with contextlib.suppress(OSError):
            write_briefly(self._progress, progress.model_dump_json().encode())

    def read_progress(self) -> Progress | None:
        try:
            return Progress.model_validate_json(self._progress.read_bytes())
        except (OSError, ValidationError):
            return None

    def _export(self, step: int) -> Path:
        return self.exports / f"{step:0{_DIGITS}d}.policy"

    @staticmethod
    def _read_scored(path: Path) -> Scored | None:
        try:
            return Scored.model_validate_json(path.read_bytes())
        except ValidationError:
            _set_aside(path)
            return None


def _step(path: Path) -> int:
    return int(path.name[:_DIGITS])


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}{_DAMAGED}{time.time_ns()}")
    path.rename(aside)
    return aside
