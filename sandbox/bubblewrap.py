"""Confines guests with bubblewrap: the backend for a machine where nothing else is installed.

As root, a guest is a real unprivileged user of its own and there is no user namespace: in one that
root made, "nobody" is still the host's root. As a normal user there has to be a user namespace.

Two threads touch a guest: the caller's, and one that reads its output, looks at its meter and
gathers how it ended.
"""

import contextlib
import itertools
import json
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

from sandbox import bubblewrap_options as options
from sandbox import bubblewrap_problems as preconditions
from sandbox import cgroup, packages, seccomp
from sandbox.base import (
    GUEST_PROGRAM,
    Breach,
    Exit,
    Guest,
    Limits,
    Problem,
    Sandbox,
    SandboxError,
    Usage,
)
from sandbox.meter import Meter, PollingMeter

# As root each guest has a uid that no other process has: 256 for each pid, which is under 2^22.
_FIRST_UID = 1_000_000_000
_UIDS_OF_A_LAUNCHER = 256

_START_SECONDS = 30.0
_END_SECONDS = 60.0  # a busy machine may take long to give back what many processes had
_WATCH_SECONDS = 0.05
_READ_BYTES = 1 << 16

# What each process may have open bounds what it can hold in pipes and sockets, which is no
# process's memory. Data loaders with several workers need some dozens.
_OPEN_FILES = 256
_RLIMIT_MSGQUEUE = 12  # of Linux; the resource module has no name for it
_FIRST_TO_GO = 1000  # the highest oom_score_adj

# Runs in the guest's interpreter before anything else and tells that it runs. No untrusted code
# has run by then, so a guest can neither forge this nor hold it back. Where nobody can hear it, the
# host was killed before bwrap had tied all of its processes to it, and the guest ends here.
_STARTED_HOOK = """\
import os
try:
    os.write({fd}, b"1")
    os.close({fd})
except OSError:
    os._exit(1)
"""

_uid_numbers = itertools.count()


class Bubblewrap(Sandbox):
    """Guests under bwrap: own namespaces, no network, seccomp, cgroups or polled limits."""

    name = "bubblewrap"

    def __init__(self, cgroups: bool = True) -> None:
        """`cgroups=False` holds the limits by polling even where cgroups can be made."""
        self._cgroups = cgroups

    def problems(self) -> list[Problem]:
        return preconditions.problems()

    def describe(self) -> Mapping[str, str]:
        groups = cgroup.describe() if self._cgroups else None
        return {
            "backend": self.name,
            "version": ".".join(map(str, preconditions.version())),
            "limits": groups or "polling of /proc, with resource limits",
            "user": "a uid of its own"
            if _is_root()
            else "the host's user, in a user namespace without rights",
            "seccomp": "refuses what sandbox/seccomp.json names",
        }

    def start(
        self,
        channel: Path,
        limits: Limits,
        log: Path,
        environment: Mapping[str, str],
        program: Sequence[str] = GUEST_PROGRAM,
        data: Path | None = None,
    ) -> Guest:
        if data is not None and not data.is_file():
            raise SandboxError(f"there is no file of data at {data}")
        uid = _new_uid() if _is_root() else None
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxError("bwrap is not installed")
        try:
            _hand_over(channel, uid)
            log.touch()
            meter = (cgroup.open_meter(limits) if self._cgroups else None) or PollingMeter(limits)
        except OSError as error:
            raise SandboxError(f"cannot prepare a sandbox: {error}") from error
        try:
            return _start(bwrap, uid, channel, limits, log, environment, program, data, meter)
        except OSError as error:
            meter.close()
            raise SandboxError(f"cannot start a sandbox: {error}") from error
        except SandboxError:
            meter.close()
            raise


Backend = Bubblewrap
"""What `load_backend` looks for."""


