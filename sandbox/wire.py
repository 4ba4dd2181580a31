"""The frames that a host and a guest exchange: the whole protocol, used by both sides.

A frame is an 8-byte header and a payload, little-endian, over a Unix stream socket:

    offset  size  field
    0       1     kind, a `Kind`
    1       1     protocol version, `VERSION`
    2       2     zero
    4       4     payload length in bytes, at most the receiver's cap for that kind

The learner's conversation. The host waits for one frame at a time (lock step); `Metrics` alone has
no answer.

    guest                           host
    HELLO                                           our own code runs, nothing of a submission yet
                                    CONFIG          source, shapes, constants, seed
    IMPORTED                                        the source's module body has run
    BUILT       parameters                          the algorithm is constructed
                                    OBSERVATION     first observation of the first episode; empty
                                                    where there is no environment in training
    EXPORT      policy                              at step 0, at each evaluation point, at the end
                                    CONTINUE
    DRAW                                            where the host draws the action, at random
    ACTION      float32[A] or int32                 elsewhere
                                    TRANSITION      executed action, reward, ends, observations
                                                    (offline, for a DRAW: int32[B], a batch's rows)
    METRICS     name, value pairs                   seldom
    FAILURE     kind, line, text                    its last words

The actor's: HELLO, CONFIG, ARTEFACT (from the host), IMPORTED, READY, then OBSERVATIONS answered
by ACTIONS, one row for each of B episodes, until the host ends it. Observations are float32[O] or,
in tasks with pixels, what `sandbox/pixels.py` says. In an offline task the learner has a file
beside the socket: `sandbox/rows.py` says how its transitions lie there.

A trial's: HELLO, CONFIG, IMPORTED, then TRIED once for each of the environments in CONFIG.

No message can carry a score, a reward from the guest, a time or a path. The host never sees
anything but fixed-size numbers, an opaque artefact, and two kinds of text (names of metrics and
attributes, last words) that are escaped before a person sees them.

Errors: every way in which the other side can misbehave is a `WireError`; nothing else is raised for
bytes that came from it.
"""

import socket
import struct
import time
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

VERSION = 1
HEADER = struct.Struct("<BBHI")
_FAILURE = struct.Struct("<BI")
_TRIED = struct.Struct("<QQ")

MEBIBYTE = 1 << 20
MAX_METRICS = 64
MAX_METRIC_NAME_BYTES = 64
MAX_FAILURE_BYTES = 16 << 10
RECEIVE_BUFFER_BYTES = 64 << 10
MAX_CONFIG_BYTES = MEBIBYTE
SOURCE_NAME = "source.py"
"""What tracebacks call the accepted source: its file's name in an evaluation's directory."""

Float32 = NDArray[np.float32]


class Kind(IntEnum):
    """What a frame is. Below 32: from the guest; from 32: from the host."""

    HELLO = 1
    IMPORTED = 2
    BUILT = 3
    DRAW = 4
    ACTION = 5
    EXPORT = 6
    METRICS = 7
    FAILURE = 8
    READY = 9
    ACTIONS = 10
    TRIED = 11
    CONFIG = 32
    OBSERVATION = 33
    TRANSITION = 34
    CONTINUE = 35
    ARTEFACT = 36
    OBSERVATIONS = 37


class FailureKind(IntEnum):
    """Why a guest gives up."""

    EXCEPTION = 1
    OVER_BUDGET = 2
    BAD_ACTION = 3
    RELOADED_DIFFERS = 4


class Failure(NamedTuple):
    """A guest's last words."""

    kind: FailureKind
    line: int
    """Of the accepted source, 1-based, where it says that it was; 0 for nowhere. Not checked."""
    text: str


class Counts(NamedTuple):
    """What a trial says of one environment: a courtesy to honest submissions, like every count
    that a submission's own process makes."""

    parameters: int
    policy_bytes: int
    by_attribute: Mapping[str, int]
    """Parameters by attribute of the algorithm, the largest first, 64 at most."""


class WireError(Exception):
    """The other side did something that the protocol does not allow, or nothing at all."""


class Malformed(WireError):
    """Bytes that are no frame, a frame that is not allowed now, or a payload of the wrong shape."""


