"""How returns become a score: normalisation, aggregates, intervals, ranks; pure functions.

Everywhere, `z` is an array of normalised returns, 0 at an environment's floor and 1 at its ceiling,
of shape (environments, seeds). It has no gaps: its shape is fixed before the first run starts, and
a run without a score is in it as 0, in the mean and in the variance alike. No z is negative, so
replacing any run by a failed one never raises a score.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]


class RankRange(NamedTuple):
    """The ranks that an entry may hold, 1 being the best; both ends belong to it."""

    best: int
    worst: int


def normalise(returns: ArrayLike, floor: ArrayLike, ceiling: ArrayLike) -> Array:
    """z = max(0, (return - floor) / (ceiling - floor)).

    `returns`: mean raw return a run, any shape, in the environment's units; NaN for a run without a
    score. `floor` and `ceiling`: of the same units, broadcast against it. The result has the shape
    of the broadcast and no unit. It is not capped at 1, so that a better algorithm than the best
    reference shows. A return that is no finite number is no score: z = 0.

    Raises ValueError where a ceiling does not lie above its floor.
    """
    x, low, high = (np.asarray(each, dtype=np.float64) for each in (returns, floor, ceiling))
    if not np.all(high > low):
        raise ValueError("each ceiling must lie above its floor")
    finite = np.isfinite(x)
    z = np.maximum(0.0, (np.where(finite, x, low) - low) / (high - low))
    return np.where(finite, z, 0.0)


def score(z: ArrayLike) -> float:
    """100 x the mean over environments of the mean over seeds. `z`: (environments, seeds).

    100 is the ceiling in every environment. Raises ValueError as `interval` does.
    """
    return float(100 * _checked(z).mean(axis=-1).mean(axis=-1))


def interval(z: ArrayLike, level: float = 0.95) -> Array:
    """A confidence interval of the score: Welch-Satterthwaite's t interval of the mean of means.

    `z`: (environments, seeds), or (..., environments, seeds) for many at once. The result is
    (..., 2): low and high end, in the score's unit (100 = ceiling). The seeds vary and the
    environments are fixed: it says how far the score would move with other seeds, not with other
    environments.

    With environment e's sample variance s_e^2 (ddof = 1) over n seeds, v_e = s_e^2 / n, the
    standard error is sqrt(sum v_e) / environments and the degrees of freedom are
    (sum v_e)^2 / sum(v_e^2 / (n - 1)): Welch (1947), Biometrika 34, 28-35; Satterthwaite (1946),
    Biometrics Bulletin 2, 110-114. The low end is cut at 0, below which no score lies.

    - One seed has no spread to estimate: both ends are NaN.
    - No spread at all (the same z for every seed of each environment): both ends are the score. It
      says that these seeds agree, as when every run failed, not that others would.
    - It is a t interval: for normal z it covers 94-98 % (2 seeds of equal variances: 98.3 %), see
      tests/test_scoring.py. A failure that strikes some seeds and was not drawn cannot be in it:
      where one run in ten fails, it covers 76 % with 3 environments and 3 seeds.

    Raises ValueError for fewer than two dimensions, an empty one, or a z that is negative or not
    finite.
    """
    values = _checked(z)
    environments, seeds = values.shape[-2:]
    if seeds == 1:
        return np.full((*values.shape[:-2], 2), np.nan)
    centre = values.mean(axis=-1).mean(axis=-1)
    variances = values.var(axis=-1, ddof=1) / seeds
    total = variances.sum(axis=-1)
    spread = total > 0
    # Shares and not squares of variances: a spread of 1e-170 must not underflow to 0 / 0.
    shares = variances / np.where(spread, total, 1.0)[..., None]
    degrees = (seeds - 1) / np.where(spread, (shares**2).sum(axis=-1), 1.0)
    quantile = stats.t.ppf((1 + level) / 2, degrees)
    half = quantile * np.sqrt(total) / environments
    ends = np.stack([np.maximum(0.0, centre - half), centre + half], axis=-1)
    return np.asarray(100 * ends, dtype=np.float64)


def interquartile_mean(z: ArrayLike) -> float:
    """100 x the mean of all z without the lowest and the highest quarter of them.

    `z`: (environments, seeds). As in rliable (Agarwal et al. 2021): of n runs, floor(n / 4) are
    left out at each end. Shown, never ranked: of 15 runs it leaves out 3 at each end, so one
    environment of five can be given up for nothing. Raises ValueError as `interval` does.
    """
    return float(100 * stats.trim_mean(_checked(z), 0.25, axis=None))


def rank_ranges(intervals: ArrayLike) -> list[RankRange]:
    """The ranks that each of n entries may hold, given (n, 2) interval ends, low and high.

    From 1 + the number of entries whose interval lies wholly above, to n - the number of those
    wholly below. Intervals that touch overlap. An entry whose ends are NaN is neither above nor
    below any other: 1 to n for itself. Raises ValueError for another shape.
    """
    ends = np.asarray(intervals, dtype=np.float64)
    if ends.size == 0:
        return []
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"intervals have the shape (n, 2), not {ends.shape}")
    low, high = ends.T
    above = (low[None, :] > high[:, None]).sum(axis=1)
    below = (high[None, :] < low[:, None]).sum(axis=1)
    return [
        RankRange(best=1 + int(a), worst=len(ends) - int(b))
        for a, b in zip(above, below, strict=True)
    ]


def _checked(z: ArrayLike) -> Array:
    values = np.asarray(z, dtype=np.float64)
    if values.ndim < 2 or 0 in values.shape[-2:]:
        raise ValueError(f"z has the shape (environments, seeds), not {values.shape}")
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError("every z is a finite number and at least 0; a run without a score is 0")
    return values
