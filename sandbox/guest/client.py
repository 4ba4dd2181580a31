"""The training environment as a learner sees it: a socket behind a handful of methods.

The environment itself lives in the host, which counts its steps, draws what is left to chance, and
ends the learner when the last policy has arrived. A call that the task does not allow at that
moment ends the run there, whatever this file would permit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from sandbox import pixels, wire
from sandbox.guest.dataset import Dataset
from sandbox.guest.shapes import checked_choices, checked_shape
from sandbox.pixels import PixelTransition
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
    """One environment for one learner, from the first step to the last: what all kinds share.

    Attributes:
        constants: the task's numbers by name (`total_timesteps`, `gamma`, ...), as copies; offline
            also words and tuples.
        seed: of this run.
        device: where the algorithm's tensors live, "cpu" or "cuda".
        parameter_budget: how many parameters the algorithm may hold, all networks counted.
    """

    policy: ClassVar[str]
    """The attribute of an algorithm that is exported, a module."""

    def __init__(self, channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> None:
        self._channel = channel
        self._watchdog = watchdog
        self.constants: dict[str, Any] = {
            # JSON knows lists alone, which could be changed.
            name: tuple(value) if isinstance(value, list) else value
            for name, value in config["constants"].items()
        }
        self.seed: int = config["seed"]
        self.device: str = config["device"]
        self.parameter_budget: int = config["parameter_budget"]
        self._export_steps = frozenset(config["export_steps"])
        self._steps = 0
        self._warned = False

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

    def _begin(self, parameters: int) -> bytes:
        payload = self._ask(Kind.OBSERVATION, Kind.BUILT, wire.encode_count(parameters))
        self._watchdog.started()
        return payload

    def _step(self, kind: Kind, payload: bytes) -> bytes:
        answer = self._ask(Kind.TRANSITION, kind, payload)
        self._steps += 1
        return answer

    def _ask(self, expected: Kind, kind: Kind, payload: bytes) -> bytes:
        self._watchdog.rest()
        self._channel.send(kind, payload)
        frame = self._channel.receive()
        self._watchdog.watch()
        if frame.kind is not expected:
            raise wire.Malformed(f"the host sent {frame.kind.name} where {expected.name} was due")
        return frame.payload


class _Vectors(TrainingEnvironment):
    """What those share whose observations and actions are vectors, float32."""

    acts: ClassVar[str]
    """What a submission calls the method that acts, for a message."""

    def __init__(self, channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> None:
        super().__init__(channel, watchdog, config)
        self.observation_dim: int = config["observation_dim"]
        self.action_dim: int = config["action_dim"]
        self.max_action: float = config["max_action"]

    def observations(self, payload: bytes) -> torch.Tensor:
        """What an evaluator asks about: float32 (B, O)."""
        rows = np.frombuffer(payload, dtype=np.float32).reshape(-1, self.observation_dim)
        return torch.from_numpy(rows.copy()).to(self.device)

    def answer(self, actions: Any, rows: int) -> bytes:
        """The policy's actions (B, A) for so many observations. Raises BadAction."""
        return checked_shape(self.acts, actions, (rows, self.action_dim)).tobytes()


class VectorEnvironment(_Vectors):
    """Observations and actions are vectors, float32.

    Attributes:
        observation_dim, action_dim: sizes of an observation and of an action.
        max_action: bound of every action component; the other bound is its negative.
    """

    policy = "actor"
    acts = "get_action"

    def begin(self, parameters: int) -> np.ndarray:
        """Tell the host that the algorithm stands; returns the first observation, float32 (O,)."""
        return np.frombuffer(self._begin(parameters), dtype=np.float32).copy()

    def step_at_random(self) -> Transition:
        """One step of the warm-up: the host draws the action, uniformly, and says which it was."""
        return self._transition(Kind.DRAW, b"")

    def step(self, action: np.ndarray) -> Transition:
        """Execute `action` (A,), clipped by the host to the bounds; `Transition.action` is it."""
        checked = checked_shape("select_action", action, (self.action_dim,))
        return self._transition(Kind.ACTION, checked.tobytes())

    def _transition(self, kind: Kind, payload: bytes) -> Transition:
        answer = self._step(kind, payload)
        return wire.decode_transition(answer, self.observation_dim, self.action_dim)


