"""Worlds of noise for a trial, in the shapes of real environments: nothing is simulated."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from sandbox import pixels, wire
from sandbox.guest.shapes import BadAction
from sandbox.pixels import SIDE, STACK, PixelTransition
from sandbox.wire import Transition

ENDS = 0.05
"""How likely a step is to terminate its episode, and as likely to cut it."""


class MadeUp(Protocol):
    """One world."""

    difference: ClassVar[str]
    """What `compared` holds numbers of, for a sentence."""

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

    def __init__(self, config: Mapping[str, Any]) -> None:
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
        return self._finite("get_action", answer)

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


class PixelWorld:
    """Frames of noise, rewards that are signs; of policies, the values of actions are compared.

    Their greedy actions would hardly ever differ.
    """

    difference: ClassVar[str] = "the value of an action"

    def __init__(self, config: Mapping[str, Any]) -> None:
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
}
"""By what a configuration calls its observations."""
