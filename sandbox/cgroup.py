"""Holds a guest to its memory and number of processes with control groups of the kernel, v1 or v2.

A group's directory is named after the launcher (pid namespace, pid, start time), so that one that a
killed launcher left behind is recognised and removed by the next one that starts a guest.
"""

import contextlib
import errno
import itertools
import os
import re
import signal
import time
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sandbox.base import Breach, Limits, SandboxError
from sandbox.meter import Meter

PREFIX = "touchstone"

_FIRST_PROCESS = 1  # the sandbox's own pid 1 counts in pids.max beside the guest's processes
_CHARGE_STEP = 2 << 20  # by so much memory may be charged at once, and the limit be missed
_REMOVAL_SECONDS = 2.0
_STALE_REMOVAL_SECONDS = 0.1
_REMOVAL_PAUSE = 0.005

_numbers = itertools.count()


def open_meter(limits: Limits) -> Meter | None:
    """A meter that rests on control groups; None where none can be made here."""
    for kind in (_MeterV1, _MeterV2):
        try:
            return kind(limits)
        except OSError:
            continue  # absent, read-only or not delegated: the next kind, or none
    return None


def describe() -> str | None:
    """Which kind `open_meter` gives on this machine, in words, or None."""
    meter = open_meter(Limits(1 << 30, 100, 1 << 20, 1 << 20))
    if meter is None:
        return None
    meter.close()
    return "cgroup v1" if isinstance(meter, _MeterV1) else "cgroup v2"


class _GroupMeter(Meter):
    def __init__(self, limits: Limits, parents: dict[str, Path]) -> None:
        """`parents` maps a controller to the directory in which to make the group."""
        self._limits = limits
        for parent in set(parents.values()):
            _remove_stale(parent)
        name = f"{_launcher(os.getpid())}-{next(_numbers)}"
        self._directories = {controller: parent / name for controller, parent in parents.items()}
        try:
            for directory in set(self._directories.values()):
                directory.mkdir()
            self._set_limits()
        except OSError:
            self.close()
            raise

    @abstractmethod
    def _set_limits(self) -> None: ...

    @abstractmethod
    def _killed_for_memory(self) -> int:
        """How many processes were killed because this group was at its limit."""

    def admit(self, pid: int) -> None:
        for directory in set(self._directories.values()):
            (directory / "cgroup.procs").write_text(str(pid))

    def breach(self) -> Breach | None:
        killed = self._killed_for_memory()
        if killed:
            return Breach(
                "memory",
                self._limits.memory_bytes,
                self.peak_memory_bytes(),
                "cgroup oom_kill counter",
            )
        refused = _counter(self._directories["pids"] / "pids.events", "max")
        if refused:
            allowed = self._limits.processes
            return Breach("processes", allowed, allowed + 1, "cgroup pids.events counter")
        return None

    def close(self) -> None:
        for directory in set(self._directories.values()):
            _remove(directory)


class _MeterV1(_GroupMeter):
    def __init__(self, limits: Limits) -> None:
        parents = dict(_own_groups_v1())
        if not {"memory", "pids"} <= parents.keys():
            raise FileNotFoundError("no cgroup v1 memory and pids controllers")
        super().__init__(limits, parents)

    def _set_limits(self) -> None:
        memory = self._directories["memory"]
        limit = str(self._limits.memory_bytes)
        (memory / "memory.limit_in_bytes").write_text(limit)
        with_swap = memory / "memory.memsw.limit_in_bytes"
        if with_swap.exists():  # not where the kernel does not account swap
            with_swap.write_text(limit)
        pids_max = self._limits.processes + _FIRST_PROCESS
        (self._directories["pids"] / "pids.max").write_text(str(pids_max))
        # The cpu controller's default of 1024 shares stands: one guest weighs as much as one
        # process of the host, however many it starts.

    def _killed_for_memory(self) -> int:
        memory = self._directories["memory"]
        # A machine that is out of memory kills guests too. That is not the guest's breach, and told
        # apart by this: the group itself never met its limit. (The failcnt files stay at 0 on some
        # kernels.)
        peaks = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")
        met = max(_number(memory / name) for name in peaks) + _CHARGE_STEP
        if met < self._limits.memory_bytes:
            return 0
        return _counter(memory / "memory.oom_control", "oom_kill")

    def cpu_seconds(self) -> float:
        directory = self._directories.get("cpuacct")
        return _number(directory / "cpuacct.usage") / 1e9 if directory else 0.0

    def peak_memory_bytes(self) -> int:
        return _number(self._directories["memory"] / "memory.max_usage_in_bytes")


