"""Measures the floor of an environment: what can be had in it without learning anything.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python scripts/measure_floors.py TASK [ENVIRONMENT ...]

Prints, for each, the mean returns of the random and of the idle policy with their standard
deviations over episodes; in a game, instead of the idle one, those of the best single action for
ever, of which doing nothing is one: it is what an untrained network does there, and worth more than
chance in some. The better mean is the floor that belongs into the task's numbers, with this script
as its source. Episodes are those of an evaluation: a game is played from each of its 30 starts in
turn. Seeds are public: a floor is no secret.
"""

import sys
from collections.abc import Callable

import numpy as np

from harness.task import AtariGame, ContinuousControl, Environment, Task
from harness.training.environments import family_of

EPISODES = 210
"""By chance: seven from each start of a game."""
STARTS = 30
TRIED_STARTS = 2
"""Of each single action; the best is then played from all."""
PATIENCE = 3_000
"""Steps without a reward after which a game under a single action is left: it stands still."""

Policy = Callable[[np.random.Generator], np.ndarray]


def by_chance(environment: Environment) -> Policy:
    """Uniform over all actions."""
    if isinstance(environment, AtariGame):
        count = environment.actions
        return lambda generator: generator.integers(count, dtype=np.int32)
    assert isinstance(environment, ContinuousControl)
    bound, shape = environment.max_action, (environment.action_dim,)
    return lambda generator: generator.uniform(-bound, bound, shape).astype(np.float32)


def always(action: np.ndarray) -> Policy:
    return lambda generator: action


def returns(
    environment: Environment, policy: Policy, episodes: int, patience: float = np.inf
) -> np.ndarray:
    """Raw returns, float64 (episodes,)."""
    family = family_of(environment)
    played = family.evaluated(environment, second=False)
    collected = []
    for episode, start in enumerate(family.starts("final", episodes, lambda _, index: index)):
        generator = np.random.default_rng([episode, 1])
        played.reset(start)
        over, paid, since = False, 0.0, 0
        while not over and since < patience:
            _, over = played.step(played.clip(policy(generator)))
            since = since + 1 if played.episode_return == paid else 0
            paid = played.episode_return
        collected.append(played.episode_return)
    played.close()
    return np.array(collected)


def measured(environment: Environment) -> dict[str, np.ndarray]:
    """Returns by the name of their policy."""
    chance = returns(environment, by_chance(environment), EPISODES)
    if isinstance(environment, ContinuousControl):
        zeros = np.zeros(environment.action_dim, dtype=np.float32)
        return {"random": chance, "idle": returns(environment, always(zeros), EPISODES)}
    assert isinstance(environment, AtariGame)
    actions = [always(np.int32(action)) for action in range(environment.actions)]
    tried = [returns(environment, each, TRIED_STARTS, PATIENCE).mean() for each in actions]
    best = int(np.argmax(tried))
    return {
        "random": chance,
        f"action {best} for ever": returns(environment, actions[best], STARTS, PATIENCE),
    }


def main(task_name: str, *ids: str) -> None:
    task = Task.load(task_name)
    known = {**task.environments, **task.load_heldout().environments}
    for id_ in ids or known:
        told = [
            f"{name} {each.mean():.2f} (std {each.std(ddof=1):.2f}, {len(each)} episodes)"
            for name, each in measured(known[id_]).items()
        ]
        print(f"{id_}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
