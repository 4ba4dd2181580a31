"""The training environment as a learner sees it: a socket behind five methods.

The environment itself lives in the host, which counts its steps, draws the warm-up and ends the
learner when the last policy has arrived. A call that the task does not allow at that moment ends
the run there, whatever this file would permit.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from sandbox import wire
from sandbox.guest.shapes import checked_shape
from sandbox.wire import Frame, Kind, Transition


class Line(Protocol):
    """What carries frames to the host and its answers back: a `wire.Channel`."""

    def send(self, kind: Kind, payload: bytes, /) -> None: ...

    def receive(self) -> Frame: ...


class Clock(Protocol):
    """What watches how long the submission's code takes: a `Watchdog`."""

    def watch(self) -> None: ...

    def rest(self) -> None: ...

    def started(self) -> None: ...


class TrainingEnvironment:
    """One environment for one learner, from the first step to the last.

    Attributes:
        observation_dim, action_dim: sizes of an observation and of an action, both 1-D float32.
        max_action: bound of every action component; the other bound is its negative.
        constants: the task's numbers by name (`total_timesteps`, `gamma`, ...), as copies.
        seed: of this run.
        device: where the algorithm's tensors live, "cpu" or "cuda".
        parameter_budget: how many parameters the algorithm may hold, all networks counted.
    """

    def __init__(self, channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> None:
        self._channel = channel
        self._watchdog = watchdog
        self.observation_dim: int = config["observation_dim"]
        self.action_dim: int = config["action_dim"]
        self.max_action: float = config["max_action"]
        self.constants: dict[str, int | float] = dict(config["constants"])
        self.seed: int = config["seed"]
        self.device: str = config["device"]
        self.parameter_budget: int = config["parameter_budget"]
        self._export_steps = frozenset(config["export_steps"])
        self._steps = 0
        self._warned = False

    def begin(self, parameters: int) -> np.ndarray:
        """Tell the host that the algorithm stands; returns the first observation, float32 (O,)."""
        payload = self._ask(Kind.OBSERVATION, Kind.BUILT, wire.encode_count(parameters))
        self._watchdog.started()
        return np.frombuffer(payload, dtype=np.float32).copy()

    def step_at_random(self) -> Transition:
        """One step of the warm-up: the host draws the action, uniformly, and says which it was."""
        return self._transition(Kind.WARMUP, b"")

    def step(self, action: np.ndarray) -> Transition:
        """Execute `action` (A,), clipped by the host to the bounds; `Transition.action` is it."""
        checked = checked_shape("select_action", action, (self.action_dim,))
        return self._transition(Kind.ACTION, checked.tobytes())

    @property
    def export_due(self) -> bool:
        """Whether the policy is to be exported now: at step 0 and at each evaluation point."""
        return self._steps in self._export_steps

    def export(self, artefact: bytes) -> None:
        """Hand over the policy as it is now. The last one ends the learner."""
        self._ask(Kind.CONTINUE, Kind.EXPORT, artefact)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Hand over scalars for the log; other things, and more than 64, are left out and said."""
        if not isinstance(metrics, Mapping):
            raise TypeError(f"update must return a dict of scalars; it returned {metrics!r:.80}")
        kept: dict[str, float] = {}
        for name, value in metrics.items():
            number = _scalar(value)
            if number is not None and len(kept) < wire.MAX_METRICS:
                kept[str(name) or "unnamed"] = number
            elif not self._warned:
                print(f"log: metric {name!r} is left out: finite scalars only, 64 at most")
                self._warned = True
        self._channel.send(Kind.METRICS, wire.encode_metrics(kept))

    def _transition(self, kind: Kind, payload: bytes) -> Transition:
        answer = self._ask(Kind.TRANSITION, kind, payload)
        self._steps += 1
        return wire.decode_transition(answer, self.observation_dim, self.action_dim)

    def _ask(self, expected: Kind, kind: Kind, payload: bytes) -> bytes:
        self._watchdog.rest()
        self._channel.send(kind, payload)
        frame = self._channel.receive()
        self._watchdog.watch()
        if frame.kind is not expected:
            raise wire.Malformed(f"the host sent {frame.kind.name} where {expected.name} was due")
        return frame.payload


def _scalar(value: Any) -> float | None:
    """The value as a finite float, or None where it is no scalar."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        value = value.item()
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if np.isfinite(number) else None
