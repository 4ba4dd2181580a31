"""Measures the floor of an environment: mean returns of the random and of the idle policy.

    .venv/bin/python scripts/measure_floors.py TASK [ENVIRONMENT ...]

Prints, for each, both means over EPISODES episodes with their standard deviations; the better mean
is the floor that belongs into the task's scales, with this script as its source. Seeds are public:
a floor is no secret.
"""

import sys

import numpy as np

from harness.task import Environment, Task
from harness.training.environments import SteppedEnvironment

EPISODES = 200


def returns(environment: Environment, random: bool) -> np.ndarray:
    """Raw returns, float64 (EPISODES,), of actions uniform within the bounds, or of zeros."""
    stepped = SteppedEnvironment(environment)
    collected = np.empty(EPISODES)
    for episode in range(EPISODES):
        generator = np.random.default_rng([episode, 1])
        stepped.reset(episode)
        ended = False
        while not ended:
            action = np.zeros(environment.action_dim, dtype=np.float32)
            if random:
                bound = environment.max_action
                action = generator.uniform(-bound, bound, action.shape).astype(np.float32)
            _, _, terminated, truncated = stepped.step(stepped.clip(action))
            ended = terminated or truncated
        collected[episode] = stepped.episode_return
    stepped.close()
    return collected


def main(task_name: str, *ids: str) -> None:
    task = Task.load(task_name)
    known = {**task.environments, **task.load_heldout().environments}
    for id_ in ids or known:
        random, idle = (returns(known[id_], each) for each in (True, False))
        print(
            f"{id_}: random {random.mean():.2f} (std {random.std(ddof=1):.2f}), "
            f"idle {idle.mean():.2f} (std {idle.std(ddof=1):.2f}); {EPISODES} episodes each",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
