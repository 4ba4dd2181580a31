"""Checks of what a submission returns as an action, for the learner and for the actor."""

from typing import Any

import numpy as np


class BadAction(Exception):
    """An action, or a batch of them, that the task does not take."""

    def __init__(self, method: str, problem: str) -> None:
        """`method` of the submission returned it; `problem` goes on from there."""
        super().__init__(f"{method} returned {problem}")
        self.method = method
        self.line = 0
        """Of the source, 1-based: where the method begins; 0 for unknown."""


def checked_shape(method: str, actions: Any, shape: tuple[int, ...]) -> np.ndarray:
    """`actions` as a contiguous float32 array of exactly that shape.

    The host sees bytes and can only count them: here a transposed or nested batch is told apart.
    """
    try:
        array = np.ascontiguousarray(actions, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BadAction(method, f"no array of numbers: {error}") from error
    # ascontiguousarray makes a scalar 1-D; a scalar is no action.
    if np.shape(actions) != shape:
        raise BadAction(method, f"shape {np.shape(actions)}; {shape} is needed")
    return array


def checked_choices(method: str, actions: Any, rows: int, choices: int) -> np.ndarray:
    """`actions` as int32 (rows,), each from 0 to `choices` - 1. Only integers are taken."""
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadAction(method, f"no array of integers: {error}") from error
    if array.shape != (rows,) or not np.issubdtype(array.dtype, np.integer):
        raise BadAction(method, f"{array.dtype} {array.shape}; integers ({rows},) are needed")
    wrong = array[(array < 0) | (array >= choices)]
    if len(wrong):
        raise BadAction(method, f"the action {wrong[0]}; there are 0 to {choices - 1}")
    return array.astype(np.int32)
