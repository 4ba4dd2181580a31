"""Holds a guest to its memory and number of processes: what a meter is, and one without rights.

`PollingMeter` reads /proc. It sees a breach only when it looks, so a guest can go over for a
moment; inherited resource limits bound by how much. `sandbox.cgroup` has the better one.

A process gives itself its name, any 15 bytes, and /proc repeats it. So what is read there is bytes,
split where the kernel ends a line and nowhere else, and nothing in it can raise an exception.
"""

import os
import resource
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sandbox.base import Breach, Limits

SCRATCH = ("tmp", "dev/shm")
"""The guest's writable file systems, below its root."""

# What one process may map beyond its memory limit: libraries, stacks and allocator arenas are
# mapped and never touched (torch alone takes 0.75 GiB). The meter, not this, is the limit.
_ADDRESS_SPACE_SLACK = 4 << 30

# Above the limit, so that the meter sees the limit broken before the kernel refuses a fork.
_PROCESSES_SLACK = 2

# What a socket may hold that is no process's memory: the machine's default of a buffer (a guest can
# set no other), and beyond it the packet that fills it. Measured: at most 1.2 of it.
_BUFFER_SHARE = 2
_BUFFER_FILE = Path("/proc/sys/net/core/wmem_default")
_BUFFER_BYTES = 212992  # the kernel's own default, where that file is missing

_INODE_BYTES = 1024  # what the kernel keeps, about, for a file in memory beside its content


class Meter(ABC):
    """Measures one guest, all its processes together."""

    @abstractmethod
    def admit(self, pid: int) -> None:
        """Put the sandbox's first process, which has no child yet, under the limits."""

    @abstractmethod
    def breach(self) -> Breach | None:
        """The limit that is broken now or was broken at some time since the start."""

    @abstractmethod
    def cpu_seconds(self) -> float:
        """User and system time so far."""

    @abstractmethod
    def peak_memory_bytes(self) -> int:
        """The most memory at one moment so far."""

    @abstractmethod
    def close(self) -> None:
        """Take away what was made for it. The guest's processes are gone by now."""


class _Usage(NamedTuple):
    tasks: int
    memory_bytes: int
    """May count a page once for each process that shares it."""
    cpu_seconds: float


