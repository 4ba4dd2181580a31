"""Measures the floor of an environment: mean returns of the random and of the idle policy.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python scripts/measure_floors.py TASK [ENVIRONMENT ...]

Prints, for each, both means with their standard deviations over episodes; the better mean
is the floor that belongs into the task's numbers, with this script as its source. Episodes are
those of an evaluation: an Atari game is played from each of its 30 starts in turn. Seeds are
public: a floor is no secret.
"""

import sys
from collections.abc import Callable

import numpy as np

from harness.task import AtariGame, ContinuousControl, Environment, Task
from harness.training.environments import kind_of

EPISODES = 210
STARTS = 30
"""Of an Atari game: an idle player can play no others."""

Policy = Callable[[np.random.Generator], np.ndarray]


def policies(environment: Environment) -> tuple[Policy, Policy]:
    """The random one, uniform over all actions, and the idle one."""
    if isinstance(environment, AtariGame):
        count = environment.actions
        return (
            lambda generator: generator.integers(count, dtype=np.int32),
            lambda generator: np.int32(0),
        )
    assert isinstance(environment, ContinuousControl)
    bound, shape = environment.max_action, (environment.action_dim,)
    return (
        lambda generator: generator.uniform(-bound, bound, shape).astype(np.float32),
        lambda generator: np.zeros(shape, dtype=np.float32),
    )


def returns(environment: Environment, policy: Policy, episodes: int) -> np.ndarray:
    """Raw returns, float64 (episodes,)."""
    kind = kind_of(environment)
    played = kind.evaluated(environment, second=False)
    collected = []
    for episode, start in enumerate(kind.starts("final", episodes, lambda _, index: index)):
        generator = np.random.default_rng([episode, 1])
        played.reset(start)
        over = False
        while not over:
            _, over = played.step(played.clip(policy(generator)))
        collected.append(played.episode_return)
    played.close()
    return np.array(collected)


def main(task_name: str, *ids: str) -> None:
    task = Task.load(task_name)
    known = {**task.environments, **task.load_heldout().environments}
    for id_ in ids or known:
        environment = known[id_]
        by_chance, still = policies(environment)
        random = returns(environment, by_chance, EPISODES)
        idle = returns(
            environment, still, STARTS if isinstance(environment, AtariGame) else EPISODES
        )
        print(
            f"{id_}: random {random.mean():.2f} (std {random.std(ddof=1):.2f}, "
            f"{EPISODES} episodes), idle {idle.mean():.2f} (std {idle.std(ddof=1):.2f}, "
            f"{len(idle)} episodes)",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