class _MeterV2(_GroupMeter):
    """In the nearest group above this process that hands memory and pids to its children.

    Not tried on a machine where v2 has those controllers; what fails here leads to polling.
    """

    def __init__(self, limits: Limits) -> None:
        parent = _parent_v2()
        self._peak = 0
        super().__init__(limits, {"memory": parent, "pids": parent})

    def _set_limits(self) -> None:
        directory = self._directories["memory"]
        (directory / "memory.max").write_text(str(self._limits.memory_bytes))
        (directory / "memory.swap.max").write_text("0")
        (directory / "memory.oom.group").write_text("1")
        (directory / "pids.max").write_text(str(self._limits.processes + _FIRST_PROCESS))

    def _killed_for_memory(self) -> int:
        events = self._directories["memory"] / "memory.events"
        return _counter(events, "oom_kill") if _counter(events, "oom") else 0

    def cpu_seconds(self) -> float:
        return _counter(self._directories["memory"] / "cpu.stat", "usage_usec") / 1e6

    def peak_memory_bytes(self) -> int:
        directory = self._directories["memory"]
        now = max(_number(directory / "memory.peak"), _number(directory / "memory.current"))
        self._peak = max(self._peak, now)  # memory.peak is younger than v2
        return self._peak


class _GroupMount(NamedTuple):
    kind: str
    root: str
    point: Path
    controllers: frozenset[str]


def _mounts() -> Iterator[_GroupMount]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = before.split()[3:5]
            yield _GroupMount(kind, root, Path(point), frozenset(options.split(",")))


def _own_groups_v1() -> Iterator[tuple[str, Path]]:
    """The controllers that are wanted and found, each with this process's own group."""
    mounts = [mount for mount in _mounts() if mount.kind == "cgroup"]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in {"memory", "pids", "cpu", "cpuacct"} & set(controllers.split(",")):
            for mount in mounts:
                if controller in mount.controllers:
                    yield controller, _within(mount, path)


def _parent_v2() -> Path:
    mount = next((mount for mount in _mounts() if mount.kind == "cgroup2"), None)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if mount is None or own is None:
        raise FileNotFoundError("no cgroup v2")
    group = _within(mount, own)
    for directory in (group, *group.parents):
        handed_down = (directory / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(handed_down) and os.access(
            directory / "cgroup.procs", os.W_OK
        ):
            return directory
        if directory == mount.point:
            break
    raise PermissionError("no cgroup v2 above this process is delegated to it")


def _within(mount: _GroupMount, path: str) -> Path:
    """Where the group `path` of /proc/self/cgroup is, in a mount that may show a part only."""
    if mount.root != "/" and path.startswith(mount.root):
        path = path[len(mount.root) :]
    return mount.point / path.lstrip("/")


def _launcher(pid: int) -> str:
    """A name for a process that no other ever has on this machine while it is up.

    Raises OSError where there is no such process.
    """
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    # Bytes: the process may be a guest by now, and guests choose their names.
    started = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
    return f"{PREFIX}-{namespace}-{pid}-{int(started)}"


def _remove_stale(parent: Path) -> None:
    """Remove the groups of launchers that are dead, and end what may still be in them."""
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    pattern = re.compile(rf"({PREFIX}-{namespace}-(\d+)-\d+)-\d+")
    for entry in os.scandir(parent):
        match = pattern.fullmatch(entry.name)
        if not match:
            continue
        try:
            alive = _launcher(int(match[2])) == match[1]
        except OSError:
            alive = False
        if not alive:
            with contextlib.suppress(SandboxError):  # no reason to refuse a new guest
                _remove(Path(entry.path), _STALE_REMOVAL_SECONDS)


def _remove(directory: Path, seconds: float = _REMOVAL_SECONDS) -> None:
    """Raises SandboxError where it cannot be removed although its processes were killed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            for pid in map(int, (directory / "cgroup.procs").read_text().split()):
                if pid > 0:  # 0 stands for a process of another pid namespace
                    os.kill(pid, signal.SIGKILL)
            directory.rmdir()
        except FileNotFoundError:
            return  # another process of ours was faster, or it was never made
        except OSError as error:  # busy for a moment after the last process has gone
            if time.monotonic() > deadline:
                raise SandboxError(f"cannot remove the cgroup {directory}: {error}") from error
            time.sleep(_REMOVAL_PAUSE)
        else:
            return


def _counter(file: Path, name: str) -> int:
    """A number in a file of lines "name number"; 0 where there is none."""
    for line in _text(file).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _number(file: Path) -> int:
    return int(_text(file) or 0)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return ""  # this kernel does not have it, or the group was removed just now
