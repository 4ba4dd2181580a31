"""Checks an environment's files and lays out, once, the rows that its learners map.

A prepared file is named by all that it follows from: the bytes of both files, the task's table and
the versions of who read them. So one that is there is right, and stands for the checks that its
sources passed.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from harness.datasets import checksums, places, simulator
from harness.datasets.check import Raw, Unfit, check
from harness.datasets.places import DatasetError, Files, Part, Say
from harness.datasets.writing import alone, replacing
from harness.files import write_durably
from harness.task import Model, OfflineDataset
from sandbox import rows

VERSION = 1
"""Of what a prepared file holds, for the same sources."""
ACTION_MARGIN = 1e-5
"""Actions are kept this far from their bounds, as FQL's code does (envs/env_utils.py)."""
STRAYS = 0.01
"""A file with a larger share of its places in walls is another maze's."""
_PLACES = 10_000
"""That are looked at, of a file."""


class Statistics(Model):
    """What a training file holds, under the reward of the environment's task."""

    transitions: int
    trajectories: int
    success_rows: int
    """Whose observation satisfies the task: mask 0. None at all is legal, and tells nothing."""
    reward_min: float
    reward_max: float
    observation_min: float
    observation_max: float


class Ready(Model):
    """An environment's data, checked and laid out."""

    path: Path
    """What learners map: rows as `sandbox/rows.py` has them."""
    sha256: str
    """Of the training file, in hex."""
    statistics: Statistics


class _Note(Model):
    """What lies beside a prepared file."""

    made_for: str
    sha256: str
    """Of the prepared file."""
    statistics: Statistics


def ready(
    environments: Sequence[OfflineDataset], root: Path, command: str, say: Say = print
) -> dict[str, Ready]:
    """Check the files of these environments and prepare what is not prepared yet; by id.

    Nothing is fetched or made anew, apart from a prepared file. `command`: what makes or fetches
    the files, for the advice in errors (`places.command`). Raises DatasetError.
    """
    missing = [
        path for each in environments for path in places.files(each, root) if not path.is_file()
    ]
    if missing:
        listed = "".join(f"\n    {path}" for path in dict.fromkeys(missing))
        raise DatasetError(f"data that are not there yet:{listed}\nRun: {command}")
    try:
        return {each.id: _ready(each, root, command, say) for each in environments}
    except OSError as error:
        raise DatasetError(f"{error.filename or root}: {error.strerror or error}") from error


def verify(path: Path) -> None:
    """Hold a prepared file against what was written beside it. Raises DatasetError, OSError.

    `ready` has done so when an evaluation began; a run may begin days later.
    """
    note = _Note.model_validate_json(_note(path).read_bytes())
    if checksums.sha256_of(path) != note.sha256:
        raise DatasetError(
            f"{path}: damaged since it was prepared. Remove it; the next start makes it anew"
        )


def _ready(environment: OfflineDataset, root: Path, command: str, say: Say) -> Ready:
    sources = places.files(environment, root)
    made_here = environment.generator is not None
    wanted = (environment.sha256, environment.validation_sha256)
    training, validation = (
        checksums.verified(path, digest, command, made_here)
        for path, digest in zip(sources, wanted, strict=True)
    )
    digests = (training, validation)
    if digests[0] == digests[1]:
        raise DatasetError(
            f"{sources.validation}: the training file once more. Remove it and its .sha256, then "
            f"run: {command}"
        )
    path = places.prepared(root, _digest(environment, digests))
    statistics = _prepared(path, environment)
    if statistics is None:
        with alone(path, say):
            statistics = _prepared(path, environment)
            if statistics is None:
                say(f"{environment.id}: checking its files, laying out rows for learners")
                statistics = _prepare(environment, sources, path, command)
    for source, digest in zip(sources, digests, strict=True):
        checksums.keep(source, digest)
    return Ready(path=path, sha256=digests[0], statistics=statistics)


def _digest(environment: OfflineDataset, digests: tuple[str, str]) -> str:
    """All that a prepared file and the checks before it follow from."""
    table = environment.model_dump(
        mode="json",
        include={
            "dataset",
            "generator",
            "simulator",
            "transitions",
            "observation_dim",
            "action_dim",
            "max_action",
        },
    )
    versions = [VERSION, simulator.version()]
    return hashlib.sha256(json.dumps([digests, table, versions]).encode()).hexdigest()


def _prepared(path: Path, environment: OfflineDataset) -> Statistics | None:
    """Of a prepared file that is whole; None where there is none, or a damaged one."""
    try:
        note = _Note.model_validate_json(_note(path).read_bytes())
        shape = np.load(path, mmap_mode="r").shape
        whole = shape == _shape(environment) and checksums.sha256_of(path) == note.sha256
    except (OSError, ValueError, EOFError, ValidationError):
        return None
    return note.statistics if whole else None