class TooLong(Malformed):
    """A frame over the receiver's cap for its kind."""

    def __init__(self, kind: Kind, length: int, cap: int) -> None:
        super().__init__(f"sent a {kind.name} frame of {length} bytes; {cap} at most")
        self.kind = kind
        self.length = length
        self.cap = cap


class Late(WireError):
    """The deadline passed before the frame was complete."""


class Closed(WireError):
    """The other side is gone."""


class Frame(NamedTuple):
    """One received frame."""

    kind: Kind
    payload: bytes


class Channel:
    """One end of a conversation over a connected stream socket. Not thread-safe.

    `caps` gives, for each kind that may arrive, the most payload bytes that are accepted: another
    kind, or a longer frame, is `Malformed` before a byte of its payload is read or allocated.
    """

    def __init__(self, connection: socket.socket, caps: Mapping[Kind, int]) -> None:
        self._socket = connection
        self._caps = {int(kind): cap for kind, cap in caps.items()}
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = 0
        self._end = 0

    def send(self, kind: Kind, *parts: bytes | memoryview, seconds: float | None = None) -> None:
        """Send one frame whose payload is `parts` joined.

        Raises Late where the other side does not read in time, Closed where it is gone.
        """
        length = sum(len(part) for part in parts)
        frame = b"".join((HEADER.pack(kind, VERSION, 0, length), *parts))
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(frame)
        except TimeoutError as error:
            raise Late(f"did not read {length} bytes in {seconds:.1f} s") from error
        except OSError as error:
            raise Closed(f"is gone ({error.strerror})") from error

    def receive(self, seconds: float | None = None) -> Frame:
        """Wait for one whole frame, at most `seconds`. Raises Malformed, Late or Closed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self._fill(HEADER.size, deadline)
        kind, version, zero, length = HEADER.unpack_from(self._buffer, self._begin)
        if version != VERSION or zero != 0:
            raise Malformed(f"sent bytes that are no frame header: {self._peek().hex(' ')}")
        cap = self._caps.get(kind)
        if cap is None:
            raise Malformed(f"sent a frame of kind {_kind_name(kind)}, which has no place here")
        if length > cap:
            raise TooLong(Kind(kind), length, cap)
        self._begin += HEADER.size
        return Frame(Kind(kind), self._take(length, deadline))

    def has_unasked_bytes(self) -> bool:
        """Whether the other side has sent something that nobody has waited for yet."""
        if self._begin != self._end:
            return True
        try:
            self._socket.settimeout(0)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False  # nothing there, or gone: the next receive says which

    def close(self) -> None:
        self._socket.close()

    def _peek(self) -> bytes:
        return bytes(self._view[self._begin : self._begin + HEADER.size])

    def _fill(self, size: int, deadline: float | None) -> None:
        """Have `size` bytes (at most the buffer's) between `_begin` and `_end`."""
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin + size > len(self._buffer):
            rest = bytes(self._view[self._begin : self._end])
            self._view[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        while self._end - self._begin < size:
            self._end += self._receive_into(self._view[self._end :], deadline)

    def _take(self, length: int, deadline: float | None) -> bytes:
        if length <= len(self._buffer):
            self._fill(length, deadline)
            payload = bytes(self._view[self._begin : self._begin + length])
            self._begin += length
            return payload
        whole = bytearray(length)
        have = self._end - self._begin
        whole[:have] = self._view[self._begin : self._end]
        self._begin = self._end = 0
        view = memoryview(whole)
        while have < length:
            have += self._receive_into(view[have:], deadline)
        return bytes(whole)

    def _receive_into(self, view: memoryview, deadline: float | None) -> int:
        try:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Late("sent no whole frame in time")
                self._socket.settimeout(left)
            else:
                self._socket.settimeout(None)
            count = self._socket.recv_into(view)
        except TimeoutError as error:
            raise Late("sent no whole frame in time") from error
        except OSError as error:
            raise Closed(f"is gone ({error.strerror})") from error
        if count == 0:
            raise Closed("closed the connection")
        return count


# --- payloads that a host decodes: every length and every number is checked -----------------------


def decode_count(payload: bytes) -> int:
    """A parameter count: one unsigned 64-bit integer."""
    if len(payload) != 8:
        raise Malformed(f"sent {len(payload)} bytes for a count of 8")
    (count,) = struct.unpack("<Q", payload)
    return int(count)


def decode_actions(payload: bytes, rows: int, action_dim: int) -> Float32:
    """Finite actions, float32 (rows, action_dim), in a copy that may be written to."""
    expected = 4 * rows * action_dim
    if len(payload) != expected:
        raise Malformed(
            f"sent actions of {len(payload)} bytes; {rows} x {action_dim} float32 are {expected}"
        )
    actions = np.frombuffer(payload, dtype="<f4").reshape(rows, action_dim).astype(np.float32)
    if not np.isfinite(actions).all():
        row, column = np.argwhere(~np.isfinite(actions))[0]
        raise Malformed(f"sent an action whose component {column} is {actions[row, column]}")
    return actions


def decode_metrics(payload: bytes) -> dict[str, float]:
    """Finite scalars by printable name; values that are not finite are left out."""
    if not payload or payload[0] > MAX_METRICS:
        raise Malformed("sent metrics without a count, or too many")
    metrics: dict[str, float] = {}
    offset = 1
    for _ in range(payload[0]):
        if offset >= len(payload):
            raise Malformed("sent metrics that end early")
        length = payload[offset]
        name = payload[offset + 1 : offset + 1 + length]
        number = payload[offset + 1 + length : offset + 9 + length]
        if not 0 < length <= MAX_METRIC_NAME_BYTES or len(name) != length or len(number) != 8:
            raise Malformed("sent metrics that end early, or a name of a forbidden length")
        (value,) = struct.unpack("<d", number)
        if np.isfinite(value):
            metrics[printable(name.decode("utf-8", "replace"))] = float(value)
        offset += 9 + length
    if offset != len(payload):
        raise Malformed("sent metrics with bytes behind the last")
    return metrics


def decode_failure(payload: bytes) -> Failure:
    """A guest's last words, their text with its control characters made visible."""
    if len(payload) < _FAILURE.size or payload[0] not in FailureKind._value2member_map_:
        raise Malformed("sent a failure of an unknown kind")
    kind, line = _FAILURE.unpack_from(payload)
    text = payload[_FAILURE.size :].decode("utf-8", "replace")
    return Failure(FailureKind(kind), line, printable(text, lines=True))


def decode_counts(payload: bytes) -> Counts:
    """One environment's counts, each a whole number below 2^53."""
    if len(payload) < _TRIED.size:
        raise Malformed(f"sent {len(payload)} bytes for the counts of a trial")
    parameters, policy_bytes = _TRIED.unpack_from(payload)
    by_attribute = decode_metrics(payload[_TRIED.size :])
    for count in (parameters, policy_bytes, *by_attribute.values()):
        if not (0 <= count < 1 << 53 and count == int(count)):
            raise Malformed(f"sent {count:.3g} for a count")
    if not all(map(str.isidentifier, by_attribute)):
        raise Malformed("sent counts by what are no names of attributes")
    whole = {name: int(count) for name, count in by_attribute.items()}
    return Counts(parameters, policy_bytes, whole)


def printable(text: str, lines: bool = False) -> str:
    """The text with everything that could steer a terminal or forge a layout written as an escape.

    `lines` keeps line feeds and tabs.
    """
    keep = "\n\t" if lines else ""
    return "".join(
        each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text
    )


# --- payloads that a guest encodes ----------------------------------------------------------------


def encode_count(count: int) -> bytes:
    return struct.pack("<Q", count)


def encode_metrics(metrics: Mapping[str, float]) -> bytes:
    """Names are cut to their cap; callers pass at most MAX_METRICS finite floats."""
    parts = [bytes([len(metrics)])]
    for name, value in metrics.items():
        encoded = name.encode("utf-8", "replace")[:MAX_METRIC_NAME_BYTES]
        parts += [bytes([len(encoded)]), encoded, struct.pack("<d", value)]
    return b"".join(parts)


def encode_failure(kind: FailureKind, text: str, line: int = 0) -> bytes:
    """The end of a long text is what is kept: a traceback's last lines say most."""
    kept = text.encode("utf-8", "replace")[-MAX_FAILURE_BYTES + _FAILURE.size :]
    return _FAILURE.pack(kind, line) + kept


def encode_counts(counts: Counts) -> bytes:
    largest = sorted(counts.by_attribute.items(), key=lambda item: -item[1])[:MAX_METRICS]
    named = {
        name if name.isidentifier() and name.isascii() else f"attribute_{number}": count
        for number, (name, count) in enumerate(largest, 1)
    }
    return _TRIED.pack(counts.parameters, counts.policy_bytes) + encode_metrics(named)


# --- transitions ----------------------------------------------------------------------------------

_TRANSITION = struct.Struct("<dBB6x")


class Transition(NamedTuple):
    """What one environment step did."""

    action: Float32
    """float32 (A,): the executed action: drawn by the host in the warm-up, else clipped."""
    reward: float
    terminated: bool
    """The episode reached a terminal state: nothing is to be bootstrapped from next_obs."""
    truncated: bool
    """The episode was cut by its time limit: next_obs is an ordinary state."""
    next_obs: Float32
    """float32 (O,): the state that the action led to, never that of the next episode."""
    obs: Float32
    """float32 (O,): what to act on next: next_obs, or the first observation of the next episode."""


def encode_transition(transition: Transition) -> bytes:
    parts = [
        _TRANSITION.pack(transition.reward, transition.terminated, transition.truncated),
        transition.action.tobytes(),
        transition.next_obs.tobytes(),
    ]
    if transition.terminated or transition.truncated:
        parts.append(transition.obs.tobytes())
    return b"".join(parts)


def decode_transition(payload: bytes, observation_dim: int, action_dim: int) -> Transition:
    """The guest's side: its host is trusted, so sizes are not checked again."""
    reward, terminated, truncated = _TRANSITION.unpack_from(payload)
    numbers = np.frombuffer(payload, dtype=np.float32, offset=_TRANSITION.size).copy()
    action = numbers[:action_dim]
    next_obs = numbers[action_dim : action_dim + observation_dim]
    ended = bool(terminated or truncated)
    obs = numbers[action_dim + observation_dim :] if ended else next_obs
    return Transition(action, reward, bool(terminated), bool(truncated), next_obs, obs)


# --- who may send what ----------------------------------------------------------------------------

MAX_METRICS_BYTES = 1 + MAX_METRICS * (1 + MAX_METRIC_NAME_BYTES + 8)


def learner_caps(action_bytes: int, artefact_bytes: int) -> dict[Kind, int]:
    """What a host accepts from a learner."""
    return {
        Kind.HELLO: 0,
        Kind.IMPORTED: 0,
        Kind.BUILT: 8,
        Kind.DRAW: 0,
        Kind.ACTION: action_bytes,
        Kind.EXPORT: artefact_bytes,
        Kind.METRICS: MAX_METRICS_BYTES,
        Kind.FAILURE: MAX_FAILURE_BYTES,
    }


def actor_caps(action_bytes: int, rows: int) -> dict[Kind, int]:
    """What a host accepts from an actor that acts on up to `rows` observations at once."""
    return {
        Kind.HELLO: 0,
        Kind.IMPORTED: 0,
        Kind.READY: 0,
        Kind.ACTIONS: rows * action_bytes,
        Kind.FAILURE: MAX_FAILURE_BYTES,
    }


TRIAL_CAPS: dict[Kind, int] = {
    Kind.HELLO: 0,
    Kind.IMPORTED: 0,
    Kind.TRIED: _TRIED.size + MAX_METRICS_BYTES,
    Kind.FAILURE: MAX_FAILURE_BYTES,
}
"""What a host accepts from a trial."""

HOST_CAPS: dict[Kind, int] = {
    Kind.CONFIG: MAX_CONFIG_BYTES,
    Kind.OBSERVATION: 16 * MEBIBYTE,
    Kind.TRANSITION: 16 * MEBIBYTE,
    Kind.CONTINUE: 0,
    Kind.ARTEFACT: 1 << 30,
    Kind.OBSERVATIONS: 256 * MEBIBYTE,
}
"""What a guest accepts from its host."""


def _kind_name(kind: int) -> str:
    return Kind(kind).name if kind in Kind._value2member_map_ else str(kind)