class PixelEnvironment(TrainingEnvironment):
    """Observations are gray frames, uint8 (84, 84); actions are numbers from 0 on.

    Attributes:
        actions: how many there are.
        host_draws: whether the next action is drawn by the host, uniformly: in the warm-up, and
            where epsilon's coin, which is the host's too, gives the step to chance. Then
            `step_at_random` is due, elsewhere `step`.
    """

    policy = "q_network"

    def __init__(self, channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> None:
        super().__init__(channel, watchdog, config)
        self.actions: int = config["actions"]
        self.host_draws = False

    def begin(self, parameters: int) -> pixels.Frame:
        """Tell the host that the algorithm stands; returns the first frame."""
        frame, self.host_draws = pixels.decode_first_frame(self._begin(parameters))
        return frame

    def step_at_random(self) -> PixelTransition:
        """One step with an action that the host draws; `PixelTransition.action` is it."""
        return self._transition(Kind.DRAW, b"")

    def step(self, action: np.ndarray) -> PixelTransition:
        """Execute the one action in `action`, an integer array (1,)."""
        checked = checked_choices("select_action", action, 1, self.actions)
        return self._transition(Kind.ACTION, checked.tobytes())

    def observations(self, payload: bytes) -> torch.Tensor:
        """What an evaluator asks about: stacks, uint8 (B, 4, 84, 84)."""
        stacks = np.frombuffer(payload, dtype=np.uint8)
        stacks = stacks.reshape(-1, pixels.STACK, pixels.SIDE, pixels.SIDE)
        return torch.from_numpy(stacks.copy()).to(self.device)

    def answer(self, actions: Any, rows: int) -> bytes:
        """The policy's actions (B,) for so many observations. Raises BadAction."""
        return checked_choices("q_network", actions, rows, self.actions).tobytes()

    def _transition(self, kind: Kind, payload: bytes) -> PixelTransition:
        transition, self.host_draws = pixels.decode_transition(self._step(kind, payload))
        return transition


class DatasetEnvironment(_Vectors):
    """No environment at all: a fixed dataset of transitions, of vectors in float32.

    Attributes:
        observation_dim, action_dim: sizes of an observation and of an action.
        max_action: bound of every action component; the other bound is its negative.
        transitions: how many there are.
    """

    policy = "policy"
    acts = "sample_actions"

    def __init__(self, channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> None:
        super().__init__(channel, watchdog, config)
        self.transitions: int = config["transitions"]
        self._path: str = config.get("dataset", "")

    def dataset(self) -> Dataset:
        """The data, mapped into memory. A learner alone has them: an actor has no use for them."""
        if not self._path:
            raise RuntimeError("there are no data here: a policy that acts has had them")
        device = torch.device(self.device)
        return Dataset(Path(self._path), self.observation_dim, self.action_dim, device)

    def begin(self, parameters: int) -> None:
        """Tell the host that the algorithm stands."""
        self._begin(parameters)

    def draw(self) -> np.ndarray:
        """The rows of the next batch, int32 (B,): the host draws them, and counts the step."""
        return np.frombuffer(self._step(Kind.DRAW, b""), dtype=np.int32)


AnyEnvironment = VectorEnvironment | PixelEnvironment | DatasetEnvironment

KINDS: Mapping[str, type[VectorEnvironment] | type[PixelEnvironment] | type[DatasetEnvironment]] = {
    "vector": VectorEnvironment,
    "pixels": PixelEnvironment,
    "dataset": DatasetEnvironment,
}
"""By what a configuration calls its observations."""


def environment_of(channel: Line, watchdog: Clock, config: Mapping[str, Any]) -> AnyEnvironment:
    """The environment that a host's configuration describes."""
    return KINDS[config["observations"]](channel, watchdog, config)


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
