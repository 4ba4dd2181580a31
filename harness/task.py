"""What a task is: the models of `task.toml` and `heldout.toml`, and the only place that reads them.

A task is data: a scaffold, the lines of it that a submission may fill, environments with their
shapes, profiles (how much work an evaluation does), budgets and frozen scales. Everything here is
immutable and knows nothing of how a run is made or scored.
"""

import hashlib
import json
import re
import struct
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

REPOSITORY = Path(__file__).resolve().parent.parent
TASKS = REPOSITORY / "tasks"

REGION_BEGINS = "# ==== EDITABLE REGION BEGINS ===="
REGION_ENDS = "# ==== EDITABLE REGION ENDS ===="
"""The banner lines of every scaffold. Both belong to the fixed part."""


_EDITED = """{scaffold} is not the one that {toml} names: it was edited.
What is handed in is a copy or a patch, and the scaffold stays as it is. To keep your change and put
the scaffold back:
    git diff -- {scaffold} > my.patch
    git checkout -- {scaffold}
Then hand in my.patch."""


class TaskError(Exception):
    """A task's files are missing or contradict each other; the message says which and where."""


class Model(BaseModel):
    """Frozen, and strict about names: a misspelt key is an error, not a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Environment(Model, ABC):
    """One environment as budgets and guests see it. A test holds it against the real one."""

    id: str
    """The id that gymnasium registers."""
    time_limit: int = Field(gt=0)
    """Steps after which an episode is truncated."""
    reference_parameters: int = Field(gt=0)
    """Parameters of the largest reference algorithm at these shapes, targets included."""
    reference_policy_parameters: int = Field(gt=0)
    """Parameters of the largest acting policy of a reference at these shapes."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, str | int | float]:
        """All that a guest learns of it, by the names of its configuration."""

    @property
    @abstractmethod
    def action_bytes(self) -> int:
        """Of one action, as the wire has it and as a trace keeps it."""

    @property
    def evaluation_bytes(self) -> int:
        """Memory of one that is evaluated in, where that is worth counting."""
        return 0

    @property
    def constants(self) -> dict[str, Any]:
        """What `args` holds of it alone, beside the numbers of the task and the profile."""
        return {}

    @abstractmethod
    def buffer_bytes(self, capacity: int) -> int:
        """Of the scaffold's replay buffer when it holds that many transitions; of an offline task's
        dataset, whatever the capacity."""


class ContinuousControl(Environment):
    """Observations and actions are vectors of float32."""

    observation_dim: int = Field(gt=0)
    action_dim: int = Field(gt=0)
    max_action: float = Field(gt=0)
    """`action_space.high[0]`; the low bound is its negative."""

    @property
    def shapes(self) -> dict[str, str | int | float]:
        return {
            "observations": "vector",
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "max_action": _as_float32(self.max_action),
        }

    @property
    def action_bytes(self) -> int:
        return 4 * self.action_dim

    def buffer_bytes(self, capacity: int) -> int:
        row = 2 * self.observation_dim + self.action_dim + 2
        return capacity * row * 4


class AtariGame(Environment):
    """Observations are stacks of gray frames; an action is a number from 0 on.

    `time_limit` is in agent steps, of four frames each, and stops a game that would not end.
    """

    actions: int = Field(gt=1)
    """Of the game's minimal set."""
    waits_for_fire: bool
    """Whether nothing happens after a lost life until FIRE is pressed."""
    floor: float | None = None
    """Mean raw score of the better of chance and the best single action for ever, which is what an
    untrained network plays; from the starts of an evaluation. None: nobody has measured it."""

    @property
    def shapes(self) -> dict[str, str | int | float]:
        return {"observations": "pixels", "actions": self.actions}

    @property
    def action_bytes(self) -> int:
        return 4

    def buffer_bytes(self, capacity: int) -> int:
        from sandbox import pixels  # with numpy, which a refusal of a text does without

        return pixels.buffer_bytes(capacity)


class Generator(Model):
    """How a dataset is made on this machine, where it is not the official one."""

    seed: int = Field(ge=0)
    episodes: int = Field(gt=0)
    """Of 1,001 rows each, in the training file."""
    validation_episodes: int = Field(gt=0)
    """In the file beside it."""


class OfflineNumbers(Model):
    """What an offline scaffold's config holds of one dataset. Guests get copies."""

    alpha: float = Field(gt=0)
    """Weight of staying close to the data. Source of its values: task.toml."""
    discount: float = Field(gt=0, lt=1)
    learning_rate: float = Field(gt=0)
    """Adam's, of the critic and of the policy."""
    tau: float = Field(gt=0, le=1)
    """Share of an online network that enters its target at each step."""
    q_agg: Literal["min", "mean"]
    """How the critic's target makes one value of two."""
    normalize_q_loss: bool
    """Whether a policy's Q term is divided by the mean absolute Q."""
    actor_hidden_dims: tuple[int, ...] = Field(min_length=1)
    value_hidden_dims: tuple[int, ...] = Field(min_length=1)


