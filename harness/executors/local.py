"""Runs as processes of this machine: so many workers at once, and one low-priority evaluator."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.executors.base import EvaluatorFailed, Executor, Job, JobEnd
from harness.layout import LOGS
from harness.task import REPOSITORY

EVALUATOR_PAUSES_SECONDS = (1.0, 5.0, 30.0, 120.0)
"""From one start to the next of an evaluator that ends by itself; then it is given up."""
EVALUATOR_STEADY_SECONDS = 60.0
"""One that has lived as long is not among those that cannot start: the pauses begin anew."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A worker waits for its learner or steps physics; neither gains from BLAS threads."""


class LocalExecutor(Executor):
    """Children of this process, tied to it by the kernel (see `harness.processes`)."""

    def __init__(self, evaluation: Path, key_file: Path, workers: int) -> None:
        self._evaluation = evaluation
        self._key_file = key_file
        self._workers = workers
        self._jobs: dict[Job, subprocess.Popen[bytes]] = {}
        self._evaluator: subprocess.Popen[bytes] | None = None
        self._evaluator_failures = 0
        self._evaluator_started = -math.inf
        self._logs = evaluation / LOGS
        self._logs.mkdir(parents=True, exist_ok=True)
        self._evaluator_log = self._logs / "evaluator.log"

    def free(self) -> int:
        return self._workers - len(self._jobs)

    def submit(self, job: Job) -> None:
        arguments = [str(self._evaluation), job.run_id, str(job.attempt)]
        self._jobs[job] = self._start("harness.training.run", arguments, self._log(job))

    def poll(self) -> list[JobEnd]:
        self._keep_evaluator()
        ended = [job for job, process in self._jobs.items() if process.poll() is not None]
        return [JobEnd(job, self._jobs.pop(job).returncode, _tail(self._log(job))) for job in ended]

    def close(self) -> None:
        processes = [*self._jobs.values()]
        if self._evaluator is not None:
            processes.append(self._evaluator)
        # Killed, not asked: everything that they have finished is on disk, and their guests are
        # tied to them.
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        self._jobs.clear()
        self._evaluator = None

    def _keep_evaluator(self) -> None:
        """Have one alive. Trainings go on without: what they export waits on disk."""
        now = time.monotonic()
        if self._evaluator is not None:
            if self._evaluator.poll() is None:
                return
            self._evaluator = None
            if now - self._evaluator_started > EVALUATOR_STEADY_SECONDS:
                self._evaluator_failures = 0
            self._evaluator_failures += 1
        if self._evaluator_failures > len(EVALUATOR_PAUSES_SECONDS):
            if not self._jobs:
                raise EvaluatorFailed(
                    f"the evaluator ended {self._evaluator_failures} times; "
                    f"it last said: {_tail(self._evaluator_log)}"
                )
            return
        pauses = (0.0, *EVALUATOR_PAUSES_SECONDS)
        if now >= self._evaluator_started + pauses[self._evaluator_failures]:
            arguments = [str(self._evaluation), str(self._key_file)]
            self._evaluator = self._start(
                "harness.training.evaluator", arguments, self._evaluator_log
            )
            self._evaluator_started = now

    def _start(self, module: str, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments, str(os.getpid())],
                cwd=self._logs,
                env=os.environ | _ONE_THREAD | {"PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                # Ctrl-C is for the harness alone, which then ends its workers.
                start_new_session=True,
            )

    def _log(self, job: Job) -> Path:
        return self._logs / f"{job.run_id}-{job.attempt}.log"


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace").strip()[-1000:]
    except OSError:
        return ""
