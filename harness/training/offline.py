"""Offline control: batches of a dataset to learn from, OGBench's environments to be judged in.

There is no environment in training. What a learner is given is a file of transitions; the host
draws which of them make each batch, and so counts gradient steps. What is judged is success at an
episode's end: an episode's return is 100 or 0, and a mean is a success rate in percent.
"""

import contextlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from harness.datasets import simulator
from harness.datasets.places import DatasetError
from harness.keys import Purpose
from harness.records import Plan
from harness.task import ContinuousControl, Environment, OfflineDataset
from harness.training import continuous_control
from harness.training.environments import EnvironmentMismatch, SeedOf, Settings
from harness.verdict import Diverged
from sandbox import wire

SUCCESS = 100.0
"""The return of an episode that ends in success."""
_BATCH_STREAM = 2  # of a run's seed


class Batches:
    """A run's steps: for each, the rows of the dataset that make its batch."""

    def __init__(self, dataset: OfflineDataset, plan: Plan, seed: int) -> None:
        self.returns: list[float] = []
        self._dataset = dataset
        self._batch_size = int(plan.constants["batch_size"])
        self._generator = np.random.default_rng([seed, _BATCH_STREAM])

    @property
    def settings(self) -> Settings:
        return {"id": self._dataset.id, "dataset": self._dataset.dataset}

    @property
    def host_draws(self) -> bool:
        return True

    def begin(self) -> bytes:
        """Nothing is observed."""
        return b""

    def draw(self) -> NDArray[np.int32]:
        """Rows, with replacement, int32 (batch_size,)."""
        rows = self._generator.integers(self._dataset.transitions, size=self._batch_size)
        return rows.astype(np.int32)

    def decode(self, payload: bytes) -> NDArray[Any]:
        raise wire.Malformed("sent an ACTION; there is no environment to act in")

    def take(self, action: NDArray[np.int32]) -> bytes:
        return action.tobytes()

    def close(self) -> None: ...


class JudgedEnvironment(continuous_control.SteppedEnvironment):
    """An environment of OGBench. Its return is SUCCESS or 0, as its present step says."""

    def _make(self, environment: ContinuousControl) -> continuous_control.GymEnvironment:
        assert isinstance(environment, OfflineDataset)
        timing = environment.success_timing
        try:
            made = simulator.make(environment.simulator, success_timing=timing)
        except DatasetError as error:
            raise EnvironmentMismatch(f"{environment.id}: {error}") from error
        _seed_its_own_actions(made.unwrapped)
        self._stream = np.random.get_state()
        return continuous_control.checked(made, environment)

    def _settings(self, environment: ContinuousControl) -> Settings:
        assert isinstance(environment, OfflineDataset)
        return {
            "id": environment.id,
            "simulator": environment.simulator,
            "time_limit": environment.time_limit,
            "success_timing": environment.success_timing,
            "return": "100 where the episode ends in success, else 0",
            "ogbench": importlib.metadata.version("ogbench"),
            "gymnasium": gymnasium.__version__,
            "mujoco": mujoco.__version__,
        }

    def reset(self, seed: int | None) -> NDArray[np.float32]:
        """Begin an episode, everything random in which follows from the seed.

        A maze draws its start from numpy's global generator, so that is the episode's own while the
        environment runs: nobody else's numbers move.
        """
        assert seed is not None
        with self._global_stream():
            np.random.seed(seed)
            self._made.unwrapped.action_space.seed(seed)
            obs, _ = self._made.reset(seed=seed)
        self.episode_return, self.episode_length = 0.0, 0
        return obs.astype(continuous_control.OBSERVATION_DTYPE)

    def transition(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool]:
        with self._global_stream():
            obs, reward, terminated, truncated, info = self._made.step(action)
        self.episode_return = SUCCESS if info["success"] else 0.0
        self.episode_length += 1
        next_obs = obs.astype(continuous_control.OBSERVATION_DTYPE)
        if not np.isfinite(next_obs).all():
            raise Diverged
        return next_obs, float(reward), bool(terminated), bool(truncated)

    @contextlib.contextmanager
    def _global_stream(self) -> Iterator[None]:
        """numpy's global generator is this environment's meanwhile."""
        others = np.random.get_state()
        np.random.set_state(self._stream)
        try:
            yield
        finally:
            self._stream = np.random.get_state()
            np.random.set_state(others)


class Offline:
    """The family."""

    def second(self, environment: Environment) -> None:
        """Starts are drawn from a continuum: no two episodes are alike."""

    def check(self, environment: Environment) -> Settings:
        judged = self.evaluated(environment, second=False)
        judged.close()
        return judged.settings

    def training(self, environment: Environment, plan: Plan, seed: int) -> Batches:
        return Batches(_offline(environment), plan, seed)

    def evaluated(self, environment: Environment, second: bool) -> JudgedEnvironment:
        return JudgedEnvironment(_offline(environment))

    def starts(self, purpose: Purpose, count: int, seed: SeedOf) -> Sequence[int]:
        """A seed each, for `reset`."""
        return [seed(purpose, index) for index in range(count)]

    def decode_actions(
        self, environment: Environment, payload: bytes, rows: int
    ) -> NDArray[np.float32]:
        return wire.decode_actions(payload, rows, _offline(environment).action_dim)


def _seed_its_own_actions(inner: Any) -> None:
    """Where `action_space` is made anew at each look (the robot arms), have it be one that can be
    seeded: a reset shakes the scene with actions that it draws from there."""
    kind = type(inner)
    if isinstance(getattr(kind, "action_space", None), property):
        with simulator.quiet():
            space = inner.action_space
        inner.__class__ = type(kind.__name__, (kind,), {"action_space": space})


def _offline(environment: Environment) -> OfflineDataset:
    assert isinstance(environment, OfflineDataset)
    return environment
