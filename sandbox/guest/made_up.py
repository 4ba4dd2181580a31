"""Worlds of noise for a trial, in the shapes of real environments: nothing is simulated."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from sandbox import pixels, rows, wire
from sandbox.guest.shapes import BadAction
from sandbox.pixels import SIDE, STACK, PixelTransition
from sandbox.wire import Transition

ENDS = 0.05
"""How likely a step is to terminate its episode, and as likely to cut it."""
TRANSITIONS = 1024
"""Of a made-up dataset, whatever the real one has."""


class MadeUp(Protocol):
    """One world."""

    difference: ClassVar[str]
    """What `compared` holds numbers of, for a sentence."""
    config: Mapping[str, Any]
    """What it adds to the configuration that it was made of."""

    def begin(self) -> bytes:
        """The payload of OBSERVATION."""

    def step(self, action: bytes | None) -> bytes:
        """The payload of TRANSITION, for an action's payload, or for one that the world draws."""

    def observations(self, count: int) -> bytes:
        """The payload of OBSERVATIONS."""

    def compared(
        self, policy: torch.nn.Module, observations: torch.Tensor, answer: bytes
    ) -> np.ndarray:
        """Finite numbers by which two policies are told apart. Raises BadAction."""


class VectorWorld:
    """Normal observations and rewards; of policies, the actions are compared."""

    difference: ClassVar[str] = "a component of an action"
    acts: ClassVar[str] = "get_action"

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config: Mapping[str, Any] = {}
        self._generator = np.random.default_rng(config["seed"])
        self._observation_dim: int = config["observation_dim"]
        self._action_dim: int = config["action_dim"]
        self._bound: float = config["max_action"]

    def begin(self) -> bytes:
        return self.observations(1)

    def step(self, action: bytes | None) -> bytes:
        if action is None:
            taken = self._generator.uniform(-self._bound, self._bound, self._action_dim)
        else:
            taken = self._finite("select_action", action)[0]
        reward, end = self._generator.normal(), self._generator.random()
        transition = Transition(
            np.clip(taken, -self._bound, self._bound).astype(np.float32),
            float(reward),
            terminated=end < ENDS,
            truncated=end > 1 - ENDS,
            next_obs=self._noise(1)[0],
            obs=self._noise(1)[0],
        )
        return wire.encode_transition(transition)

    def observations(self, count: int) -> bytes:
        return self._noise(count).tobytes()

    def compared(
        self, policy: torch.nn.Module, observations: torch.Tensor, answer: bytes
    ) -> np.ndarray:
        return self._finite(self.acts, answer)

    def _noise(self, count: int) -> np.ndarray:
        return self._generator.standard_normal((count, self._observation_dim), dtype=np.float32)

    def _finite(self, method: str, payload: bytes) -> np.ndarray:
        actions = np.frombuffer(payload, dtype=np.float32).reshape(-1, self._action_dim)
        wrong = np.argwhere(~np.isfinite(actions))
        if len(wrong):
            row, column = wrong[0]
            problem = f"{actions[row, column]} as component {column} of an action"
            raise BadAction(method, f"{problem}; finite numbers are needed")
        return actions


class DatasetWorld(VectorWorld):
    """Transitions of noise, in a file; of policies, the actions are compared."""

    acts: ClassVar[str] = "sample_actions"

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._batch_size: int = config["constants"]["batch_size"]
        self._count = min(config["transitions"], TRANSITIONS)
        path = Path(tempfile.mkdtemp()) / "rows.npy"
        np.save(path, self._rows())
        self.config = {"dataset": str(path)}

    def begin(self) -> bytes:
        return b""

    def step(self, action: bytes | None) -> bytes:
        drawn = self._generator.integers(self._count, size=self._batch_size)
        return drawn.astype(np.int32).tobytes()

    def _rows(self) -> np.ndarray:
        where = rows.columns(self._observation_dim, self._action_dim)
        width = rows.row_length(self._observation_dim, self._action_dim)
        made = self._generator.standard_normal((self._count, width), dtype=np.float32)
        for actions in (where.actions, where.next_actions):
            made[:, actions] = np.clip(made[:, actions], -self._bound, self._bound)
        made[:, where.mask] = self._generator.random((self._count, 1)) > ENDS
        return made


class PixelWorld:
    """Frames of noise, rewards that are signs; of policies, the values of actions are compared.

    Their greedy actions would hardly ever differ.
    """

    difference: ClassVar[str] = "the value of an action"

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config: Mapping[str, Any] = {}
        self._generator = np.random.default_rng(config["seed"])
        self._actions: int = config["actions"]
        self._warm_up: int = config["constants"]["learning_starts"]
        self._steps = 0

    def begin(self) -> bytes:
        return pixels.encode_first_frame(self._frame(), self._host_draws())

    def step(self, action: bytes | None) -> bytes:
        taken = int(self._generator.integers(self._actions))
        if action is not None:
            taken = int(pixels.decode_actions(action, 1, self._actions)[0])
        self._steps += 1
        reward, end = self._generator.integers(-1, 1, endpoint=True), self._generator.random()
        terminated, truncated = end < ENDS, end > 1 - ENDS
        first = self._frame() if terminated or truncated else None
        transition = PixelTransition(
            taken, float(reward), terminated, truncated, self._frame(), first
        )
        return pixels.encode_transition(transition, self._host_draws())

    def observations(self, count: int) -> bytes:
        return self._noise(count, STACK, SIDE, SIDE).tobytes()

    def compared(
        self, policy: torch.nn.Module, observations: torch.Tensor, answer: bytes
    ) -> np.ndarray:
        with torch.no_grad():
            values = policy(observations).float().cpu().numpy()
        if values.shape != (len(observations), self._actions):
            needed = (len(observations), self._actions)
            raise BadAction("forward", f"values {values.shape}; {needed} are needed")
        if not np.isfinite(values).all():
            raise BadAction("forward", "values that are not finite")
        return values  # type: ignore[no-any-return]

    def _host_draws(self) -> bool:
        """The warm-up, and every other step: there is one of each kind between two updates."""
        return self._steps < self._warm_up or self._steps % 2 == 1

    def _frame(self) -> pixels.Frame:
        return self._noise(SIDE, SIDE)

    def _noise(self, *shape: int) -> np.ndarray:
        return self._generator.integers(256, size=shape, dtype=np.uint8)


MADE_UP: Mapping[str, Callable[[Mapping[str, Any]], MadeUp]] = {
    "vector": VectorWorld,
    "pixels": PixelWorld,
    "dataset": DatasetWorld,
}
"""By what a configuration calls its observations."""
