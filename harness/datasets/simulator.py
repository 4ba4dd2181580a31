"""OGBench's environments as datasets need them: never rendered, and felt by nobody else.

OGBench draws from numpy's global generator, warns of displays and bounds, and a maze leaves a file
in the temporary directory. What is made or stepped here does none of that to others.
"""

import importlib.metadata
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness.datasets.places import DatasetError


@contextmanager
def own_stream(seed: int | None = None) -> Iterator[None]:
    """numpy's global generator is the block's own, seeded; afterwards it is as it was."""
    others = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(others)


def version() -> str:
    """Of OGBench. Raises DatasetError where it is not installed."""
    try:
        return importlib.metadata.version("ogbench")
    except importlib.metadata.PackageNotFoundError as error:
        raise DatasetError(
            "OGBench is not installed here; requirements.lock leaves it out on Python 3.13, for "
            "which labmaze, which it brings along, has no wheel. Set up with another one: "
            "make setup PYTHON=python3.12"
        ) from error


def make(id_: str, **options: Any) -> Any:
    """The environment that is registered under that id, in its time limit.

    Raises DatasetError where there is none, or no OGBench.
    """
    version()
    with quiet():
        # The first import of all looks for a display.
        import gymnasium
        import ogbench  # noqa: F401 - registers its environments with gymnasium

        try:
            return gymnasium.make(id_, disable_env_checker=True, **options)
        except gymnasium.error.Error as error:
            raise DatasetError(f"OGBench has no environment {id_}: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of OGBench's in the block, and no files of its."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore", UserWarning)
        before, tempfile.tempdir = tempfile.tempdir, scratch
        try:
            yield
        finally:
            tempfile.tempdir = before
