"""What every family of environments offers to a run: a training, evaluations, their starts.

A family is one module that implements `Family`, chosen by the model of its environments in a task.
The module is the one place for every setting that changes a score there: it makes the environment,
asserts that what was made is what the task says, and describes it for the record.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from harness.keys import Purpose
from harness.records import Plan
from harness.task import AtariGame, Environment, OfflineDataset

Settings = Mapping[str, str | int | float | bool]

POOL_SIZE = 10
"""Environments that an evaluation steps together: one forward pass acts for all of them."""

Start = Any
"""How an episode of an evaluation begins: a family's own, as its `starts` gives it."""

SeedOf = Callable[[Purpose, int], int]
"""The secret seed of one episode, by its purpose and its index."""


class EnvironmentMismatch(Exception):
    """The environment that was made is not the one that the task describes."""


class TrainingEpisodes(Protocol):
    """The training environment of one run, episode after episode, in the frames of a learner.

    Everything random in it follows from the run's seed. Offline there is none: a step is a batch,
    whose rows are drawn here.
    """

    returns: list[float]
    """Raw returns of the episodes that ended, in order."""

    @property
    def settings(self) -> Settings: ...

    @property
    def host_draws(self) -> bool:
        """Whether the next action is drawn here."""

    def begin(self) -> bytes:
        """The payload of OBSERVATION: the first episode begins."""

    def draw(self) -> NDArray[Any]:
        """The next action, at random."""

    def decode(self, payload: bytes) -> NDArray[Any]:
        """The action in a learner's ACTION. Raises wire.Malformed."""

    def take(self, action: NDArray[Any]) -> bytes:
        """One step; the payload of TRANSITION. Raises Diverged."""

    def close(self) -> None: ...


class EvaluatedEnvironment(Protocol):
    """An environment that an evaluation plays one episode of after the other. Rewards are raw."""

    episode_return: float
    episode_length: int
    """Steps of the present episode so far."""
    stopped: bool
    """Whether the present episode was ended by us, at its longest."""

    @property
    def settings(self) -> Settings: ...

    def reset(self, start: Start) -> NDArray[Any]:
        """Begin an episode; what to act on."""

    def clip(self, action: NDArray[Any]) -> NDArray[Any]:
        """The action as it will be executed."""

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Execute a clipped action; what to act on, and whether the episode is over.

        Raises Diverged.
        """

    def close(self) -> None: ...


class Second(NamedTuple):
    """A second evaluation, in which what was learned by heart leads elsewhere."""

    how: str
    """What differs from the first: "sticky actions (0.25)"."""
    floor: float | None
    """A return worth nothing, in both, where it is known."""


class Family(Protocol):
    """One family of environments."""

    def second(self, environment: Environment) -> Second | None:
        """None where episodes have chance enough of their own."""

    def check(self, environment: Environment) -> Settings:
        """Make it, look at it, and let it go. Raises EnvironmentMismatch."""

    def training(self, environment: Environment, plan: Plan, seed: int) -> TrainingEpisodes: ...

    def evaluated(self, environment: Environment, second: bool) -> EvaluatedEnvironment: ...

    def starts(self, purpose: Purpose, count: int, seed: SeedOf) -> Sequence[Start]:
        """Those of an evaluation of `count` episodes, in order."""

    def decode_actions(self, environment: Environment, payload: bytes, rows: int) -> NDArray[Any]:
        """An actor's actions, one for each row. Raises wire.Malformed."""


def family_of(environment: Environment) -> Family:
    """The family of an environment. What it needs is imported here, and nothing of the others."""
    if isinstance(environment, AtariGame):
        from harness.training.atari import Atari

        return Atari()
    if isinstance(environment, OfflineDataset):
        from harness.training.offline import Offline

        return Offline()
    from harness.training.continuous_control import Continuous

    return Continuous()
