"""Shows an evaluation while it runs: a table that moves on a terminal, plain lines in a pipe."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.evaluation import RunState, Watcher

PLAIN_SECONDS = 15.0
"""Between two rounds of plain lines."""


@contextmanager
def watch(console: Console) -> Iterator[Watcher]:
    """The watcher that fits the console."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield _Table(live)


class _Table:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, states: list[RunState]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("run", "stage", "step", "steps/s", "last return", "evaluated", "left"):
            table.add_column(name, justify="left" if name in ("run", "stage") else "right")
        for state in states:
            table.add_row(*(Text(cell) for cell in _cells(state)))
        self._live.update(table)

    def say(self, line: str) -> None:
        self._live.console.print(Text(line))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = time.monotonic() + PLAIN_SECONDS

    def show(self, states: list[RunState]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLAIN_SECONDS
        for state in states:
            if state.stage in ("training", "evaluating"):
                run, stage, step, speed, last, evaluated, left = _cells(state)
                self.say(
                    f"{run}: {stage}, step {step}, {speed} steps/s, last return {last}, "
                    f"evaluated {evaluated}, {left} left"
                )

    def say(self, line: str) -> None:
        # No markup, no wrapping, no highlighting: a line in is a line out.
        self._console.print(Text(line), soft_wrap=True)


def _cells(state: RunState) -> tuple[str, str, str, str, str, str, str]:
    evaluated = "-" if state.mean_return is None else f"{state.mean_return:,.1f}"
    if state.verdict is not None:
        return (state.run.id, state.verdict.kind, "", "", "", evaluated, "")
    progress = state.progress
    if progress is None:
        return (state.run.id, state.stage, "-", "-", "-", evaluated, "-")
    stage = state.stage if progress.phase == "training" else progress.phase
    last = "-" if progress.last_return is None else f"{progress.last_return:,.1f}"
    speed, left = progress.steps_per_second, "-"
    if speed > 0:
        left = duration((progress.total - progress.step) / speed)
    step = f"{progress.step:,}/{progress.total:,}"
    return (state.run.id, stage, step, f"{speed:,.0f}", last, evaluated, left)


def duration(seconds: float) -> str:
    """A time to read: "40 s", "12 min", "3.5 h", "2.1 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
