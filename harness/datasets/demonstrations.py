"""The scripted policies behind OGBench's datasets, an episode at a time, each by its own seed.

They follow data_gen_scripts/ of OGBench's repository with the arguments of its commands.sh:
`play` moves cubes to random places along planned paths, `navigate` walks a point from goal to goal.
What moves ants and humanoids there is a trained network, which is not part of the package.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.datasets import simulator
from harness.datasets.places import DatasetError

ROWS = 1001
"""Of an episode. The last one has no successor, so 1,000 of them are transitions."""

Array = NDArray[np.float32]


class Episode(NamedTuple):
    """What was seen and done, float32, a row a step; all of it from before the action."""

    observations: Array
    """(ROWS, O)."""
    actions: Array
    """(ROWS, A)."""
    qpos: Array
    """(ROWS, positions of the simulator)."""
    qvel: Array
    """(ROWS, velocities of the simulator)."""


class Demonstrator(Protocol):
    """One scripted policy in its environment."""

    def episode(self, seed: np.random.SeedSequence) -> Episode:
        """The seed's episode: the same to the bit, whatever was played before."""


def demonstrator(dataset: str) -> Demonstrator:
    """What plays the episodes of a dataset. Raises DatasetError where nothing does."""
    return _script(dataset).play(dataset)


def seconds(dataset: str) -> float:
    """Roughly what an episode takes on one core. Raises DatasetError as above."""
    return _script(dataset).seconds


class _Script(NamedTuple):
    pattern: re.Pattern[str]
    play: Callable[[str], Demonstrator]
    seconds: float
    example: str


def _script(dataset: str) -> _Script:
    for each in _SCRIPTS:
        if each.pattern.fullmatch(dataset):
            return each
    examples = ", ".join(each.example for each in _SCRIPTS)
    raise DatasetError(
        f"{dataset} cannot be made on this machine; what can be made: {examples} and their kind. "
        "Take the generator out of its table, and the official files are fetched"
    )


class _Rows:
    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, observation: Any, action: Any, info: dict[str, Any]) -> None:
        self._rows.append((observation, action, info["prev_qpos"], info["prev_qvel"]))

    def episode(self) -> Episode:
        return Episode(
            *(np.array(column, dtype=np.float32) for column in zip(*self._rows, strict=True))
        )


def _make(id_: str, **options: Any) -> Any:
    return simulator.make(id_, terminate_at_goal=False, max_episode_steps=ROWS, **options)


_STACKING = {
    "single": (0.0, 0.0),
    "double": (0.0, 0.25),
    "triple": (0.05, 0.35),
    "quadruple": (0.1, 0.5),
}
"""Between what an episode's probability is drawn that a cube goes onto another one."""


class _Play:
    def __init__(self, dataset: str) -> None:
        cubes = dataset.split("-")[1]
        self._made = _make(f"cube-{cubes}-v0", mode="data_collection")
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

        self._oracle = CubePlanOracle(env=self._made, noise=0.1, noise_smoothing=0.5)
        self._stacking = _STACKING[cubes]

    def episode(self, seed: np.random.SeedSequence) -> Episode:
        ours, its = (int(each) for each in seed.generate_state(2))
        with simulator.own_stream(ours):
            return self._play(its)

    def _play(self, seed: int) -> Episode:
        rows = _Rows()
        observation, info = self._made.reset(seed=seed)
        p_stack = np.random.uniform(*self._stacking)
        self._oracle.reset(observation, info)
        for _ in range(ROWS):
            action = np.clip(self._oracle.select_action(observation, info), -1, 1)
            before = observation
            observation, _, _, _, info = self._made.step(action)
            rows.add(before, action, info)
            if self._oracle.done:
                self._oracle.reset(*self._made.unwrapped.set_new_target(p_stack=p_stack))
        return rows.episode()


class _Navigate:
    def __init__(self, dataset: str) -> None:
        self._made = _make(f"{dataset.removesuffix('-navigate-v0')}-v0")
        walls = self._made.unwrapped.maze_map
        self._cells = [(int(row), int(column)) for row, column in np.argwhere(walls == 0)]
        self._goals = [cell for cell in self._cells if not _is_corridor(walls, *cell)]

    def episode(self, seed: np.random.SeedSequence) -> Episode:
        ours, its, shaken = (int(each) for each in seed.generate_state(3))
        self._made.action_space.seed(shaken)  # a reset shakes the point, and resets it once more
        with simulator.own_stream(ours):
            return self._play(its)

    def _play(self, seed: int) -> Episode:
        rows = _Rows()
        inner = self._made.unwrapped
        task = {"init_ij": _any_of(self._cells), "goal_ij": _any_of(self._goals)}
        observation, _ = self._made.reset(seed=seed, options={"task_info": task})
        for _ in range(ROWS):
            here = inner.get_xy()
            way = inner.get_oracle_subgoal(here, inner.cur_goal_xy)[0] - here
            way /= np.linalg.norm(way) + 1e-6
            action = np.clip(way + np.random.normal(0, 0.5, way.shape), -1, 1)
            before = observation
            observation, _, _, _, info = self._made.step(action)
            rows.add(before, action, info)
            if info["success"]:
                goal = inner.ij_to_xy(_any_of(self._goals))
                inner.set_goal(goal_xy=inner.add_noise(goal))
        return rows.episode()


def _is_corridor(walls: NDArray[Any], row: int, column: int) -> bool:
    """Whether one can only go straight through: such a cell is no goal."""
    above, below = walls[row - 1, column], walls[row + 1, column]
    left, right = walls[row, column - 1], walls[row, column + 1]
    return bool(above == below != left == right)


def _any_of(cells: list[tuple[int, int]]) -> tuple[int, int]:
    return cells[np.random.randint(len(cells))]


_SCRIPTS = (
    _Script(
        re.compile(rf"cube-({'|'.join(_STACKING)})-play-v0"), _Play, 1.3, "cube-single-play-v0"
    ),
    _Script(
        re.compile(r"pointmaze-(medium|large|giant|teleport)-navigate-v0"),
        _Navigate,
        0.1,
        "pointmaze-medium-navigate-v0",
    ),
)