class OfflineDataset(ContinuousControl):
    """A policy is trained from an OGBench dataset, and judged in the environment of its task.

    `id` is the dataset's official single-task name where the files are the official ones, and a
    name of our own where they are made here: such results compare with nothing published.
    """

    simulator: str
    """The id that gymnasium registers: "cube-single-singletask-v0"."""
    dataset: str
    """Stem of the two files, without the task: "cube-single-play-v0"."""
    transitions: int = Field(gt=0)
    """In the training file."""
    generator: Generator | None = None
    """None: the official files."""
    sha256: str | None = None
    """Of the training file, in hex. None: whatever was seen first on a machine is kept to."""
    validation_sha256: str | None = None
    success_timing: Literal["pre", "post"]
    """Whether success is that of the state before an action or after it (OGBench 1.1.0, and so all
    that is published for FQL, had "post")."""
    evaluation_mib: int = Field(default=0, ge=0)
    """Memory of one environment of an evaluation: a robot arm's meshes are large."""
    numbers: OfflineNumbers

    @property
    def evaluation_bytes(self) -> int:
        return self.evaluation_mib << 20

    @property
    def shapes(self) -> dict[str, str | int | float]:
        return super().shapes | {"observations": "dataset", "transitions": self.transitions}

    @property
    def constants(self) -> dict[str, Any]:
        return self.numbers.model_dump(mode="json")

    def buffer_bytes(self, capacity: int) -> int:
        from sandbox import rows  # with numpy, which a refusal of a text does without

        return self.transitions * rows.row_bytes(self.observation_dim, self.action_dim)


def _as_float32(number: float) -> float:
    """The nearest float32: the bound of an action space, as gymnasium has it."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def _kind(table: Any) -> str:
    """By what a table holds: an error then names the fields of its own kind alone."""
    if isinstance(table, OfflineDataset) or (isinstance(table, Mapping) and "dataset" in table):
        return "offline"
    actions = isinstance(table, Mapping) and "actions" in table
    return "atari" if actions or isinstance(table, AtariGame) else "continuous control"


AnyEnvironment = Annotated[
    Annotated[ContinuousControl, Tag("continuous control")]
    | Annotated[AtariGame, Tag("atari")]
    | Annotated[OfflineDataset, Tag("offline")],
    Discriminator(_kind),
]


class Scale(Model):
    """The two returns that one environment is normalised by, frozen for a task version."""

    floor: float
    """Mean return of the better of the random and the idle policy."""
    ceiling: float
    """Mean return of the best reference algorithm."""
    floor_source: str
    ceiling_source: str
    provisional: bool = False
    """True where the ceiling is a published number and not yet one of this harness."""

    @model_validator(mode="after")
    def _ceiling_above_floor(self) -> Self:
        if self.ceiling <= self.floor:
            raise ValueError(f"ceiling {self.ceiling} does not clear floor {self.floor}")
        return self


class GuestLimits(Model):
    """What a guest may use in one run. Times are the guest's own thinking time, in seconds."""

    thinking_seconds: float = Field(gt=0)
    """All of training: five times the slowest reference's on the kind of machine named below."""
    thinking_source: str
    frame_seconds: float = Field(gt=0)
    """One answer: an action, an export, an acting batch."""
    start_seconds: float = Field(gt=0)
    """Import of the source and construction of the algorithm, each."""
    acting_milliseconds: float = Field(gt=0)
    """An actor's answer in an evaluation, on average over the evaluation."""
    acting_source: str
    memory_mib: int = Field(gt=0)
    """Beside the replay buffer, whose bytes are added."""
    processes: int = Field(gt=0)
    scratch_mib: int = Field(gt=0)
    output_mib: int = Field(gt=0)