def _start(
    bwrap: str,
    uid: int | None,
    channel: Path,
    limits: Limits,
    log: Path,
    environment: Mapping[str, str],
    program: Sequence[str],
    data: Path | None,
    meter: Meter,
) -> "_BubblewrapGuest":
    with contextlib.ExitStack() as until_failure, contextlib.ExitStack() as until_start:
        output, output_end = _pipe(until_failure, until_start)
        status, status_end = _pipe(until_failure, until_start)
        started, started_end = _pipe(until_start, until_start)
        gate_end, gate = _pipe(until_start, until_start)
        inherited = [status_end, started_end, gate_end]

        def given(text: str | bytes) -> str:
            inherited.append(_memory_file(until_start, text))
            return str(inherited[-1].fileno())

        inner = uid if uid is not None else options.NOBODY
        arguments = [
            *options.namespaces(uid),
            *options.variables(environment),
            *options.file_system(channel, data, limits, uid),
            *("--perms", "0444", "--ro-bind-data", given(_passwd(inner)), "/etc/passwd"),
            *("--perms", "0444", "--ro-bind-data", given(f"guest:x:{inner}:\n"), "/etc/group"),
            *("--perms", "0444", "--ro-bind-data"),
            *(given(options.cpu_facts()), options.CPU_FACTS),
            *("--perms", "0444", "--ro-bind-data"),
            *(given(_STARTED_HOOK.format(fd=started_end.fileno())), "/code/sitecustomize.py"),
            *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", "/tmp", "--seccomp", given(seccomp.program())),
            *("--json-status-fd", str(status_end.fileno())),
            *("--block-fd", str(gate_end.fileno())),
        ]
        if any("\0" in argument for argument in arguments):
            raise SandboxError("a path or variable for the guest has a NUL byte in it")
        listed = given(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
        process = subprocess.Popen(
            [bwrap, "--args", listed, "--", *options.become(uid), packages.INTERPRETER, *program],
            stdin=subprocess.DEVNULL,
            stdout=output_end,
            stderr=output_end,
            env={},  # /proc/1/environ of the guest shows it
            pass_fds=[file.fileno() for file in inherited],
            start_new_session=True,  # Ctrl-C is for the host, which ends guests in its own way
        )
        for end in (output_end, status_end, started_end, gate_end):
            end.close()
        launch = _Launch(process, output, status)
        try:
            launch.meet_first_process()
            try:
                meter.admit(launch.pid)
                _restrain(launch.pid)
                gate.write(b"1")
            except (ProcessLookupError, BrokenPipeError):  # it has ended already
                raise launch.failure() from None
            launch.wait_for_interpreter(started)
        except BaseException:
            launch.abandon()
            raise
        until_failure.pop_all()
    return _BubblewrapGuest(launch, limits, log, meter)


class _Launch:
    """A bwrap process on its way to a running guest; then the handles on both."""

    def __init__(self, process: subprocess.Popen[bytes], output: FileIO, status: FileIO) -> None:
        self.process = process
        self.output = output
        self.status = status
        self.pid = 0
        self.pidfd: int | None = None
        """Of the sandbox's first process, whose end is the end of all."""
        self._deadline = time.monotonic() + _START_SECONDS

    def meet_first_process(self) -> None:
        line = b""
        while not line.endswith(b"\n"):  # reads can be partial
            self._wait(self.status)
            chunk = self.status.read(1)
            if not chunk:
                raise self.failure()
            line += chunk
        self.pid = json.loads(line)["child-pid"]
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise self.failure() from None

    def wait_for_interpreter(self, started: FileIO) -> None:
        self._wait(started)
        if not started.read(1):
            raise self.failure()

    def abandon(self) -> None:
        """Leave nothing of it. The pipes are closed by their owner."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        if self.pidfd is not None:
            # At the gate it is not tied to the process above yet.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            _readable(self.pidfd, _END_SECONDS)
            os.close(self.pidfd)
            self.pidfd = None

    def _wait(self, file: FileIO) -> None:
        if not _readable(file.fileno(), max(0.0, self._deadline - time.monotonic())):
            raise SandboxError(f"the guest's interpreter did not start in {_START_SECONDS:.0f} s")

    def failure(self) -> SandboxError:
        """bwrap, setpriv or the interpreter could not start; one of them has said why."""
        try:
            code = self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return SandboxError("bwrap hangs without having started the guest's interpreter")
        os.set_blocking(self.output.fileno(), False)
        said = (self.output.read(_READ_BYTES) or b"").decode(errors="replace").strip()
        if said:
            return SandboxError(said)
        return SandboxError(f"bwrap ended with status {code} before the guest's interpreter ran")


class _BubblewrapGuest(Guest):
    def __init__(self, launch: _Launch, limits: Limits, log: Path, meter: Meter) -> None:
        self._process = launch.process
        self._output = launch.output
        self._status = launch.status
        self._pidfd = launch.pidfd
        self._limits = limits
        self._log = log
        self._meter = meter
        self._breach: Breach | None = None
        self._exit: Exit | None = None
        self._failure: BaseException | None = None
        self._looking = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, name="guest watcher", daemon=True)
        self._watcher.start()

    def exit(self) -> Exit | None:
        return None if self._watcher.is_alive() else self._result()

    def usage(self) -> Usage:
        used = Usage(self._meter.cpu_seconds(), self._meter.peak_memory_bytes())
        # Looked at last: the counters go away when this is there.
        ended = self._exit
        return used if ended is None else Usage(ended.cpu_seconds, ended.peak_memory_bytes)

    def kill(self) -> Exit:
        if self._watcher.is_alive():
            # On a machine that a guest keeps busy the watcher's last look may be long ago.
            with contextlib.suppress(OSError, ValueError):
                self._look()
            self._end()
            self._watcher.join(_END_SECONDS)
            if self._watcher.is_alive():
                raise SandboxError(f"the guest did not end within {_END_SECONDS:.0f} s of SIGKILL")
        if self._pidfd is not None:
            os.close(self._pidfd)  # by this thread alone, which is the one that may yet use it
            self._pidfd = None
        return self._result()

    def _result(self) -> Exit:
        if self._exit is None:
            raise SandboxError(f"lost the log of a guest: {self._failure}") from self._failure
        return self._exit

    def _end(self) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _watch(self) -> None:
        """Until the guest has ended and all of its output is read."""
        try:
            ended = self._follow_and_gather()
            # A group that cannot be removed now is removed at the next start.
            with contextlib.suppress(OSError, SandboxError):
                self._meter.close()
            # Only a disk of the host can fail so, and no guest fills one.
            self._exit = ended if self._failure is None else None
        finally:
            self._output.close()
            self._status.close()

    def _follow_and_gather(self) -> Exit:
        try:
            log = self._log.open("wb", buffering=0)
        except OSError as error:
            self._failure = error
            return self._put_away()
        with log:
            try:
                self._follow(log)
                return self._gather()
            except Exception as error:  # noqa: BLE001 - whatever it is, a guest may be behind it
                ended = self._put_away()
                note = f"\n[the sandbox lost track of this guest and ended it: {error!r}]\n"
                self._write(log, note.encode(errors="replace"))
                return ended

    def _put_away(self) -> Exit:
        """End a guest that cannot be watched on, as if it had been killed from outside."""
        self._end()
        if self._pidfd is not None:
            _readable(self._pidfd, None)
        if self._process.returncode is None:
            self._process.wait()
        try:
            used = self.usage()
        except Exception:  # noqa: BLE001 - the meter may be what failed
            used = Usage(0.0, 0)
        return Exit(None, signal.SIGKILL, self._breach, *used)

    def _write(self, log: FileIO, data: bytes) -> None:
        try:
            log.write(data)
        except OSError as error:
            self._failure = error
            self._end()

    def _follow(self, log: FileIO) -> None:
        total = 0
        next_look = time.monotonic()
        for chunk in self._chunks():
            if chunk:
                kept = chunk[: max(0, self._limits.log_bytes - total)]
                if kept:
                    self._write(log, kept)
                total += len(chunk)
                if total > self._limits.output_bytes:
                    self._break(
                        Breach("output", self._limits.output_bytes, total, "bytes received")
                    )
            now = time.monotonic()
            if now >= next_look:
                spent = time.thread_time()
                self._look()
                # However many processes there are to look at: never more than a fifth of a core.
                cost = time.thread_time() - spent
                next_look = now + max(_WATCH_SECONDS, 5 * cost)
        if total > self._limits.log_bytes:
            note = f"\n[output beyond {self._limits.log_bytes} bytes is not kept]\n"
            self._write(log, note.encode())

    def _chunks(self) -> Iterator[bytes]:
        """The guest's output as it comes, with an empty chunk for each pause, to its end.

        The end is the guest's, not the pipe's: a guest may have sent the pipe's other end to the
        host, where it lies in a socket unread.
        """
        os.set_blocking(self._output.fileno(), False)
        ended = False
        while True:
            if not ended:
                _readable(self._output.fileno(), _WATCH_SECONDS, self._pidfd)
                ended = self._pidfd is None or _readable(self._pidfd, 0)
            chunk = self._output.read(_READ_BYTES)
            if chunk == b"" or (ended and chunk is None):
                return
            yield chunk or b""

    def _look(self) -> None:
        """Ask the meter, one thread at a time."""
        with self._looking:
            self._break(self._meter.breach())

    def _break(self, breach: Breach | None) -> None:
        """Record the first limit that is broken, and end the guest for it."""
        if breach is not None and self._breach is None:
            self._breach = breach
            self._end()

    def _gather(self) -> Exit:
        if self._pidfd is None or not _readable(self._pidfd, _END_SECONDS):
            raise SandboxError("the sandbox's first process does not end")
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        # The kernel may have killed for memory a moment before the guest ended.
        self._break(self._meter.breach())
        code, killer = self._end_of_program()
        cpu_seconds = max(self._meter.cpu_seconds(), used.ru_utime + used.ru_stime)
        return Exit(code, killer, self._breach, cpu_seconds, self._meter.peak_memory_bytes())

    def _end_of_program(self) -> tuple[int | None, int | None]:
        """Exit status and signal. bwrap tells a signal as 128 + its number, as shells do."""
        told = self._status.read(_READ_BYTES)
        for line in told.splitlines():
            code = json.loads(line).get("exit-code")
            if code is not None:
                if code - 128 in signal.valid_signals():
                    return None, code - 128
                return code, None
        # bwrap itself was killed from outside, and the guest with it.
        return None, signal.SIGKILL


def _restrain(pid: int) -> None:
    """What the sandbox's first process hands down, beside what the meter holds."""
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (0, 0))  # nor pages of files that all have
    resource.prlimit(pid, _RLIMIT_MSGQUEUE, (0, 0))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    files = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
    # Where the machine runs out of memory, guests go first, not their host.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(_FIRST_TO_GO))


