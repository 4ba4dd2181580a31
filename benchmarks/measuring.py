"""What all contenders of the speed benchmark share, so that each is measured in the same way.

A contender is a process of its own. It trains TD3 with the numbers of the task, and its clock reads
once after each step of the environment, wherever the learner stands in its loop: between two
readings lie one step, one action and one update. It holds where learning begins until it is told
to go on, so that two that run at once learn at once; what comes before is not measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.task import REPOSITORY

TASK = "rl-offpolicy-continuous"
PROFILE = "full"
"""Whose numbers hold, but for how many steps there are."""
ENVIRONMENT = "HalfCheetah-v4"
TD3_FILE = REPOSITORY / "reference_algorithms" / TASK / "td3.py"
READY = "ready"


class Window(NamedTuple):
    """Which steps of a training are measured."""

    learning_starts: int
    """Random steps before the first update."""
    settling: int
    """Learning steps before the measured ones: the first are slow, in any program."""
    steps: int
    """Measured ones."""

    @property
    def first(self) -> int:
        """The step after which the clock is read for the first time."""
        return self.learning_starts + self.settling

    @property
    def total(self) -> int:
        return self.first + self.steps


class Stopwatch:
    """Reads the clock after each measured step; `tick` is called after every step."""

    def __init__(self, window: Window) -> None:
        self.times: list[float] = []
        """Seconds of the machine's monotonic clock: comparable between processes."""
        self._window = window
        self._step = 0

    def tick(self) -> None:
        self._step += 1
        if self._step == self._window.learning_starts:
            print(READY, flush=True)
            sys.stdin.readline()
        if self._step >= self._window.first:
            self.times.append(time.perf_counter())

    def result(self, **more: Any) -> dict[str, Any]:
        """What a contender prints: `times` has one reading more than there are steps."""
        steps = len(self.times) - 1
        if steps != self._window.steps:
            raise ValueError(f"{steps} steps were measured, not {self._window.steps}")
        return {
            "steps": steps,
            "seconds": self.times[-1] - self.times[0],
            "times": self.times,
        } | more


class Asked(NamedTuple):
    """What a contender is asked for on its command line."""

    contender: str
    window: Window
    seed: int
    numerics: Mapping[str, str]


def command_line(asked: Asked) -> list[str]:
    """Arguments that `parse` reads."""
    return [
        asked.contender,
        *map(str, (*asked.window, asked.seed)),
        json.dumps(dict(asked.numerics)),
    ]


def parse(description: str) -> Asked:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("contender")
    for name in (*Window._fields, "seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("numerics", type=json.loads)
    given = parser.parse_args()
    window = Window(given.learning_starts, given.settling, given.steps)
    return Asked(given.contender, window, given.seed, given.numerics)