class Profile(Model):
    """How much work an evaluation does."""

    name: str
    summary: str
    ranked: bool
    """Whether its leaderboard ranks (`full`, `lite`), given held-out runs and a sandbox."""
    table: bool
    """Whether it has a leaderboard at all (`smoke` has none)."""
    environments: tuple[str, ...] = Field(min_length=1)
    """The visible ones, by id."""
    seeds: tuple[int, ...] = Field(min_length=1)
    total_timesteps: int = Field(gt=0)
    """Environment steps; gradient steps where a task is offline."""
    learning_starts: int = Field(default=0, ge=0)
    buffer_size: int = Field(default=0, ge=0)
    """0, and no warm-up, where a task is offline."""
    eval_freq: int = Field(gt=0)
    eval_episodes: int = Field(gt=0)
    """Episodes of each point of the learning curve."""
    final_episodes: int = Field(gt=0)
    """Episodes of the final evaluation, whose mean return is the run's: of each scored export."""
    scored_exports: tuple[int, ...] = ()
    """Steps of the exports that the final evaluation plays, ascending. None named: the last."""
    confirm: bool
    """Whether to show an estimate and ask before starting: the profile takes hours or days."""
    steps_per_second: float = Field(gt=0)
    """Environment steps a second of the slowest reference, learning, one run on one core."""
    steps_per_second_source: str
    evaluation_seconds: float = Field(default=15.0, ge=0)
    """Around a training: its start, and the scoring of what is exported, one run on one core."""
    limits: GuestLimits
    scales: Mapping[str, Scale] = Field(default_factory=dict)
    """By environment id."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what, values in (("environments", self.environments), ("seeds", self.seeds)):
            if len(set(values)) != len(values):
                raise ValueError(f"{what} are listed twice")
        if self.learning_starts > self.total_timesteps:
            raise ValueError("learning_starts is larger than total_timesteps")
        if self.scored_exports:
            if list(self.scored_exports) != sorted(set(self.scored_exports)):
                raise ValueError("scored_exports are not in ascending order, each once")
            missing = set(self.scored_exports) - set(self.export_steps())
            if missing:
                raise ValueError(f"scored_exports: nothing is exported at step {min(missing)}")
            if self.scored_exports[-1] != self.total_timesteps:
                raise ValueError("scored_exports: the last export is among those that count")
        return self

    def export_steps(self) -> tuple[int, ...]:
        """The steps at which a learner exports its policy: 0, every `eval_freq`, and the last."""
        return (*range(0, self.total_timesteps, self.eval_freq), self.total_timesteps)

    def final_steps(self) -> tuple[int, ...]:
        """The steps of the exports whose evaluations make the score."""
        return self.scored_exports or (self.total_timesteps,)


class Region(Model):
    """The lines of the scaffold that a submission may fill, and what it must define there."""

    first_line: int = Field(gt=1)
    """1-based, inclusive: the line after the opening banner."""
    last_line: int = Field(gt=1)
    """1-based, inclusive: the line before the closing banner."""
    classes: Mapping[str, tuple[str, ...]] = Field(min_length=1)
    """What the region must define: classes by name, with the methods that the fixed part calls."""
    max_bytes: int = Field(gt=0)
    scaffold_sha256: str | None = None
    """Of the pristine file, in hex: one that was edited in a checkout is another task. None while a
    task is being written."""


class Budget(Model):
    """What an algorithm may hold, relative to the largest reference at the same shapes."""

    factor: float = Field(gt=1)
    artefact_allowance_bytes: int = Field(ge=0)
    """Room for the container around the weights."""

    def parameters(self, environment: Environment) -> int:
        """Most parameters that an algorithm may hold, all networks and targets counted."""
        return int(self.factor * environment.reference_parameters)

    def artefact_bytes(self, environment: Environment) -> int:
        """Most bytes that an exported policy may have: the bound that the host holds."""
        float32_bytes = 4 * environment.reference_policy_parameters
        return int(self.factor * float32_bytes) + self.artefact_allowance_bytes


class HeldOut(Model):
    """The environments that only a final evaluation uses. A competition brings its own file."""

    profiles: Mapping[str, tuple[str, ...]]
    """Environment ids by profile; a profile that is not named has none."""
    environments: Mapping[str, AnyEnvironment] = Field(default_factory=dict)
    scales: Mapping[str, Mapping[str, Scale]] = Field(default_factory=dict)
    """By profile, then by environment id."""

    def digest(self, profile: str) -> str | None:
        """SHA-256 of what concerns one profile; None where nothing does.

        Evaluations are compared by that, so a list for one profile does not set those of another
        apart.
        """
        ids = self.profiles.get(profile, ())
        if not ids:
            return None
        only = HeldOut(
            profiles={profile: ids},
            environments={id_: self.environments[id_] for id_ in ids},
            scales={profile: self.scales.get(profile, {})},
        )
        return content_hash(only)


class Task(Model):
    """One task, read whole: `load` checks it against its scaffold."""

    name: str
    version: int = Field(gt=0)
    """Part of every evaluation seed and every row: a change of numbers is a new version."""
    title: str
    directory: Path
    region: Region
    budget: Budget
    constants: Mapping[str, int | float]
    """What `args` holds beside the profile's numbers. The guest gets copies."""
    environments: Mapping[str, AnyEnvironment]
    profiles: Mapping[str, Profile]
    mirrors: tuple[str, ...] = ()
    """Addresses of directories that hold the official datasets, tried in this order."""

    @classmethod
    def load(cls, name: str, root: Path = TASKS) -> Self:
        """Read `root/name/task.toml`. Raises TaskError with the file and the reason."""
        directory = root / name
        path = directory / "task.toml"
        if not path.is_file():
            known = sorted(each.parent.name for each in root.glob("*/task.toml"))
            raise TaskError(f"no task {name!r}; there are: {', '.join(known)}")
        raw = _read_toml(path)
        try:
            task = cls.model_validate(
                raw
                | {
                    "directory": directory,
                    "environments": _with_key(raw.get("environments", {}), "id"),
                    "profiles": _with_key(raw.get("profiles", {}), "name"),
                }
            )
        except ValidationError as error:
            raise TaskError(f"{path}: {_explain(error)}") from error
        task._check(path)
        return task

    @property
    def scaffold(self) -> bytes:
        """The pristine scaffold file."""
        return (self.directory / "scaffold.py").read_bytes()

    def profile(self, name: str) -> Profile:
        """The profile of that name. Raises TaskError that lists the others."""
        if name not in self.profiles:
            raise TaskError(f"no profile {name!r}; {self.name} has: {', '.join(self.profiles)}")
        return self.profiles[name]

    def load_heldout(self, path: Path | None = None) -> HeldOut:
        """Read a held-out file, the task's own example by default. Raises TaskError."""
        path = path or self.directory / "heldout.toml"
        raw = _read_toml(path)
        try:
            heldout = HeldOut.model_validate(
                raw | {"environments": _with_key(raw.get("environments", {}), "id")}
            )
        except ValidationError as error:
            raise TaskError(f"{path}: {_explain(error)}") from error
        for profile in (*heldout.profiles, *heldout.scales):
            if profile not in self.profiles:
                raise TaskError(
                    f"{path}: {self.name} has no profile {profile!r}; it has: "
                    f"{', '.join(self.profiles)}"
                )
        for profile, ids in heldout.profiles.items():
            for id_ in ids:
                if id_ not in heldout.environments:
                    raise TaskError(f"{path}: profile {profile} names {id_}, which has no table")
                if profile in self.profiles and id_ in self.profiles[profile].environments:
                    raise TaskError(f"{path}: {id_} is already visible in profile {profile}")
        return heldout

    def _check(self, path: Path) -> None:
        for profile in self.profiles.values():
            for id_ in profile.environments:
                if id_ not in self.environments:
                    raise TaskError(
                        f"{path}: profile {profile.name} names {id_}, which has no table"
                    )
        wanted = self.region.scaffold_sha256
        if wanted and hashlib.sha256(self.scaffold).hexdigest() != wanted:
            raise TaskError(_EDITED.format(scaffold=self.directory / "scaffold.py", toml=path))
        lines = self.scaffold.decode().split("\n")
        for banner, number in (
            (REGION_BEGINS, self.region.first_line - 1),
            (REGION_ENDS, self.region.last_line + 1),
        ):
            found = [index for index, line in enumerate(lines, 1) if line == banner]
            if found != [number]:
                raise TaskError(
                    f"{path}: the region is lines {self.region.first_line}-"
                    f"{self.region.last_line}, so {banner!r} belongs on line {number} of "
                    f"scaffold.py; it stands on {found or 'no line'}"
                )