def _hand_over(channel: Path, uid: int | None) -> None:
    """Make the socket's directory the guest's, and nobody else's."""
    channel.chmod(stat.S_IRWXU)
    if uid is not None:
        for path in (*channel.iterdir(), channel):
            os.chown(path, uid, uid, follow_symlinks=False)


def _new_uid() -> int:
    number = next(_uid_numbers) % _UIDS_OF_A_LAUNCHER
    return _FIRST_UID + os.getpid() * _UIDS_OF_A_LAUNCHER + number


def _passwd(uid: int) -> str:
    return f"guest:x:{uid}:{uid}::/tmp:/usr/sbin/nologin\n"


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """Its two ends, each closed with its stack at the latest."""
    reader, writer = os.pipe()
    return (
        reading.enter_context(FileIO(reader, "rb")),
        writing.enter_context(FileIO(writer, "wb")),
    )


def _memory_file(stack: contextlib.ExitStack, content: str | bytes) -> FileIO:
    file = stack.enter_context(FileIO(os.memfd_create("bwrap"), "r+b"))
    file.write(content.encode() if isinstance(content, str) else content)
    file.seek(0)
    return file


def _readable(fd: int, seconds: float | None, other: int | None = None) -> bool:
    """Whether one has something to read, or an end to be told, within that time."""
    poll = select.poll()  # unlike select, not limited to descriptors under 1024
    poll.register(fd, select.POLLIN)
    if other is not None:
        poll.register(other, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _is_root() -> bool:
    return os.geteuid() == 0
