"""The directory in which one attempt at a run is made: who writes which file, and when.

    lock                 held by the worker as long as it or its learner lives
    progress.json        the worker's, for whoever watches; never resumed from
    learner.log          what the learner printed, its first MiB
    metrics.csv          what the learner logged; shown to people, never scored
    exports/<step>.policy   artefacts, fsynced, opaque
    training.json        written once, when training has ended: from then on it is not run again
    evaluations/<step>.json, final.json   the evaluator's, one for each artefact
    trace.npz            seed indices and actions of the final evaluation
    actor.log            what the last actor printed

A file is there whole or not at all. Resuming looks at files alone: no training.json means that the
attempt starts anew.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from harness.files import write_briefly, write_durably
from harness.records import Progress, Scored, Training

_LOCK_PATIENCE_SECONDS = 15.0


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
            if path == self._lock:
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
        """A scored artefact of the curve is not needed again; the final one is kept."""
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
        except FileNotFoundError as error:
            if not self._training.exists():
                return None
            raise self._set_aside(f"{error}") from error
        except (ValidationError, ValueError) as error:
            raise self._set_aside(f"{error}") from error
        return training

    def has_training(self) -> bool:
        """Whether training has ended, without reading how."""
        return self._training.exists()

    def write_curve_point(self, step: int, scored: Scored) -> None:
        write_durably(self._curve_point(step), scored.model_dump_json().encode())

    def write_final(self, scored: Scored) -> None:
        write_durably(self._final, scored.model_dump_json().encode())

    def read_curve(self) -> dict[int, Scored]:
        """Curve points by step, ascending. Damaged ones are removed, and so scored again."""
        points = {
            int(path.stem): self._read_scored(path)
            for path in sorted(self.evaluations.glob("[0-9]*.json"))
        }
        return {step: point for step, point in points.items() if point is not None}

    def read_newest_curve_point(self) -> Scored | None:
        newest = max(self.evaluations.glob("[0-9]*.json"), default=None)
        return None if newest is None else self._read_scored(newest)

    def read_final(self) -> Scored | None:
        return self._read_scored(self._final) if self._final.exists() else None

    def has_failed_evaluation(self) -> bool:
        """Is there a curve point that failed? Cheap enough for a worker to ask twice a second."""
        return (self.directory / "evaluation-failed").exists()

    def mark_failed_evaluation(self) -> None:
        write_durably(self.directory / "evaluation-failed", b"")

    def write_progress(self, progress: Progress) -> None:
        write_briefly(self._progress, progress.model_dump_json().encode())

    def read_progress(self) -> Progress | None:
        try:
            return Progress.model_validate_json(self._progress.read_bytes())
        except (OSError, ValidationError):
            return None

    def _export(self, step: int) -> Path:
        return self.exports / f"{step:010d}.policy"

    def _curve_point(self, step: int) -> Path:
        return self.evaluations / f"{step:010d}.json"

    @staticmethod
    def _read_scored(path: Path) -> Scored | None:
        try:
            return Scored.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            path.unlink(missing_ok=True)
            return None

    def _set_aside(self, reason: str) -> Damaged:
        aside = self._training.with_name(f"training.json.damaged-{os.getpid()}-{time.time_ns()}")
        self._training.rename(aside)
        return Damaged(f"{self._training}: {reason}; set aside as {aside.name}")
