"""The machine under a benchmark: its facts, two of its cores, and what else runs on them."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import machine
from harness.task import REPOSITORY

CORES = 2
DISTURBING_CORES = 0.10
"""More than this of a core, used by other programs, and a figure is called disturbed."""
LOOK_SECONDS = 1.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Variables of a process: whatever multiplies matrices does so in one thread."""


class Others:
    """How many cores are busy with what is neither this process's children nor their guests.

    Attributes:
        before: in the second before the children start, which begins here.
    """

    def __init__(self) -> None:
        self._cpus = os.sched_getaffinity(0)
        began = _busy_seconds(self._cpus)
        time.sleep(LOOK_SECONDS)
        self._busy = _busy_seconds(self._cpus)
        self.before = (self._busy - began) / LOOK_SECONDS
        self._began, self._children = time.perf_counter(), _cpu_seconds_of_children()

    def meanwhile(self, guests_seconds: float = 0.0) -> float:
        """Since then, with all children ended. Can come out below 0: two sides count differently.

        A guest is killed with its namespace, and then nobody waits for it: its own count is added.
        """
        seconds = time.perf_counter() - self._began
        ours = _cpu_seconds_of_children() - self._children + guests_seconds
        return (_busy_seconds(self._cpus) - self._busy - ours) / seconds


def measured_alone(module: str, *arguments: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """What a module printed as JSON, asked for its `child` in a process of its own with one thread,
    and how many cores were busy with something else."""
    others = Others()
    child = subprocess.run(
        [sys.executable, "-P", "-m", module, "child", *arguments],
        env=os.environ | ONE_THREAD | {"PYTHONPATH": str(REPOSITORY)} | variables,
        stdout=subprocess.PIPE,
        check=True,
    )
    meanwhile = others.meanwhile()
    return json.loads(child.stdout) | {
        "others_before": others.before,
        "others_meanwhile": meanwhile,
    }


def use_two() -> None:
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


def resident_bytes() -> int:
    """Of this process, mapped files included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


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


def _siblings(cpu: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)
