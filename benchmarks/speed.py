"""How fast is an algorithm of ours in its sandbox: against SB3's, against no sandbox, untuned?

    python -m benchmarks.speed             measures TD3 (11 minutes), writes benchmarks/speed.json
    python -m benchmarks.speed --task rl-value-atari
                                           DQN (10 minutes), benchmarks/speed-atari.json
    python -m benchmarks.speed --task rl-offline-policy
                                           FQL (10 minutes), benchmarks/speed-offline.json
    python -m benchmarks.speed render      prints Markdown from that file
    make bench                             installs SB3 where it is missing, then measures TD3

What counts are ratios of steps/s within one round, so that a machine that becomes slower during the
benchmark slows down both sides. Nothing else may run: whatever does is measured and said.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import cores, made_up_data, sb3
from benchmarks.cores import CORES, DISTURBING_CORES, ONE_THREAD
from benchmarks.measuring import (
    DQN,
    FQL,
    PROFILE,
    READY,
    TD3,
    Asked,
    Subject,
    Window,
    command_line,
)
from benchmarks.speed_report import SECTIONS, render
from harness import machine
from harness.numerics import STOCK, choose, faster_matmul, variables
from harness.task import REPOSITORY, Task

ROUNDS = 3
SEED = 1


class Contender(NamedTuple):
    """Something whose steps/s are measured."""

    module: str
    name: str
    """Under which the module knows it."""
    stock: bool = False
    """Numeric backends as torch and glibc come."""
    at_once: int = 1
    needs_sb3: bool = False


SANDBOXED = Contender("benchmarks.touchstone", "sandboxed")
BARE = Contender("benchmarks.touchstone", "bare")
UNTUNED = SANDBOXED._replace(stock=True)


class Benchmark(NamedTuple):
    """One task's."""

    subject: Subject
    window: Window
    """Unless another is asked for."""
    contenders: Mapping[str, Contender]
    transitions: int = 0
    """Rows of made-up data, where the task is offline, unless another number is asked for."""
    dataset: Path | None = None
    """Their file, once there is one."""

    @property
    def results(self) -> Path:
        return Path(__file__).with_name(SECTIONS[self.subject.task].file)


BENCHMARKS: Mapping[str, Benchmark] = {
    TD3.task: Benchmark(
        TD3,
        Window(learning_starts=1_000, settling=200, steps=3_000),
        {
            "sandboxed": SANDBOXED,
            "sb3": Contender("benchmarks.sb3_td3", "sb3", stock=True, needs_sb3=True),
            "bare": BARE,
            "stock": UNTUNED,
            "pair": SANDBOXED._replace(at_once=2),
        },
    ),
    DQN.task: Benchmark(
        DQN,
        Window(learning_starts=500, settling=200, steps=1_500),
        {
            "sandboxed": SANDBOXED,
            "sb3": Contender("benchmarks.sb3_dqn", "sb3", stock=True, needs_sb3=True),
            "script": Contender("benchmarks.bare_dqn", "script"),
            "bare": BARE,
            "stock": UNTUNED,
        },
    ),
    FQL.task: Benchmark(
        FQL,
        Window(learning_starts=0, settling=20, steps=300),
        {
            "sandboxed": SANDBOXED,
            "script": Contender("benchmarks.bare_fql", "script"),
            "bare": BARE,
            "stock": UNTUNED,
        },
        transitions=1_000_000,
    ),
}


class Failed(Exception):
    """A contender did not do its work; the message has what it said."""


def measure_rounds(
    benchmark: Benchmark,
    names: Sequence[str],
    rounds: int,
    window: Window,
    numerics: Mapping[str, str],
) -> list[dict[str, Any]]:
    """All measurements, one after the other. The order turns round by round."""
    measurements = []
    for number in range(1, rounds + 1):
        for name in names if number % 2 else reversed(names):
            measured = {"round": number, "contender": name}
            measured |= measure(benchmark, name, window, numerics)
            measurements.append(measured)
            _say(measured, rounds)
    return measurements


def measure(
    benchmark: Benchmark, name: str, window: Window, numerics: Mapping[str, str]
) -> dict[str, Any]:
    """One measurement: steps and seconds of the learning phase, and what else the machine did.

    Raises Failed.
    """
    contender, task = benchmark.contenders[name], benchmark.subject.task
    numerics = STOCK if contender.stock else numerics
    others = cores.Others()
    began = time.perf_counter()
    asked = [
        Asked(contender.name, task, window, SEED + index, numerics, benchmark.dataset)
        for index in range(contender.at_once)
    ]
    results = _run(contender, asked)
    seconds = time.perf_counter() - began
    meanwhile = others.meanwhile(sum(each.get("guest_cpu_seconds", 0.0) for each in results))

    steps, measured_seconds = together([each.pop("times") for each in results])
    first = results[0] | {"steps": steps, "seconds": measured_seconds}
    if len(results) > 1:
        first["each"] = [each["steps"] / each["seconds"] for each in results]
        first["peak_memory_bytes"] = max(each["peak_memory_bytes"] for each in results)
    return first | {
        "whole_seconds": seconds,
        # In cores.
        "others_before": others.before,
        "others_meanwhile": meanwhile,
    }


