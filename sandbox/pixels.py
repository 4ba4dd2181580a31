"""What host and guest agree on where observations are pixels: sizes, and the frames' payloads.

A learner is sent the newest frame alone, and whether the next action is the host's to draw: the
warm-up's, and those that epsilon's coin gives to chance. It stacks frames itself. An actor is sent
whole stacks, uint8 (B, 4, 84, 84). Actions are int32.
"""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sandbox.wire import Malformed

SIDE = 84
STACK = 4
FRAME_BYTES = SIDE * SIDE
ACTION_BYTES = 4

SPARE_FRAMES = 0.03
"""Frames that a replay buffer keeps beside those of its transitions, as a share: each episode's
last frame takes one."""
_SLOT_BYTES = FRAME_BYTES + 1 + 1 + 8 + 4 + 4
"""A frame, its age, whether an action was taken there, action, reward, done."""

Frame = NDArray[np.uint8]
"""uint8 (84, 84), gray."""

_OBSERVATION = struct.Struct("<B7x")
_TRANSITION = struct.Struct("<ifBBBx")


class PixelTransition(NamedTuple):
    """What one agent step did."""

    action: int
    """The executed one, whoever chose it."""
    reward: float
    """The sign of what the game gave: -1, 0 or 1."""
    terminated: bool
    """A life or the game was lost: nothing is to be bootstrapped from next_frame."""
    truncated: bool
    """The game was stopped at its longest."""
    next_frame: Frame
    """What the action led to."""
    first_frame: Frame | None
    """Of the next episode, where one has ended."""


def encode_first_frame(frame: Frame, host_draws: bool) -> bytes:
    return _OBSERVATION.pack(host_draws) + frame.tobytes()


def decode_first_frame(payload: bytes) -> tuple[Frame, bool]:
    """The guest's side: its host is trusted, so sizes are not checked again."""
    (host_draws,) = _OBSERVATION.unpack_from(payload)
    return _frame(payload, _OBSERVATION.size), bool(host_draws)


def encode_transition(transition: PixelTransition, host_draws: bool) -> bytes:
    parts = [
        _TRANSITION.pack(
            transition.action,
            transition.reward,
            transition.terminated,
            transition.truncated,
            host_draws,
        ),
        transition.next_frame.tobytes(),
    ]
    if transition.first_frame is not None:
        parts.append(transition.first_frame.tobytes())
    return b"".join(parts)


def decode_transition(payload: bytes) -> tuple[PixelTransition, bool]:
    """The transition, and whether the host draws the next action. As `decode_first_frame`."""
    action, reward, terminated, truncated, host_draws = _TRANSITION.unpack_from(payload)
    ended = bool(terminated or truncated)
    transition = PixelTransition(
        action,
        reward,
        bool(terminated),
        bool(truncated),
        _frame(payload, _TRANSITION.size),
        _frame(payload, _TRANSITION.size + FRAME_BYTES) if ended else None,
    )
    return transition, bool(host_draws)


def decode_actions(payload: bytes, rows: int, choices: int) -> NDArray[np.int32]:
    """Actions, int32 (rows,), each from 0 to `choices` - 1. Raises Malformed."""
    if len(payload) != ACTION_BYTES * rows:
        raise Malformed(f"sent {len(payload)} bytes for {rows} actions of {ACTION_BYTES}")
    actions = np.frombuffer(payload, dtype="<i4").astype(np.int32)
    wrong = actions[(actions < 0) | (actions >= choices)]
    if len(wrong):
        raise Malformed(f"sent the action {wrong[0]}; there are 0 to {choices - 1}")
    return actions


def frame_slots(capacity: int) -> int:
    """How many frames a replay buffer of that many transitions keeps."""
    return capacity + int(SPARE_FRAMES * capacity) + STACK + 1


def buffer_bytes(capacity: int) -> int:
    """Bytes of a replay buffer of that many transitions when it is full."""
    return frame_slots(capacity) * _SLOT_BYTES


def _frame(payload: bytes, offset: int) -> Frame:
    frame = np.frombuffer(payload, dtype=np.uint8, count=FRAME_BYTES, offset=offset)
    return frame.reshape(SIDE, SIDE)
