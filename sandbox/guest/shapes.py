"""One check of what a submission returns as an action, for the learner and for the actor."""

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
