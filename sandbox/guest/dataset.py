"""The dataset of an offline task: a file mapped into memory, out of which batches are gathered."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from sandbox.rows import columns, row_length


class OfflineBatch(NamedTuple):
    """Transitions, float32 on the device, in fresh tensors: the caller may keep or change them."""

    observations: torch.Tensor
    """(B, O)."""
    actions: torch.Tensor
    """(B, A): what the data's policy did."""
    rewards: torch.Tensor
    """(B,)."""
    masks: torch.Tensor
    """(B,): 0 where nothing is to be bootstrapped from the next observation, 1 elsewhere."""
    next_observations: torch.Tensor
    """(B, O)."""
    next_actions: torch.Tensor | None
    """(B, A): what the data's policy did next. None where they were not asked for."""


class Dataset:
    """Rows of `sandbox/rows.py` in a `.npy` file, read only: all readers share the page cache."""

    def __init__(
        self, path: Path, observation_dim: int, action_dim: int, device: torch.device
    ) -> None:
        """Raises ValueError, with the path, for a file that is no such array."""
        self._rows = _mapped(path, row_length(observation_dim, action_dim))
        self._columns = columns(observation_dim, action_dim)
        self._device = device

    def __len__(self) -> int:
        """Transitions."""
        return len(self._rows)

    def batch(self, indices: np.ndarray, with_next_actions: bool) -> OfflineBatch:
        """The transitions at `indices`, integers (B,), in that order.

        Raises IndexError for one beyond the last.
        """
        # Whole rows in one go, to the device in one go, and only there taken apart.
        rows = torch.from_numpy(self._rows.take(indices, axis=0)).to(self._device)
        at = self._columns
        return OfflineBatch(
            observations=_fresh(rows[:, at.observations]),
            actions=_fresh(rows[:, at.actions]),
            rewards=_fresh(rows[:, at.reward]).view(-1),
            masks=_fresh(rows[:, at.mask]).view(-1),
            next_observations=_fresh(rows[:, at.next_observations]),
            next_actions=_fresh(rows[:, at.next_actions]) if with_next_actions else None,
        )


def _fresh(part: torch.Tensor) -> torch.Tensor:
    """A contiguous copy, even of a part that is contiguous as it is."""
    return part.clone(memory_format=torch.contiguous_format)


def _mapped(path: Path, width: int) -> np.ndarray:
    """float32 (transitions, width), read from the file as it is needed."""
    try:
        rows = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise ValueError(f"{path}: no array can be read from it: {error}") from error
    if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        found = f"{rows.dtype} {rows.shape}"
        raise ValueError(f"{path}: it holds {found}; float32 (transitions, {width}) is needed")
    if not rows.flags.c_contiguous:
        raise ValueError(f"{path}: columns lie together in it (Fortran's order); rows must")
    return rows
