"""Random numbers in the shapes of an offline task's dataset: reading them takes as long.

Nothing is to be learned from them. Rewards and masks are within 0 and 1, so values stay finite.
"""

import os
from pathlib import Path

import numpy as np

from harness.task import Task
from sandbox.rows import row_length


def write(directory: Path, task: Task, environment: str, transitions: int) -> Path:
    """A file as learners map it, in the page cache and on disk when this returns."""
    shapes = task.environments[environment]
    size = (transitions, row_length(shapes.observation_dim, shapes.action_dim))
    path = directory / "made_up.npy"
    with path.open("wb") as file:
        np.save(file, np.random.default_rng(1).random(size, dtype=np.float32))
        file.flush()
        os.fsync(file.fileno())  # or the kernel would do it beside what is measured
    return path


def used_by(task: Task, environment: str, dataset: Path) -> Task:
    """The task with as many transitions in that environment's dataset as the file has."""
    transitions = len(np.load(dataset, mmap_mode="r"))
    changed = task.environments[environment].model_copy(update={"transitions": transitions})
    return task.model_copy(update={"environments": {**task.environments, environment: changed}})
