"""Where the files of datasets lie under one root directory, and the error that speaks of them.

<root>/<stem>.npz  <stem>-val.npz                             official files, where OGBench's own
                                                              loader finds them (`dataset_dir`)
<root>/generated/<stem>-<episodes>x<validation>-seed<seed>/   the same two, made on this machine
<a file>.sha256                                               what its bytes were at first sight
<root>/prepared/<digest>.npy  <digest>.json                   the rows that learners map, and what
                                                              is known of them

A learner sees its file's name in its table of mounts, so a prepared name says nothing of the
environment.
"""

import shlex
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from harness.task import REPOSITORY, OfflineDataset

DEFAULT_ROOT = REPOSITORY / "datasets"

Say = Callable[[str], None]
"""Takes a line about something that happened, once."""
Show = Callable[[str], None]
"""Takes a line about how far something is, many times: the next one may overwrite it."""


class DatasetError(Exception):
    """Data are missing, damaged or not what the task says: which file, why, and what to do."""


class Part(StrEnum):
    """One of a dataset's two files."""

    TRAINING = "training"
    VALIDATION = "validation"


class Files(NamedTuple):
    """The two files of a dataset."""

    training: Path
    validation: Path

    def parts(self) -> tuple[tuple[Part, Path], ...]:
        return ((Part.TRAINING, self.training), (Part.VALIDATION, self.validation))

    def missing(self) -> list[Path]:
        return [path for path in self if not path.exists()]


def files(environment: OfflineDataset, root: Path) -> Files:
    """Where an environment's two files belong."""
    made = environment.generator
    directory = root.absolute()
    if made is not None:
        sizes = f"{made.episodes}x{made.validation_episodes}"
        directory /= f"generated/{environment.dataset}-{sizes}-seed{made.seed}"
    return Files(
        directory / f"{environment.dataset}.npz", directory / f"{environment.dataset}-val.npz"
    )


def prepared(root: Path, digest: str) -> Path:
    """The file that learners map."""
    return root.absolute() / "prepared" / f"{digest}.npy"


def command(task: str, profile: str, root: Path = DEFAULT_ROOT, heldout: str = "") -> str:
    """What a user types to have a profile's data: for the advice of errors."""
    settings = {"TASK": task, "PROFILE": profile, "HELDOUT": heldout}
    if root.absolute() != DEFAULT_ROOT:
        settings["DATASETS"] = str(root)
    given = (f"{name}={shlex.quote(value)}" for name, value in settings.items() if value)
    return " ".join(("make datasets", *given))
