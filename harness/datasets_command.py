"""What `touchstone datasets` does: a profile's data, made or fetched, checked, prepared, shown."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.cli import ExitStatus
from harness.datasets import places, simulator
from harness.datasets.fetch import Fetcher
from harness.datasets.generate import duration, generate
from harness.datasets.places import DatasetError
from harness.datasets.prepare import Ready, ready
from harness.task import HeldOut, OfflineDataset, Profile, Task, plan

PLAIN_SECONDS = 15.0
"""Between two lines about how far something is, where they cannot overwrite each other."""


def run(
    task: Task, profile: Profile, heldout: HeldOut | None, heldout_option: str, root: Path
) -> ExitStatus:
    """Everything for every environment of the profile. What is in its place already is checked."""
    environments = [
        planned.environment
        for planned in plan(task, profile, heldout)
        if isinstance(planned.environment, OfflineDataset)
    ]
    lines = _Lines()
    if not environments:
        lines.say(f"{task.name}, {profile.name}, has no datasets: there is nothing to do")
        return ExitStatus.SCORED
    command = places.command(task.name, profile.name, root, heldout_option)
    problems: list[str] = []
    try:
        simulator.version()  # before anything is fetched for a machine that has no use for it
    except DatasetError as error:
        lines.complain(str(error))
        return ExitStatus.INFRASTRUCTURE
    try:
        _announce(environments, root, lines)
        fetcher = Fetcher(root, task.mirrors, lines.say, lines.show)
        for environment in environments:
            try:
                if environment.generator is None:
                    fetcher.fetch(environment)
                else:
                    generate(environment, root, lines.say, lines.show)
                lines.say(_told(environment, ready([environment], root, command, lines.say)))
            except DatasetError as error:
                if str(error) not in problems:  # two tasks may share a dataset
                    lines.complain(str(error))
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{environment.id}, in {root}: {error}")
                lines.complain(problems[-1])
    except KeyboardInterrupt:
        lines.complain(
            "interrupted; files that are whole are kept, the same command makes the rest"
        )
        return ExitStatus.INTERRUPTED
    return ExitStatus.INFRASTRUCTURE if problems else ExitStatus.SCORED


def _announce(environments: Sequence[OfflineDataset], root: Path, lines: "_Lines") -> None:
    """What is not there yet, before the first minute of waiting for it."""
    announced = set()
    for environment in environments:
        wanted = places.files(environment, root)
        if not wanted.missing() or wanted in announced:
            continue
        announced.add(wanted)
        made = environment.generator
        if made is None:
            lines.say(f"{environment.id}: to be fetched into {wanted.training.parent}")
            continue
        try:
            minutes = duration(environment, root) / 60
        except DatasetError:
            continue  # it is said in its turn
        lines.say(
            f"{environment.id}: to be made here, {made.episodes} and {made.validation_episodes} "
            f"episodes, in about {max(1, round(minutes))} min"
        )


def _told(environment: OfflineDataset, found: dict[str, Ready]) -> str:
    data = found[environment.id]
    known = data.statistics
    lines = [
        f"{environment.id}: in place",
        f"    transitions: {known.transitions:,}; trajectories: {known.trajectories:,}; "
        f"success rows: {known.success_rows:,}",
        f"    rewards: {known.reward_min:g} to {known.reward_max:g}; observations: "
        f"{known.observation_min:.2f} to {known.observation_max:.2f}",
        f"    learners map {data.path}",
    ]
    if not known.success_rows:
        lines.append("    no success row is legal, but then nothing in the data tells the task")
    return "\n".join(lines)


class _Lines:
    """Says things, and on a terminal keeps one moving line below them."""

    def __init__(self) -> None:
        self._moves = sys.stdout.isatty()
        self._shown = False
        self._plain = time.monotonic()

    def say(self, line: str) -> None:
        self._clear()
        print(line, flush=True)

    def show(self, line: str) -> None:
        if self._moves:
            print(f"\r\x1b[K{line}", end="", flush=True)
            self._shown = True
        elif time.monotonic() - self._plain >= PLAIN_SECONDS:
            self._plain = time.monotonic()
            print(line, flush=True)

    def complain(self, line: str) -> None:
        self._clear()
        print(f"touchstone: {line}", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", flush=True)
            self._shown = False
