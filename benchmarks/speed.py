"""How fast is our TD3 in its sandbox: against SB3's, against no sandbox, two at once, untuned?

    python -m benchmarks.speed             measures (about 11 minutes), writes benchmarks/speed.json
    python -m benchmarks.speed render      prints Markdown from that file
    make bench                             installs SB3 where it is missing, then measures

What counts are ratios of steps/s within one round, so that a machine that becomes slower during the
benchmark slows down both sides. Nothing else may run: whatever does is measured and said.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import sb3_td3
from benchmarks.measuring import ENVIRONMENT, PROFILE, READY, TASK, Asked, Window, command_line
from benchmarks.speed_report import DISTURBING_CORES, render
from harness import machine
from harness.numerics import STOCK, choose, faster_matmul, variables
from harness.task import REPOSITORY

RESULTS = Path(__file__).with_name("speed.json")
ROUNDS = 3
WINDOW = Window(learning_starts=1_000, settling=200, steps=3_000)
SEED = 1
CORES = 2
LOOK_SECONDS = 1.0

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Contender(NamedTuple):
    """Something whose steps/s are measured."""

    module: str
    name: str
    """Under which the module knows it."""
    stock: bool = False
    """Numeric backends as torch and glibc come."""
    at_once: int = 1


CONTENDERS: Mapping[str, Contender] = {
    "sandboxed": Contender("benchmarks.touchstone_td3", "sandboxed"),
    "sb3": Contender("benchmarks.sb3_td3", "sb3", stock=True),
    "bare": Contender("benchmarks.touchstone_td3", "bare"),
    "stock": Contender("benchmarks.touchstone_td3", "sandboxed", stock=True),
    "pair": Contender("benchmarks.touchstone_td3", "sandboxed", at_once=2),
}


class Failed(Exception):
    """A contender did not do its work; the message has what it said."""


def benchmark(
    names: Sequence[str], rounds: int, window: Window, numerics: Mapping[str, str]
) -> list[dict[str, Any]]:
    """All measurements, one after the other. The order turns round by round."""
    measurements = []
    for number in range(1, rounds + 1):
        for name in names if number % 2 else reversed(names):
            measured = {"round": number, "contender": name}
            measured |= measure(CONTENDERS[name], window, numerics)
            measurements.append(measured)
            _say(measured, rounds)
    return measurements


def measure(contender: Contender, window: Window, numerics: Mapping[str, str]) -> dict[str, Any]:
    """One measurement: steps and seconds of the learning phase, and what else the machine did.

    Raises Failed.
    """
    numerics = STOCK if contender.stock else numerics
    cpus = os.sched_getaffinity(0)
    before = _busy_seconds(cpus)
    time.sleep(LOOK_SECONDS)
    others_before = (_busy_seconds(cpus) - before) / LOOK_SECONDS

    began, busy, ended = time.perf_counter(), _busy_seconds(cpus), _cpu_seconds_of_children()
    asked = [
        Asked(contender.name, window, SEED + index, numerics) for index in range(contender.at_once)
    ]
    results = _run(contender.module, asked)
    seconds = time.perf_counter() - began
    # A guest is killed with its namespace, and then nobody waits for it: its own count is added.
    ours = _cpu_seconds_of_children() - ended
    ours += sum(each.get("guest_cpu_seconds", 0.0) for each in results)
    others = _busy_seconds(cpus) - busy - ours

    steps, measured_seconds = together([each.pop("times") for each in results])
    first = results[0] | {"steps": steps, "seconds": measured_seconds}
    if len(results) > 1:
        first["each"] = [each["steps"] / each["seconds"] for each in results]
        first["peak_memory_bytes"] = max(each["peak_memory_bytes"] for each in results)
    return first | {
        "whole_seconds": seconds,
        # In cores. The kernel counts the two sides differently, so that one can come out below 0.
        "others_before": others_before,
        "others_meanwhile": others / seconds,
    }


def together(times: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Steps of all trainings within the time in which each of them was measured, and that time.

    Each sequence holds the moments at which a training's steps were over.
    """
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    if end <= begin:
        raise Failed("the trainings that should run at once did not")
    return sum(sum(begin < at <= end for at in each) for each in times), end - begin


