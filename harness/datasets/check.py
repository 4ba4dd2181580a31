"""Whether a dataset's file holds what the task says: layout, types, lengths, ends, whose it is."""

import errno
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.datasets.generate import PROVENANCE, provenance
from harness.datasets.places import Part
from harness.task import OfflineDataset

_TYPES = {
    "observations": np.float32,
    "actions": np.float32,
    "qpos": np.float32,
    "qvel": np.float32,
    "terminals": np.bool_,
}
"""Every official file of states has these. Scenes and puzzles have the states of buttons too."""


_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, OSError)
"""What reading a zip file of arrays raises, depending on which of its bytes are wrong."""


class Unfit(Exception):
    """The file is not the one that is wanted; the message says why."""


class Raw(NamedTuple):
    """Of a file's rows, what OGBench's loader leaves out."""

    actions: NDArray[np.float32]
    """(rows, A), those of every trajectory's last row among them."""
    terminals: NDArray[np.bool_]
    """(rows,): which row is a trajectory's last."""


def check(path: Path, environment: OfflineDataset, part: Part) -> Raw:
    """Read the file whole. Raises Unfit where it is not the environment's, OSError."""
    arrays = _read(path)
    _check_layout(arrays, environment)
    _check_origin(arrays, environment, part)
    _check_ends(arrays["terminals"])
    _check_length(arrays["terminals"], environment, part)
    for name, array in arrays.items():
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise Unfit(f"some of its {name} are not finite")
    return Raw(arrays["actions"], arrays["terminals"])


def _read(path: Path) -> dict[str, NDArray[Any]]:
    wanted = {*_TYPES, "button_states", PROVENANCE}
    if not zipfile.is_zipfile(path):
        raise Unfit("truncated, or no .npz at all")
    try:
        # The CRC of each array is verified on the way.
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if name in wanted}
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # The disk's fault: what stands in the file is not known.
        raise Unfit(f"damaged ({error})") from error


def _check_layout(arrays: dict[str, NDArray[Any]], environment: OfflineDataset) -> None:
    names = set(_TYPES)
    if any(kind in environment.simulator for kind in ("scene", "puzzle")):
        names.add("button_states")
    missing = sorted(names - set(arrays))
    if missing:
        raise Unfit(f"it has no {', '.join(missing)}")
    rows = len(np.atleast_1d(arrays["terminals"]))
    widths = {"observations": environment.observation_dim, "actions": environment.action_dim}
    for name in sorted(names):
        array, width = arrays[name], widths.get(name)
        if name in _TYPES and array.dtype != _TYPES[name]:
            raise Unfit(f"its {name} are {array.dtype}, not {np.dtype(_TYPES[name])}")
        if array.ndim != (1 if name == "terminals" else 2) or len(array) != rows:
            raise Unfit(f"its {name} have shape {array.shape}, beside {rows} terminals")
        if width is not None and array.shape[1] != width:
            raise Unfit(f"its {name} have {array.shape[1]} numbers each, the task says {width}")


def _check_ends(terminals: NDArray[Any]) -> None:
    if not terminals.size or not terminals[-1]:
        raise Unfit("its last row does not end a trajectory: rows are missing")
    if terminals[0] or (terminals[1:] & terminals[:-1]).any():
        raise Unfit("one of its trajectories is a single row, which is no transition")


def _check_length(terminals: NDArray[Any], environment: OfflineDataset, part: Part) -> None:
    transitions = int(len(terminals) - terminals.sum())
    if part is Part.TRAINING and transitions != environment.transitions:
        raise Unfit(
            f"it has {transitions:,} transitions, the task says {environment.transitions:,}"
        )


def _check_origin(arrays: dict[str, NDArray[Any]], environment: OfflineDataset, part: Part) -> None:
    """An official file says nothing of itself; one that was made here does."""
    said = str(arrays[PROVENANCE]) if PROVENANCE in arrays else ""
    if environment.generator is None:
        if said:
            raise Unfit(
                f"it was made on some machine ({said[:300]}), and the official one is wanted"
            )
    elif said != provenance(environment, part):
        raise Unfit(
            f"it is another file: it says {said[:300] or 'nothing of where it comes from'}, and "
            f"{provenance(environment, part)} is wanted"
        )
