"""What all contenders of the speed benchmark share, so that each is measured in the same way.

A contender is a process of its own. It trains an algorithm with the numbers of its task, and its
clock reads once after each step of the environment, wherever the learner stands in its loop:
between two readings lie one step, one action and the updates that a step brings. Offline, a step is
a gradient step, and the clock reads when the rows of its batch are drawn. It holds where learning
begins until it is told to go on, so that two that run at once learn at once; what comes before is
not measured.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.task import REPOSITORY

PROFILE = "full"
"""Whose numbers hold, but for how many steps there are."""
READY = "ready"


class Subject(NamedTuple):
    """Whose steps are counted: an algorithm of a task, in one environment."""

    task: str
    algorithm: str
    """As people call it."""
    environment: str
    episodes: tuple[str, str]
    """What steps the environment in a run of the harness: a module and the class in it."""

    @property
    def source(self) -> Path:
        """The algorithm as one hands it in."""
        directory = REPOSITORY / "reference_algorithms" / self.task
        return directory / f"{self.algorithm.lower()}.py"


TD3 = Subject(
    "rl-offpolicy-continuous",
    "TD3",
    "HalfCheetah-v4",
    ("harness.training.continuous_control", "VectorEpisodes"),
)
DQN = Subject(
    "rl-value-atari",
    "DQN",
    "BreakoutNoFrameskip-v4",
    ("harness.training.atari", "PixelEpisodes"),
)
FQL = Subject(
    "rl-offline-policy",
    "FQL",
    "cube-single-play-singletask-v0",
    ("harness.training.offline", "Batches"),
)
SUBJECTS: Mapping[str, Subject] = {each.task: each for each in (TD3, DQN, FQL)}


class Window(NamedTuple):
    """Which steps of a training are measured."""

    learning_starts: int
    """Random steps before the first update; offline there are none."""
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

    def flaw(self, constants: Mapping[str, int | float]) -> str:
        """Why contenders with these constants cannot be compared in it; empty where they can."""
        cadence = int(constants.get("train_frequency", 1))
        if any(each % cadence for each in self):
            return f"an update comes every {cadence} steps, so all three are multiples of {cadence}"
        if constants.get("exploration_fraction", 0) * self.total > self.first:
            return "epsilon has not fallen to its end where the measured steps begin"
        return ""


class Stopwatch:
    """Reads the clock after each measured step; `tick` is called after every step."""

    def __init__(self, window: Window) -> None:
        self.times: list[float] = []
        """Seconds of the machine's monotonic clock: comparable between processes."""
        self._window = window
        self._step = 0

    def tick(self) -> None:
        self._step += 1
        if self._step == max(self._window.learning_starts, 1):
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
    task: str
    window: Window
    seed: int
    numerics: Mapping[str, str]
    dataset: Path | None = None
    """Of made-up rows, where the task is offline."""

    @property
    def subject(self) -> Subject:
        return SUBJECTS[self.task]


def command_line(asked: Asked) -> list[str]:
    """Arguments that `parse` reads."""
    return [
        asked.contender,
        asked.task,
        *map(str, (*asked.window, asked.seed)),
        json.dumps(dict(asked.numerics)),
        *([] if asked.dataset is None else [str(asked.dataset)]),
    ]


def parse(description: str) -> Asked:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("contender")
    parser.add_argument("task", choices=SUBJECTS)
    for name in (*Window._fields, "seed"):
        parser.add_argument(name, type=int)
    parser.add_argument("numerics", type=json.loads)
    parser.add_argument("dataset", type=Path, nargs="?")
    given = parser.parse_args()
    window = Window(given.learning_starts, given.settling, given.steps)
    return Asked(given.contender, given.task, window, given.seed, given.numerics, given.dataset)


def weights_sha256(network: Any) -> str:
    """Of a module's numbers, in order and whatever their names: equal where trainings were."""
    digest = hashlib.sha256()
    for each in network.state_dict().values():
        digest.update(each.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