def _run(module: str, asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """What each process printed, after all were ready and told to go on at once."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="speed-"))
        processes = [stack.enter_context(_started(module, each, directory)) for each in asked]
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
def _started(module: str, asked: Asked, directory: str) -> Iterator[Any]:
    """A contender's process; what it says on stderr goes to ours. Killed where we fail."""
    paths = [REPOSITORY]
    if module == sb3_td3.__name__:
        paths.append(sb3_td3.DIRECTORY)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *command_line(asked)],
        cwd=directory,
        env=os.environ
        | _ONE_THREAD
        | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        # A guest gets them from its host; a learner without a sandbox can only start with them.
        | (variables(asked.numerics) if asked.contender == "bare" else {}),
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


def _busy_seconds(cpus: set[int]) -> float:
    """CPU time that these cores have spent on anything so far, what a hypervisor took included."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu" and int(name.removeprefix("cpu")) in cpus:
            user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def _cpu_seconds_of_children() -> float:
    """Of those that have ended, with all that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def use_two_cores() -> None:
    """Whatever the machine has: of different physical cores if it says which are."""
    first, second = [], []
    seen: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = _siblings(cpu)
        (second if siblings in seen else first).append(cpu)
        seen.add(siblings)
    os.sched_setaffinity(0, (first + second)[:CORES])


def facts() -> dict[str, Any]:
    """What this machine is."""
    cpus = sorted(os.sched_getaffinity(0))
    return {
        "cpu": machine.cpu_model(),
        "cores": os.cpu_count(),
        "cores_used": len(cpus),
        "threads_of_one_core": len({_siblings(cpu) for cpu in cpus}) < len(cpus),
        "memory_bytes": machine.memory_bytes(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": machine.package_versions(),
    }


def _siblings(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)


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


def measure_all(names: Sequence[str], rounds: int, window: Window, output: Path) -> None:
    """The benchmark, from what is checked first to the file. Raises Failed, and writes nothing."""
    if "sb3" in names and not sb3_td3.installed():
        raise Failed(f"{sb3_td3.wanted()} is not installed; run: {sb3_td3.ADVICE}")
    if "pair" in names and len(os.sched_getaffinity(0)) < CORES:
        raise Failed("two at once need two cores; leave `pair` out (--contenders ...)")
    began = datetime.now(UTC).isoformat(timespec="seconds")
    # Probes with both cores, once a machine; what is kept is what evaluations use here.
    numerics = choose(stock=False)
    with tempfile.TemporaryDirectory(prefix="speed-") as directory:
        matmul = faster_matmul(Path(directory))
    use_two_cores()
    measurements = benchmark(names, rounds, window, numerics)
    content = {
        "began": began,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.harness_commit(),
        "task": TASK,
        "profile": PROFILE,
        "environment": ENVIRONMENT,
        "window": window._asdict(),
        "machine": facts(),
        "numerics": numerics,
        "matmul_probed_now": matmul,
        "measurements": measurements,
    }
    output.write_text(json.dumps(content, indent=1) + "\n")
    print("\n" + render(content))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=("measure", "render"), default="measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=WINDOW.steps, help="measured ones")
    parser.add_argument("--learning-starts", type=int, default=WINDOW.learning_starts)
    parser.add_argument("--settling", type=int, default=WINDOW.settling)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    window = Window(given.learning_starts, given.settling, given.steps)
    if given.rounds < 1 or min(window) < 1:
        parser.error("rounds and steps are at least 1")
    try:
        if given.command == "render":
            print(render(json.loads(given.results.read_text())), end="")
        else:
            measure_all(given.contenders, given.rounds, window, given.results)
    except Failed as failed:
        sys.exit(f"benchmarks.speed: {failed}")


if __name__ == "__main__":
    main()
