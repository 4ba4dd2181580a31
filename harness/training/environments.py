"""Building environments: the one place for every setting that changes a score.

Nothing outside this file calls `gymnasium.make`. What is made is asserted against the task's table
and described for the record, because versions of MuJoCo environments differ in rewards and shapes
under nearly the same name (facts: Ant-v4 has 27 observations, Ant-v5 105).
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from harness.task import Environment
from harness.verdict import Diverged


def _pass_on(warning: str) -> None:
    """MuJoCo's own handler prints to the terminal and leaves a file in the working directory."""
    if "deprecated" not in warning:
        print(f"mujoco: {warning}", file=sys.stderr)


mujoco.set_mju_user_warning(_pass_on)

Settings = Mapping[str, str | int | float | bool]
GymEnvironment = gymnasium.Env[NDArray[Any], NDArray[np.float32]]

OBSERVATION_DTYPE = np.float32
"""MuJoCo's are float64; guests and replay buffers get float32, as in all published codes."""

_RECORDED_PREFIXES = ("_healthy", "_terminate", "_reset_noise", "_ctrl_cost", "_contact_cost")
_RECORDED_SUFFIXES = ("_weight", "_from_observation", "_contact_forces")


class EnvironmentMismatch(Exception):
    """The environment that was made is not the one that the task describes."""


def make(environment: Environment) -> GymEnvironment:
    """The environment with its time limit and nothing else around it. Never rendered.

    Raises EnvironmentMismatch where shapes, bounds or the time limit are not the task's, or where
    there is no such environment.
    """
    with warnings.catch_warnings():
        # v4 is what published numbers were made with; gymnasium says each time that v5 exists.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*is out of date.*")
        try:
            made: GymEnvironment = gymnasium.make(environment.id, disable_env_checker=True)
        except gymnasium.error.Error as error:
            raise EnvironmentMismatch(f"{environment.id}: {error}") from error
    space = made.action_space
    if not isinstance(space, gymnasium.spaces.Box) or made.spec is None:
        raise EnvironmentMismatch(f"{environment.id} has no continuous actions")
    found = {
        "observation_dim": (made.observation_space.shape, (environment.observation_dim,)),
        "action_dim": (space.shape, (environment.action_dim,)),
        "max_action": (
            np.unique(np.abs([space.low, space.high])).tolist(),
            [float(np.float32(environment.max_action))],
        ),
        "time_limit": (made.spec.max_episode_steps, environment.time_limit),
    }
    for name, (is_, should_be) in found.items():
        if is_ != should_be:
            raise EnvironmentMismatch(
                f"{environment.id}: {name} is {is_}, the task says {should_be}"
            )
    return made


def settings(made: GymEnvironment) -> Settings:
    """Every setting of an environment that changes a score, for its record."""
    inner = made.unwrapped
    recorded: dict[str, str | int | float | bool] = {
        "id": made.spec.id if made.spec else "",
        "time_limit": (made.spec.max_episode_steps or 0) if made.spec else 0,
        "frame_skip": int(getattr(inner, "frame_skip", 1)),
        "gymnasium": gymnasium.__version__,
    }
    for name, value in vars(inner).items():
        if name.startswith(_RECORDED_PREFIXES) or name.endswith(_RECORDED_SUFFIXES):
            recorded[name.lstrip("_")] = value if isinstance(value, int | float) else str(value)
    return recorded


class SteppedEnvironment:
    """One environment, stepped with finite float32 actions that are clipped to its bounds.

    Raw rewards are summed here and nowhere else: no wrapper and no info key is relied upon.
    """

    def __init__(self, environment: Environment) -> None:
        self._made = make(environment)
        self.settings = settings(self._made)
        self._bound = np.float32(environment.max_action)
        self.episode_return = 0.0
        self.episode_length = 0

    def reset(self, seed: int | None) -> NDArray[np.float32]:
        """Begin an episode; float32 (O,). None goes on with the environment's own stream."""
        obs, _ = self._made.reset(seed=seed)
        self.episode_return, self.episode_length = 0.0, 0
        return obs.astype(OBSERVATION_DTYPE)

    def clip(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """The action as it will be executed."""
        return np.clip(action, -self._bound, self._bound)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool]:
        """Execute a clipped action: next observation float32 (O,), reward, terminated, truncated.

        Raises Diverged where the simulation itself has left the finite numbers.
        """
        obs, reward, terminated, truncated, _ = self._made.step(action)
        self.episode_return += float(reward)
        self.episode_length += 1
        next_obs = obs.astype(OBSERVATION_DTYPE)
        if not (np.isfinite(self.episode_return) and np.isfinite(next_obs).all()):
            raise Diverged
        return next_obs, float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        self._made.close()