def together(times: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Steps of all trainings within the time in which each of them was measured, and that time.

    Each sequence holds the moments at which a training's steps were over.
    """
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    if end <= begin:
        raise Failed("the trainings that should run at once did not")
    return sum(sum(begin < at <= end for at in each) for each in times), end - begin


def _run(contender: Contender, asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """What each process printed, after all were ready and told to go on at once."""
    module = contender.module
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="speed-"))
        processes = [stack.enter_context(_started(contender, each, directory)) for each in asked]
        for process in processes:
            line = process.stdout.readline().strip()
            if line != READY:
                raise Failed(f"{module} said {line!r}, not {READY!r}, and ended; see above")
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        printed = [process.stdout.read() for process in processes]
        for process in processes:
            if process.wait() != 0:
                raise Failed(f"{module} ended with status {process.returncode}; see above")
        return [json.loads(each) for each in printed]


@contextlib.contextmanager
def _started(contender: Contender, asked: Asked, directory: str) -> Iterator[Any]:
    """A contender's process; what it says on stderr goes to ours. Killed where we fail."""
    paths = [REPOSITORY]
    if contender.needs_sb3:
        paths.append(sb3.DIRECTORY)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", contender.module, *command_line(asked)],
        cwd=directory,
        env=os.environ
        | ONE_THREAD
        | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        # A guest gets them from its host; a learner without a sandbox can only start with them.
        | ({} if contender.name == SANDBOXED.name else variables(asked.numerics)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()  # does nothing where it has ended
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _say(measured: Mapping[str, Any], rounds: int) -> None:
    rate = measured["steps"] / measured["seconds"]
    print(
        f"round {measured['round']} of {rounds}: {measured['contender']:<10} {rate:7.1f} steps/s"
        f"  ({measured['steps']} steps in {measured['seconds']:.1f} s)",
        flush=True,
    )
    for when in ("before", "meanwhile"):
        others = measured[f"others_{when}"]
        if others > DISTURBING_CORES:
            print(
                f"!!! DISTURBED: {others:.2f} cores were busy with something else {when}. "
                "This figure is worth nothing.",
                file=sys.stderr,
                flush=True,
            )


def measure_all(
    benchmark: Benchmark, names: Sequence[str], rounds: int, window: Window, output: Path
) -> None:
    """The benchmark, from what is checked first to the file. Raises Failed, and writes nothing."""
    subject = benchmark.subject
    if flaw := window.flaw(Task.load(subject.task).constants):
        raise Failed(flaw)
    if any(benchmark.contenders[each].needs_sb3 for each in names) and not sb3.installed():
        raise Failed(f"{' and '.join(sb3.wanted())} are not installed; run: {sb3.ADVICE}")
    if "pair" in names and len(os.sched_getaffinity(0)) < CORES:
        raise Failed("two at once need two cores; leave `pair` out (--contenders ...)")
    began = datetime.now(UTC).isoformat(timespec="seconds")
    # Probes with both cores, once a machine; what is kept is what evaluations use here.
    numerics = choose(stock=False)
    with tempfile.TemporaryDirectory(prefix="speed-") as directory:
        matmul = faster_matmul(Path(directory))
        cores.use_two()
        made = made_up(benchmark, Path(directory))
        measurements = measure_rounds(made, names, rounds, window, numerics)
    content = {
        "began": began,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.harness_commit(),
        "task": subject.task,
        "profile": PROFILE,
        "environment": subject.environment,
        "window": window._asdict(),
        "transitions": benchmark.transitions,
        "machine": cores.facts(),
        "numerics": numerics,
        "matmul_probed_now": matmul,
        "measurements": measurements,
    }
    output.write_text(json.dumps(content, indent=1) + "\n")
    print("\n" + render(content))


def made_up(benchmark: Benchmark, directory: Path) -> Benchmark:
    """With its dataset, where it needs one: the same file for all contenders and rounds."""
    if not benchmark.transitions:
        return benchmark
    task, id_ = Task.load(benchmark.subject.task), benchmark.subject.environment
    dataset = made_up_data.write(directory, task, id_, benchmark.transitions)
    return benchmark._replace(dataset=dataset)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("measure", "render"), default="measure")
    parser.add_argument("--task", choices=BENCHMARKS, default=TD3.task)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    for name in reversed(Window._fields):
        defaults = ", ".join(str(getattr(each.window, name)) for each in BENCHMARKS.values())
        what = f"{'measured ones; ' if name == 'steps' else ''}by task: {defaults}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=what)
    parser.add_argument("--transitions", type=int, help="offline: rows of made-up data; a million")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="of the task; else all")
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    benchmark = BENCHMARKS[given.task]
    names = given.contenders or list(benchmark.contenders)
    if unknown := [each for each in names if each not in benchmark.contenders]:
        known = ", ".join(benchmark.contenders)
        parser.error(f"{given.task} has no contender {unknown[0]!r}; there are: {known}")
    asked = {name: getattr(given, name) for name in Window._fields}
    window = benchmark.window._replace(**{k: v for k, v in asked.items() if v is not None})
    if min(given.rounds, window.settling, window.steps) < 1:
        parser.error("rounds and steps are at least 1")
    if bool(window.learning_starts) == bool(benchmark.transitions):
        parser.error("an offline task has no random steps, each other one has some")
    if given.transitions is not None:
        if not benchmark.transitions or given.transitions < 1:
            parser.error("--transitions is for an offline task, and at least 1")
        benchmark = benchmark._replace(transitions=given.transitions)
    results = given.results or benchmark.results
    try:
        if given.command == "render":
            if not results.exists():
                raise Failed(f"nothing was measured yet: there is no {results}")
            print(render(json.loads(results.read_text())), end="")
        else:
            measure_all(benchmark, names, given.rounds, window, results)
    except Failed as failed:
        sys.exit(f"benchmarks.speed: {failed}")


if __name__ == "__main__":
    main()