def _prepare(environment: OfflineDataset, sources: Files, path: Path, command: str) -> Statistics:
    try:
        check(sources.validation, environment, Part.VALIDATION)
    except Unfit as error:
        raise _refused(sources.validation, error, command) from error
    try:
        raw = check(sources.training, environment, Part.TRAINING)
        dataset = _relabelled(environment, sources.training)
    except Unfit as error:
        raise _refused(sources.training, error, command) from error
    with replacing(path) as temporary:
        laid = _laid_out(dataset, raw, environment)
        statistics = _statistics(laid, raw, environment)
        with temporary.open("wb") as file:
            np.save(file, laid)
        digest = checksums.sha256_of(temporary)
    note = _Note(made_for=environment.id, sha256=digest, statistics=statistics)
    write_durably(_note(path), note.model_dump_json(indent=1).encode())
    return statistics


def _relabelled(environment: OfflineDataset, training: Path) -> dict[str, NDArray[np.float32]]:
    """The transitions as OGBench's own loader has them, with the rewards and masks of the task."""
    from ogbench.relabel_utils import relabel_dataset
    from ogbench.utils import load_dataset

    dataset: dict[str, NDArray[np.float32]] = load_dataset(str(training), add_info=True)
    with simulator.own_stream(), simulator.quiet():
        made = simulator.make(environment.simulator)
        _check_maze(made.unwrapped, dataset["qpos"])
        try:
            relabel_dataset(environment.simulator, made, dataset)
        except (AssertionError, AttributeError, IndexError, KeyError, ValueError) as error:
            raise Unfit(
                f"{environment.simulator} does not tell which of its states are successes "
                f"({error!r}): is it a single-task simulator, and that of this dataset?"
            ) from error
        made.close()
    return dataset


def _check_maze(inner: Any, qpos: NDArray[np.float32]) -> None:
    """The files of all mazes have the same shapes: where a walker was tells which one it was in."""
    walls = getattr(inner, "maze_map", None)
    if walls is None:
        return
    height, width = walls.shape
    places = qpos[:: max(1, len(qpos) // _PLACES), :2]
    cells = [inner.xy_to_ij(place) for place in places]
    strays = sum(not (0 <= i < height and 0 <= j < width) or bool(walls[i, j]) for i, j in cells)
    if strays > STRAYS * len(cells):
        raise Unfit(f"it is of another maze: {strays / len(cells):.0%} of its places are in walls")


def _laid_out(
    dataset: dict[str, NDArray[np.float32]], raw: Raw, environment: OfflineDataset
) -> NDArray[np.float32]:
    bound = environment.max_action - ACTION_MARGIN
    follows = np.concatenate(([False], ~raw.terminals[:-1]))  # a row of the same trajectory
    columns = rows.columns(environment.observation_dim, environment.action_dim)
    laid = np.empty(_shape(environment), dtype=np.float32)
    laid[:, columns.observations] = dataset["observations"]
    laid[:, columns.next_observations] = dataset["next_observations"]
    laid[:, columns.actions] = np.clip(dataset["actions"], -bound, bound)
    # OGBench's loader drops a trajectory's last action, and FQL's code has the first one of the
    # next trajectory in its place.
    laid[:, columns.next_actions] = np.clip(raw.actions[follows], -bound, bound)
    laid[:, columns.reward] = dataset["rewards"][:, np.newaxis]
    laid[:, columns.mask] = dataset["masks"][:, np.newaxis]
    return laid


def _statistics(laid: NDArray[np.float32], raw: Raw, environment: OfflineDataset) -> Statistics:
    columns = rows.columns(environment.observation_dim, environment.action_dim)
    reward, observations = laid[:, columns.reward], laid[:, columns.observations]
    return Statistics(
        transitions=len(laid),
        trajectories=int(raw.terminals.sum()),
        success_rows=int((laid[:, columns.mask] == 0).sum()),
        reward_min=float(reward.min()),
        reward_max=float(reward.max()),
        observation_min=float(observations.min()),
        observation_max=float(observations.max()),
    )


def _shape(environment: OfflineDataset) -> tuple[int, int]:
    width = rows.row_length(environment.observation_dim, environment.action_dim)
    return environment.transitions, width


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _refused(path: Path, error: Unfit, command: str) -> DatasetError:
    return DatasetError(
        f"{path}: {error}. Remove the file and its .sha256, if it has one, then run: {command}"
    )
