"""What the forms of handing in share: the scaffold cut at its region, and what a form proposes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.intake.text import split_lines
from harness.task import Task

SCAFFOLD = "scaffold.py"
"""The one file that a submission changes."""


@dataclass(frozen=True)
class Scaffold:
    """The pristine scaffold of a task, cut at its region."""

    task: str
    """The task's name."""
    classes: tuple[str, ...]
    """What the region has to define."""
    first: int
    """1-based, the region's first line."""
    last: int
    """1-based, inclusive."""
    prefix: str
    """Up to and with the opening banner line."""
    region: str
    suffix: str
    """From the closing banner line on."""

    @classmethod
    def of(cls, task: Task) -> "Scaffold":
        """Cut the task's scaffold, whose banners Task.load has checked."""
        lines = split_lines(task.scaffold.decode("utf-8"))
        first, last = task.region.first_line, task.region.last_line
        return cls(
            task=task.name,
            classes=tuple(task.region.classes),
            first=first,
            last=last,
            prefix="".join(lines[: first - 1]),
            region="".join(lines[first - 1 : last]),
            suffix="".join(lines[last:]),
        )

    @property
    def source(self) -> str:
        """The whole file."""
        return self.with_region(self.region)

    def with_region(self, region: str) -> str:
        """The whole file with another region."""
        return self.prefix + region + self.suffix

    def region_of(self, source: str) -> str | None:
        """The whole lines between prefix and suffix; None where either was changed."""
        region = source.removeprefix(self.prefix).removesuffix(self.suffix)
        whole = not region or region.endswith("\n")
        return region if whole and self.with_region(region) == source else None


class Where(NamedTuple):
    """Where a line of the region is found by the one who handed it in."""

    file: str
    line: int


class Placed(NamedTuple):
    """A line of the result (with its LF), and where it came from."""

    text: str
    where: Where


class Proposal(NamedTuple):
    """What a form says the region should be, and where each of its lines came from."""

    region: str
    where: tuple[Where, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, lines: Sequence[Placed], notes: tuple[str, ...]) -> "Proposal":
        """The region that consists of these lines."""
        return cls("".join(each.text for each in lines), tuple(each.where for each in lines), notes)


def placed(lines: Sequence[str], file: str, first: int) -> list[Placed]:
    """Consecutive lines of a file, from line `first` on."""
    return [Placed(line, Where(file, number)) for number, line in enumerate(lines, first)]


def file_problem(path: str, task: str) -> str | None:
    """Why `path` does not name the scaffold of the task; None if it does.

    The last component says which file is meant. No path is ever opened.
    """
    name = _components(path)[-1]
    return path_problem(path, task) or (
        f"this names `{name}`, not `{SCAFFOLD}`" if name != SCAFFOLD else None
    )


def path_problem(path: str, task: str) -> str | None:
    """What no path may hold, whatever file it names; None if nothing is wrong with it."""
    parts = _components(path)
    for bad in ("..", ".git"):
        if bad in parts:
            return f"the path holds `{bad}`"
    # Where an absolute path lies is its author's affair.
    if parts[0] and len(parts) > 2 and parts[-3] == "tasks" and parts[-2] != task:
        return f"this is the scaffold of the task `{parts[-2]}`, not of `{task}`"
    return None


def _components(path: str) -> list[str]:
    return re.split(r"[/\\]", path)
