"""How a dataset's transitions lie in a file: rows of float32, one each, the same on both sides.

The file is a `.npy` of shape (transitions, columns), which a guest maps into its memory: a batch is
one gather of whole rows, and many learners share one copy in the page cache.

A row: observation (O), next observation (O), action (A), next action (A), reward, mask. The next
action is the one that the data took in the next observation, within the same trajectory. The mask
is 0 where the observation satisfies the task, so that nothing is to be bootstrapped, and 1
elsewhere, at a trajectory's end too.
"""

from typing import NamedTuple

FLOAT_BYTES = 4


class Columns(NamedTuple):
    """Where each part of a row lies."""

    observations: slice
    next_observations: slice
    actions: slice
    next_actions: slice
    reward: slice
    mask: slice


def columns(observation_dim: int, action_dim: int) -> Columns:
    """Of rows with such observations and actions."""
    sizes = (observation_dim, observation_dim, action_dim, action_dim, 1, 1)
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return Columns(*(slice(end - size, end) for end, size in zip(ends, sizes, strict=True)))


def row_length(observation_dim: int, action_dim: int) -> int:
    """Numbers in a row."""
    return 2 * observation_dim + 2 * action_dim + 2


def row_bytes(observation_dim: int, action_dim: int) -> int:
    """Bytes of a row."""
    return FLOAT_BYTES * row_length(observation_dim, action_dim)
