"""What a sandbox is: the contract that bubblewrap, Docker and any other backend implements.

A *sandbox* is a way to start untrusted programs; a *guest* is one such program, started. The host
calls, in this order and from one thread that outlives the guest:

1. `Sandbox.problems()` once, before anything is promised to a user. An empty list means that
   `start` is expected to work on this machine.
2. `Sandbox.start(...)` for each guest. The guest runs `python -m sandbox.guest SOCKET` with the
   channel directory bound read-only at `GUEST_CHANNEL`, and connects to the Unix socket
   `SOCKET_NAME` in it. It sees the standard library, torch, numpy and what those two need, this
   package's `wire.py`, `pixels.py`, `rows.py` and `guest/`, and scratch space that vanishes with
   it; in an offline task, one read-only file of data too. Nothing else of the host: no network, no
   environment variable, no other process, no host uid 0, no writable file outside its scratch.
3. `Guest.exit()` at will: it never blocks. It answers None while the guest lives.
4. `Guest.kill()` once at the end, always, whether the guest has ended or not. After it returns no
   process of the guest is left and everything that the backend made for it is cleaned up.

A guest that breaks a limit is killed by the backend, at once, and its `Exit` carries the `Breach`:
the limit's name, what it allows and what was measured. A breach rests on a counter of the kernel or
on a measured size, never on an exit code or on bytes that the guest wrote, so that a guest cannot
pretend one. No guest outlives the host process: a backend ties it to the thread that started it,
or labels it and removes it at the next start.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple

GUEST_CHANNEL = "/run/host"
"""Where the guest finds the directory with the host's socket."""

SOCKET_NAME = "socket"
"""The socket's file name in that directory."""

GUEST_DATA = "/run/data"
"""Where a guest that is given a file of data finds it."""

GUEST_PROGRAM = ("-m", "sandbox.guest", f"{GUEST_CHANNEL}/{SOCKET_NAME}")
"""What the guest's interpreter is given. Tests of a backend pass a program of their own."""

LimitName = Literal["memory", "processes", "output"]


@dataclass(frozen=True)
class Limits:
    """What one guest may use. All of its processes count together."""

    memory_bytes: int
    """Resident memory, shared memory and scratch files included."""
    processes: int
    """Processes and threads alive at one moment."""
    scratch_bytes: int
    """Size of /tmp and of /dev/shm, each. Writing more fails inside the guest (ENOSPC)."""
    output_bytes: int
    """Bytes on stdout and stderr together; more ends the guest."""
    log_bytes: int = 1 << 20
    """How much of that output is kept in the log, from its start."""


class Breach(NamedTuple):
    """A limit that a guest broke, on evidence that it cannot forge."""

    limit: LimitName
    allowed: int
    """In the unit of the limit's field in `Limits`."""
    measured: int
    evidence: str
    """What measured it, in words for a report: "cgroup oom_kill counter"."""


class Usage(NamedTuple):
    """What a guest has used, all of its processes together."""

    cpu_seconds: float
    """User and system time, as far as the backend can count it."""
    peak_memory_bytes: int


class Exit(NamedTuple):
    """How a guest ended, and what it used."""

    code: int | None
    """Exit status; None where a signal ended it or the host did."""
    signal: int | None
    """The signal that ended it; None where it exited by itself."""
    breach: Breach | None
    cpu_seconds: float
    """As in `Usage`."""
    peak_memory_bytes: int

    def describe(self) -> str:
        """One phrase for a message. Backends see signal n as status 128 + n, so both are said."""
        if self.signal is not None:
            return f"was ended by signal {self.signal} (or exited with status {128 + self.signal})"
        return f"exited with status {self.code}"


class Problem(NamedTuple):
    """Why a backend cannot run on this machine."""

    what: str
    remedy: str
    """One line that the user can type or do."""

    def __str__(self) -> str:
        return f"{self.what}. What to do: {self.remedy}"


class SandboxError(Exception):
    """The backend failed before any untrusted code ran: the host's fault, not the guest's."""


class Guest(ABC):
    """One started guest. Its methods are called from the thread that started it."""

    @abstractmethod
    def exit(self) -> Exit | None:
        """How it ended, or None while it runs. Never blocks; stable once it has answered."""

    @abstractmethod
    def usage(self) -> Usage:
        """What it has used so far. Counters are read, nothing is waited for."""

    @abstractmethod
    def kill(self) -> Exit:
        """End every process of the guest, wait for that, clean up. Calling it again is harmless.

        A breach that was measured before the kill is in the answer. The log is complete after it.
        """


class Sandbox(ABC):
    """A way to start guests. Stateless: two processes may use it at once without knowing it."""

    name: str
    """As it stands in manifests, records and the leaderboard."""
    confined: bool = True
    """False for a backend whose results are never ranked."""

    @abstractmethod
    def problems(self) -> list[Problem]:
        """What keeps this backend from running here, with one remedy each. Takes under a second."""

    @abstractmethod
    def describe(self) -> Mapping[str, str]:
        """Facts for the record: backend, version, how limits are held, the guest's user."""

    @abstractmethod
    def start(
        self,
        channel: Path,
        limits: Limits,
        log: Path,
        environment: Mapping[str, str],
        program: Sequence[str] = GUEST_PROGRAM,
        data: Path | None = None,
    ) -> Guest:
        """Start the guest that connects to the socket in `channel`.

        `channel` is a directory that already holds the listening socket; the backend makes it
        reachable for the guest's user and for nobody else. `log` is created and gets the guest's
        stdout and stderr. `environment` holds extra variables for the guest (thread counts).
        `data` is a file that the guest may read, and map, at `GUEST_DATA`, and never write; many
        guests may have the same one at once.

        Raises SandboxError where the backend fails before the guest's interpreter has started.
        """


DEFAULT = "bubblewrap"
"""The backend that trials and evaluations use."""


def load_backend(name: str) -> Sandbox:
    """The backend in `sandbox/<name>.py`, which calls its class `Backend`. A new one is a new file.

    Raises SandboxError where there is none of that name.
    """
    path = Path(__file__).with_name(f"{name}.py")
    if not name.isidentifier() or not path.is_file():
        raise SandboxError(f"there is no sandbox called {name!r}")
    module = import_module(f"sandbox.{name}")
    backend: Sandbox = module.Backend()
    return backend
