"""The intervals of :func:`dovetail.estimates`, which Spark computes, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dovetail.families.approx.estimate import ROUNDING, Floats


@dataclass(frozen=True)
class Estimate:
    """A figure of the complete join: the best guess, its standard error, and a confidence interval."""

    estimate: float
    error: float
    low: float
    high: float


def total_of(total: float, variance: float, confidence: float, least: float = -np.inf) -> Estimate:
    """A total; it cannot be below `least`, such as the rows that were seen with one's own eyes.

    Examples
    --------
    >>> total_of(100.0, 25.0, 0.95)
    Estimate(estimate=100.0, error=5.0, low=90.2001800..., high=109.7998199...)
    """
    error = float(np.sqrt(max(variance, 0.0)))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error + ROUNDING * abs(total)
    return Estimate(total, error, max(total - reach, least), total + reach)


def ratio_of(top: float, bottom: float, covariances: Floats, confidence: float) -> Estimate:
    """An average, total over total; `covariances` are those of the two.

    Examples
    --------
    >>> ratio_of(10.0, 5.0, np.array([[4.0, 2.0], [2.0, 1.0]]), 0.95)
    Estimate(estimate=2.0, error=0.0, low=1.99999999999..., high=2.00000000000...)
    """
    if bottom == 0:
        return Estimate(*[float("nan")] * 4)
    ratio = top / bottom
    variance = (covariances[0, 0] - 2 * ratio * covariances[0, 1] + ratio**2 * covariances[1, 1]) / bottom**2
    return total_of(ratio, float(variance), confidence)
