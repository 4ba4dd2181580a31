"""One conversation with one guest: start it, accept its only connection, ask, measure, end it."""

import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.verdict import (
    GuestFault,
    InfrastructureError,
    Vanished,
    failure,
    log_tail,
    policy_too_big,
    too_late,
)
from sandbox import wire
from sandbox.base import SOCKET_NAME, Exit, Limits, Sandbox, SandboxError, Usage
from sandbox.wire import Frame, Kind

HELLO_SECONDS = 120.0
"""For a sandbox and an interpreter to start under load: nothing of a submission runs yet."""

EXIT_PATIENCE_SECONDS = 3.0
"""From the end of a connection to the end of the process: then it is killed, and that is said."""

_SOCKET_PREFIX = "touchstone-"
_SOCKET_PARENTS = ("/tmp", "/dev/shm", "/var/tmp")
"""Short, whatever TMPDIR or the checkout's path are: a Unix socket's path has 107 bytes at most."""


class GuestSession:
    """A started guest and the channel to it. Use as a context: leaving it kills the guest.

    Time is the guest's own thinking time: from the sending of a frame to the arrival of its answer.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        limits: Limits,
        log: Path,
        variables: Mapping[str, str],
        caps: Mapping[Kind, int],
        frame_seconds: float,
        thinking_limit_seconds: float,
        data: Path | None = None,
    ) -> None:
        """`data`: a file that the guest may read (`sandbox.base.GUEST_DATA`)."""
        self.thinking_seconds = 0.0
        self._configured = False
        self._frame_seconds = frame_seconds
        self._thinking_limit = thinking_limit_seconds
        self._thinking_name = "thinking time of the run"
        self._log = log
        self._directory = short_directory()
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(self._directory / SOCKET_NAME))
            listener.listen(1)
            self._guest = sandbox.start(self._directory, limits, log, variables, data=data)
        except (OSError, SandboxError) as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise InfrastructureError(f"the sandbox did not start: {error}") from error
        try:
            with listener:
                # One guest, one connection: the listener is closed as soon as it has come.
                self._channel = wire.Channel(self._accept(listener), caps)
            self._receive(HELLO_SECONDS, {Kind.HELLO})
        except (GuestFault, Vanished, InfrastructureError) as error:
            self.end()
            raise InfrastructureError(
                f"the guest did not say hello ({error}); its log ends: {log_tail(log)[-500:]!r}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def restart_clock(self, limit_seconds: float, name: str) -> None:
        """Count thinking time from zero, against a limit of its own with that name."""
        self.thinking_seconds = 0.0
        self._thinking_limit = limit_seconds
        self._thinking_name = name

    def configure(self, config: Mapping[str, Any]) -> None:
        """Hand over the source and all that a guest may know. From here on faults are its own."""
        self._configured = True
        self._send(Kind.CONFIG, json.dumps(config).encode())

    def give(self, kind: Kind, payload: bytes) -> None:
        """Send a frame that has no answer of its own."""
        self._send(kind, payload)

    def await_(self, expected: set[Kind], seconds: float) -> Frame:
        """Wait for one of the expected frames without sending anything. Counts as thinking."""
        return self._receive(seconds, expected)

    def ask(self, kind: Kind, payload: bytes, expected: set[Kind]) -> Frame:
        """Send a frame and wait for its answer, within the frame's deadline and the thinking time.

        Raises GuestFault or Vanished for everything that the guest can do wrong.
        """
        self._send(kind, payload)
        return self._receive(self._frame_seconds, expected)

    def usage(self) -> Usage:
        """What the guest has used so far."""
        return self._guest.usage()

    def end_after(self, fault: GuestFault | Vanished) -> Exit:
        """`end`; a guest that has just closed its socket gets a moment to show how it exits."""
        if isinstance(fault, Vanished):
            deadline = time.monotonic() + EXIT_PATIENCE_SECONDS
            while self._guest.exit() is None:
                if time.monotonic() >= deadline:
                    # It lives, so how it ends is our doing and tells nothing.
                    return self.end()._replace(code=None, signal=None)
                time.sleep(0.01)
        return self.end()

    def end(self) -> Exit:
        """Kill the guest and remove its socket. Calling it again is harmless.

        Raises SandboxError where the backend fails and the guest had not been configured yet. After
        that a submission may have made it fail, so it is told like any other end: by a signal.
        """
        if hasattr(self, "_channel"):
            self._channel.close()
        try:
            return self._guest.kill()
        except SandboxError:
            if not self._configured:
                raise
            return Exit(None, signal.SIGKILL, None, 0.0, 0)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _send(self, kind: Kind, payload: bytes) -> None:
        # Lock step: whoever answers ahead of a question could think while the host's clock rests.
        if self._channel.has_unasked_bytes():
            raise GuestFault("protocol-violation", "it sent a frame before it was asked for one")
        began = time.monotonic()
        try:
            self._channel.send(kind, payload, seconds=self._frame_seconds)
        except wire.Late as error:
            waited = time.monotonic() - began
            raise too_late("deadline of a frame", self._frame_seconds, waited) from error
        except wire.Closed:
            # It may have said why before it went: then that is raised instead.
            self._receive(self._frame_seconds, set())
        finally:
            self.thinking_seconds += time.monotonic() - began

    def _receive(self, seconds: float, expected: set[Kind]) -> Frame:
        left = self._thinking_limit - self.thinking_seconds
        began = time.monotonic()
        try:
            frame = self._channel.receive(max(min(seconds, left), 0.0))
        except wire.Late as error:
            waited = time.monotonic() - began
            if left < seconds:
                raise too_late(
                    self._thinking_name, self._thinking_limit, self.thinking_seconds + waited
                ) from error
            raise too_late("deadline of a frame", seconds, waited) from error
        except wire.Closed as error:
            raise Vanished(str(error)) from error
        except wire.TooLong as error:
            if error.kind is Kind.EXPORT:
                raise policy_too_big(error.length, error.cap) from error
            raise GuestFault("protocol-violation", f"it {error}") from error
        except wire.Malformed as error:
            raise GuestFault("protocol-violation", f"it {error}") from error
        finally:
            self.thinking_seconds += time.monotonic() - began
        if frame.kind is Kind.FAILURE:
            try:
                words = wire.decode_failure(frame.payload)
            except wire.Malformed as error:
                raise GuestFault("protocol-violation", f"it {error}") from error
            raise failure(words)
        if not expected:
            raise Vanished("it closed its connection")
        if frame.kind not in expected:
            due = " or ".join(sorted(each.name for each in expected))
            raise GuestFault("protocol-violation", f"it sent {frame.kind.name} where {due} is due")
        return frame

    def _accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + HELLO_SECONDS
        listener.settimeout(0.1)
        while time.monotonic() < deadline:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                ended = self._guest.exit()
                if ended is not None:
                    raise InfrastructureError(f"it {ended.describe()}") from None
            else:
                return connection
        raise InfrastructureError(f"no connection within {HELLO_SECONDS:.0f} s")


def short_directory() -> Path:
    """A fresh directory with a short path. Those of processes that were killed are removed."""
    parent = next(
        (Path(each) for each in _SOCKET_PARENTS if os.access(each, os.W_OK | os.X_OK)), None
    )
    if parent is None:
        raise InfrastructureError(f"none of {', '.join(_SOCKET_PARENTS)} can be written to")
    for left in parent.glob(f"{_SOCKET_PREFIX}[0-9]*-*"):
        pid = left.name.removeprefix(_SOCKET_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_SOCKET_PREFIX}{os.getpid()}-", dir=parent))
