"""Continuous control: MuJoCo's environments, every setting of them, and how a run steps them.

What is made is asserted against the task's table and described for the record, because versions of
MuJoCo environments differ in rewards and shapes under nearly the same name (facts: Ant-v4 has 27
observations, Ant-v5 105).
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from harness.keys import Purpose
from harness.records import Plan
from harness.task import ContinuousControl, Environment
from harness.training.environments import EnvironmentMismatch, SeedOf, Settings
from harness.verdict import Diverged
from sandbox import wire
from sandbox.wire import Transition


def _pass_on(warning: str) -> None:
    """MuJoCo's own handler prints to the terminal and leaves a file in the working directory."""
    if "deprecated" not in warning:
        print(f"mujoco: {warning}", file=sys.stderr)


mujoco.set_mju_user_warning(_pass_on)

GymEnvironment = gymnasium.Env[NDArray[Any], NDArray[np.float32]]

OBSERVATION_DTYPE = np.float32
"""MuJoCo's are float64; guests and replay buffers get float32, as in all published codes."""

_RECORDED_PREFIXES = ("_healthy", "_terminate", "_reset_noise", "_ctrl_cost", "_contact_cost")
_WARM_UP_STREAM = 1  # of a run's seed: the environment itself uses stream 0

_RECORDED_SUFFIXES = ("_weight", "_from_observation", "_contact_forces")


def make(environment: ContinuousControl) -> GymEnvironment:
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
    return checked(made, environment)


def checked(made: GymEnvironment, environment: ContinuousControl) -> GymEnvironment:
    """What was made. Raises EnvironmentMismatch where it is not what the task says."""
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

    Raw rewards are summed here and nowhere else: no wrapper is relied upon.
    """

    stopped = False
    """A time limit is part of these environments: no episode is stopped by us."""

    def __init__(self, environment: ContinuousControl) -> None:
        self._made = self._make(environment)
        self.settings = self._settings(environment)
        self._bound = np.float32(environment.max_action)
        self.episode_return = 0.0
        self.episode_length = 0

    def _make(self, environment: ContinuousControl) -> GymEnvironment:
        return make(environment)

    def _settings(self, environment: ContinuousControl) -> Settings:
        return settings(self._made)

    def reset(self, seed: int | None) -> NDArray[np.float32]:
        """Begin an episode; float32 (O,). None goes on with the environment's own stream."""
        obs, _ = self._made.reset(seed=seed)
        self.episode_return, self.episode_length = 0.0, 0
        return obs.astype(OBSERVATION_DTYPE)

    def clip(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """The action as it will be executed."""
        return np.clip(action, -self._bound, self._bound)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], bool]:
        """Execute a clipped action: next observation float32 (O,), whether the episode is over.

        Raises Diverged where the simulation itself has left the finite numbers.
        """
        obs, _, terminated, truncated = self.transition(action)
        return obs, terminated or truncated

    def transition(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool]:
        """As `step`: next observation float32 (O,), reward, terminated, truncated."""
        obs, reward, terminated, truncated, _ = self._made.step(action)
        self.episode_return += float(reward)
        self.episode_length += 1
        next_obs = obs.astype(OBSERVATION_DTYPE)
        if not (np.isfinite(self.episode_return) and np.isfinite(next_obs).all()):
            raise Diverged
        return next_obs, float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        self._made.close()


class VectorEpisodes:
    """A run's training environment, stepped as the run's seed prescribes."""

    def __init__(self, environment: ContinuousControl, plan: Plan, seed: int) -> None:
        self.returns: list[float] = []
        self._seed = seed
        self._stepped = SteppedEnvironment(environment)
        self._warm_up = np.random.default_rng([seed, _WARM_UP_STREAM])
        self._warm_up_steps = plan.profile.learning_starts
        self._steps = 0
        self._bound = np.float32(environment.max_action)
        self._action_dim = environment.action_dim

    @property
    def settings(self) -> Settings:
        return self._stepped.settings

    @property
    def host_draws(self) -> bool:
        return self._steps < self._warm_up_steps

    def begin(self) -> bytes:
        return self._stepped.reset(self._seed).tobytes()

    def draw(self) -> NDArray[np.float32]:
        """Uniform between the bounds, float32 (A,)."""
        drawn = self._warm_up.uniform(-self._bound, self._bound, self._action_dim)
        return drawn.astype(np.float32)

    def decode(self, payload: bytes) -> NDArray[np.float32]:
        (action,) = wire.decode_actions(payload, 1, self._action_dim)
        return action  # type: ignore[no-any-return]

    def take(self, action: NDArray[np.float32]) -> bytes:
        """One step with a finite action (A,), clipped here; a new episode where one ends."""
        action = self._stepped.clip(action)
        next_obs, reward, terminated, truncated = self._stepped.transition(action)
        self._steps += 1
        obs = next_obs
        if terminated or truncated:
            self.returns.append(self._stepped.episode_return)
            obs = self._stepped.reset(None)
        return wire.encode_transition(
            Transition(action, reward, terminated, truncated, next_obs, obs)
        )

    def close(self) -> None:
        self._stepped.close()


class Continuous:
    """The family."""

    def second(self, environment: Environment) -> None:
        """Starts are drawn from a continuum: no two episodes are alike."""

    def check(self, environment: Environment) -> Settings:
        stepped = self.evaluated(environment, second=False)
        stepped.close()
        return stepped.settings

    def training(self, environment: Environment, plan: Plan, seed: int) -> VectorEpisodes:
        return VectorEpisodes(_continuous(environment), plan, seed)

    def evaluated(self, environment: Environment, second: bool) -> SteppedEnvironment:
        return SteppedEnvironment(_continuous(environment))

    def starts(self, purpose: Purpose, count: int, seed: SeedOf) -> Sequence[int]:
        """A seed each, for `reset`."""
        return [seed(purpose, index) for index in range(count)]

    def decode_actions(
        self, environment: Environment, payload: bytes, rows: int
    ) -> NDArray[np.float32]:
        return wire.decode_actions(payload, rows, _continuous(environment).action_dim)


def _continuous(environment: Environment) -> ContinuousControl:
    assert isinstance(environment, ContinuousControl)
    return environment