class PollingMeter(Meter):
    """Adds up what /proc says about the descendants of the sandbox's first process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pid: int | None = None
        self._cpu_seconds = 0.0
        self._peak_memory_bytes = 0

    def admit(self, pid: int) -> None:
        address_space = self._limits.memory_bytes + _ADDRESS_SPACE_SLACK
        processes = self._limits.processes + _PROCESSES_SLACK
        resource.prlimit(pid, resource.RLIMIT_AS, (address_space, address_space))
        # Counted by the kernel for each user of each user namespace: for this guest alone.
        resource.prlimit(pid, resource.RLIMIT_NPROC, (processes, processes))
        self._pid = pid

    def breach(self) -> Breach | None:
        if self._pid is None:
            return None
        processes = list(_descendants(self._pid))
        scratch = _scratch_bytes(self._pid)
        sockets = _socket_bytes(self._pid)
        usage = _usage(processes, scratch + sockets)
        self._cpu_seconds = max(self._cpu_seconds, usage.cpu_seconds)
        if usage.tasks > self._limits.processes:
            return Breach(
                "processes", self._limits.processes, usage.tasks, "processes and threads in /proc"
            )
        memory_bytes = usage.memory_bytes
        if memory_bytes > self._limits.memory_bytes:
            # Costs more, so only now: shared pages counted once. Twice, since a process that ends
            # during a measurement leaves its part of them to those that are measured after it.
            measured = min(_memory_without_doubles(self._pid, scratch) for _ in range(2))
            memory_bytes = measured + sockets
        self._peak_memory_bytes = max(self._peak_memory_bytes, memory_bytes)
        if memory_bytes > self._limits.memory_bytes:
            return Breach(
                "memory",
                self._limits.memory_bytes,
                memory_bytes,
                "resident memory and sockets in /proc",
            )
        return None

    def cpu_seconds(self) -> float:
        return self._cpu_seconds

    def peak_memory_bytes(self) -> int:
        return self._peak_memory_bytes

    def close(self) -> None:
        self._pid = None


def _descendants(pid: int) -> Iterator[int]:
    """All processes below `pid`, which is left out. Those that end meanwhile may be missing."""
    waiting = [pid]
    while waiting:
        try:
            for task in os.scandir(f"/proc/{waiting.pop()}/task"):
                said = Path(task.path, "children").read_bytes().split()
                children = [child for child in map(_number, said) if child > 0]
                waiting += children
                yield from children
        except (FileNotFoundError, ProcessLookupError):
            continue


def _usage(processes: list[int], more_bytes: int) -> _Usage:
    tasks = 0
    memory = more_bytes
    ticks = 0
    for pid in processes:
        try:
            status = _fields(Path(f"/proc/{pid}/status"))
            # The name is in brackets and may have brackets in it.
            times = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:15]
        except (FileNotFoundError, ProcessLookupError):
            continue
        tasks += max(1, _number(status.get(b"Threads", b"")))
        memory += _private_bytes(status) + _kilobytes(status, b"RssShmem")
        ticks += sum(map(_number, times))
    return _Usage(tasks, memory, ticks / os.sysconf("SC_CLK_TCK"))


def _private_bytes(status: dict[bytes, bytes]) -> int:
    """With the tables that say where its memory is. A zombie has neither, nor such lines."""
    return _kilobytes(status, b"RssAnon") + _kilobytes(status, b"VmPTE")


def _memory_without_doubles(pid: int, scratch_bytes: int) -> int:
    """No more than is in use below `pid`: a page that n processes share counts 1/n for each.

    Mapped scratch files are in both of the shared numbers, so the larger one counts.
    """
    private = shared = 0
    for descendant in _descendants(pid):
        try:
            status = _fields(Path(f"/proc/{descendant}/status"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        try:
            rollup = _fields(Path(f"/proc/{descendant}/smaps_rollup"))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:  # it may not be looked into: then what it shares counts in full
            private += _private_bytes(status)
            shared += _kilobytes(status, b"RssShmem")
            continue
        private += _kilobytes(rollup, b"Pss_Anon") + _kilobytes(status, b"VmPTE")
        shared += _kilobytes(rollup, b"Pss_Shmem")
    return private + max(shared, scratch_bytes)


def _scratch_bytes(pid: int) -> int:
    total = 0
    for name in SCRATCH:
        try:
            state = os.statvfs(f"/proc/{pid}/root/{name}")
        except OSError:
            continue  # the guest is gone, or going
        total += (state.f_blocks - state.f_bfree) * state.f_frsize
        total += (state.f_files - state.f_ffree) * _INODE_BYTES
    return total


def _socket_bytes(pid: int) -> int:
    """What the sockets in the guest's network namespace hold at most.

    The kernel says how many there are, those included that are closed and not read yet, and those
    that are under way in a message. It says nowhere how full they are.
    """
    try:
        used = _fields(Path(f"/proc/{pid}/net/sockstat")).get(b"sockets", b"")
    except OSError:
        return 0  # the guest is gone, or going
    return _number(used.rpartition(b" ")[2]) * _BUFFER_SHARE * _buffer_bytes()


def _buffer_bytes() -> int:
    try:
        return _number(_BUFFER_FILE.read_bytes()) or _BUFFER_BYTES
    except OSError:
        return _BUFFER_BYTES


def _fields(path: Path) -> dict[bytes, bytes]:
    lines = (line.partition(b":") for line in path.read_bytes().split(b"\n"))
    return {name: value.strip() for name, _, value in lines if name != b"Name"}


def _kilobytes(fields: dict[bytes, bytes], name: bytes) -> int:
    """A field such as "RssAnon: 12 kB", in bytes; 0 where it is missing."""
    return _number(fields.get(name, b"").partition(b" ")[0]) * 1024


def _number(said: bytes) -> int:
    """0 where it is none."""
    said = said.strip()
    return int(said) if said.isdigit() else 0
