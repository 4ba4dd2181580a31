"""What an executor is: a place where workers and evaluators run.

An executor is given one evaluation's directory and starts programs that work in it. It knows
nothing of tasks, submissions or scores, and a job carries no state: the directory holds it all, so
that a job may be started again anywhere that sees the directory.

The evaluation calls, from one thread:

1. `submit(job)` whenever `free()` is above 0;
2. `poll()` a few times a second: it never blocks, reports each ended job once, and keeps one
   evaluator alive on every machine that it uses;
3. `close()` once, always: when it returns, nothing that the executor started is alive.

Nothing that an executor started outlives the process that owns it, not even through SIGKILL.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple


class Job(NamedTuple):
    """One attempt at one run: `python -m harness.training.run EVALUATION RUN ATTEMPT PARENT`."""

    run_id: str
    attempt: int


class JobEnd(NamedTuple):
    """How a job's process ended."""

    job: Job
    status: int
    """0: `training.json` is written. Anything else: infrastructure, and the job may run again."""
    message: str
    """What it said on stderr, for a person."""


class EvaluatorFailed(Exception):
    """The evaluator ends by itself again and again, and nothing else is at work any more."""


class Executor(ABC):
    """A place where the runs of one evaluation run."""

    @abstractmethod
    def free(self) -> int:
        """How many more jobs may be submitted now."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Start a job. Raises nothing for a job that fails: `poll` reports it."""

    @abstractmethod
    def poll(self) -> list[JobEnd]:
        """The jobs that have ended since the last call. Raises EvaluatorFailed."""

    @abstractmethod
    def close(self) -> None:
        """End everything that was started."""
