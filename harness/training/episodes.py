"""The training environment of one run, episode after episode: everything random in it is seeded."""

import numpy as np
from numpy.typing import NDArray

from harness.task import Environment
from harness.training.environments import Settings, SteppedEnvironment
from sandbox.wire import Transition

_WARM_UP_STREAM = 1  # of the run's seed: the environment itself uses stream 0


class TrainingEpisodes:
    """Steps one environment as its run's seed prescribes, and adds up the episodes' returns.

    `returns` holds the raw return of each training episode that ended, in order.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self.returns: list[float] = []
        self._seed = seed
        self._stepped = SteppedEnvironment(environment)
        self._warm_up = np.random.default_rng([seed, _WARM_UP_STREAM])
        self._bound = np.float32(environment.max_action)
        self._action_dim = environment.action_dim

    @property
    def settings(self) -> Settings:
        return self._stepped.settings

    def begin(self) -> NDArray[np.float32]:
        """The first observation of the first episode, float32 (O,)."""
        return self._stepped.reset(self._seed)

    def draw(self) -> NDArray[np.float32]:
        """The next action of the warm-up, uniform between the bounds, float32 (A,)."""
        drawn = self._warm_up.uniform(-self._bound, self._bound, self._action_dim)
        return drawn.astype(np.float32)

    def take(self, action: NDArray[np.float32]) -> Transition:
        """One step with a finite action (A,), clipped here; a new episode where one ends."""
        action = self._stepped.clip(action)
        next_obs, reward, terminated, truncated = self._stepped.step(action)
        obs = next_obs
        if terminated or truncated:
            self.returns.append(self._stepped.episode_return)
            obs = self._stepped.reset(None)
        return Transition(action, reward, terminated, truncated, next_obs, obs)

    def close(self) -> None:
        self._stepped.close()