class Planned(Model):
    """One environment of an evaluation, with what is frozen for it."""

    environment: AnyEnvironment
    heldout: bool
    scale: Scale | None


def plan(task: Task, profile: Profile, heldout: HeldOut | None) -> tuple[Planned, ...]:
    """The environments of an evaluation, visible ones first; without `heldout` those alone."""
    visible = [
        Planned(environment=task.environments[id_], heldout=False, scale=profile.scales.get(id_))
        for id_ in profile.environments
    ]
    if heldout is None:
        return tuple(visible)
    scales = heldout.scales.get(profile.name, {})
    hidden = [
        Planned(environment=heldout.environments[id_], heldout=True, scale=scales.get(id_))
        for id_ in heldout.profiles.get(profile.name, ())
    ]
    return (*visible, *hidden)


_WORDING = re.compile(r"summary|title|confirm|steps_per_second|evaluation_seconds|.*_source")
"""Fields that change no number of any run."""


def content_hash(model: BaseModel) -> str:
    """SHA-256 (hex) of a model's canonical JSON without its wording: what a manifest compares."""
    content = json.dumps(_without_wording(model.model_dump(mode="json")), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


_LATER: Mapping[str, Any] = {"scored_exports": []}
"""Fields that came later, with what says nothing: left out then, so that what began without them
has the hash that it had."""


def _without_wording(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_wording(each)
            for key, each in value.items()
            if not _WORDING.fullmatch(key) and (key not in _LATER or each != _LATER[key])
        }
    if isinstance(value, list):
        return [_without_wording(each) for each in value]
    return value


def _with_key(tables: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: {key: name} | dict(table) for name, table in tables.items()}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TaskError(f"{path}: {error}") from error


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()
    )
