"""The throttle fraction: which part of the full work a join may do (section 3), and what it is measured by.

The paper compares the rows taken out of the input buffers (alpha) with the rows put in (lambda') and multiplies the
throttle by their ratio beta, or by the boost factor where beta is not below 1.  A join that keeps up takes out what
comes in, so beta cannot say how much room is left, and a fixed boost overshoots and is taken back again and again.
Here the rate of consumption is that of the time the join was busy: beta above 1 is the room there is, and the boost
factor bounds the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.families.shedding.optimizer.model import Floats

UNIT = 1e8
"""The unit of work: so many comparisons."""
FASTEST = 0.1
"""The fewest seconds for that: no machine makes a comparison in less than a nanosecond."""
LEAST = 0.005
"""The throttle never falls below: some work must go on, or nothing would be measured."""
HEADROOM = 0.75
"""The part of the time that a join plans to be busy: loads vary from one micro-batch to the next."""
TWENTIETH = 0.05
"""The part of its time that a join has in any case: where the rest alone takes too long, less of it would not help."""
SHORT = 2.0
"""Seconds: a micro-batch as short as this is no reason to shed.  Its length is Spark's own overhead."""


def throttled(z: float, beta: float, boost: float) -> float:
    """The next throttle fraction.

    Examples
    --------
    >>> throttled(1.0, 0.4, 2.0), throttled(0.4, 1.1, 2.0), throttled(0.4, 9.0, 2.0), throttled(0.8, 9.0, 2.0)
    (0.4, 0.44000000000000006, 0.8, 1.0)
    """
    return max(LEAST, z * beta) if beta < 1 else min(1.0, z * min(beta, boost))


@dataclass(frozen=True)
class Expected:
    """What a micro-batch will take at the present throttle, in seconds of the wall clock."""

    interval: float
    """From the start of the micro-batch before it to its own: the time in which its rows arrived."""
    joining: float
    """The part of it in which rows are compared: what shedding can shorten."""
    rest: float
    """Everything else: Spark's planning and committing, packing, storing."""


def load(expected: Expected, target: float | None) -> float:
    """Room for the join over what it will take: below 1 means overload.

    Parameters
    ----------
    expected
        The micro-batch, at the present throttle.
    target
        Seconds that it may take; None for the interval in which its rows arrived.

    Examples
    --------
    A micro-batch would join for 2.5 s and take 1 s besides; in 5 s it may take 3.75 s:

    >>> load(Expected(interval=5.0, joining=2.5, rest=1.0), None)
    1.1
    >>> load(Expected(interval=5.0, joining=11.0, rest=1.0), 5.0) < 0.3
    True
    """
    return joining_room(expected, target) / max(expected.joining, 1e-9)


def joining_room(expected: Expected, target: float | None) -> float:
    """Seconds that the joining of a micro-batch may take.

    Examples
    --------
    >>> joining_room(Expected(interval=5.0, joining=2.5, rest=1.0), 4.0)
    2.0
    """
    allowed = HEADROOM * (max(expected.interval, SHORT) if target is None else target)
    return max(allowed - expected.rest, TWENTIETH * allowed)


@dataclass
class TimeModel:
    """How long joins take: a constant, and a time that grows with the work.

    An estimate of both from one micro-batch after the other (a Kalman filter of two numbers): one with little work
    tells about the former, one with much about the latter, and each leaves the other as it was.
    """

    values: Floats = field(default_factory=lambda: np.array([0.05, 1.0]))
    """Seconds that any join takes, and seconds for `UNIT` comparisons."""
    covariance: Floats = field(default_factory=lambda: np.diag([0.3**2, 1.0]))
    """How uncertain both are."""

    def observe(self, work: float, seconds: float) -> None:
        """A micro-batch did so much work in so many seconds.

        Examples
        --------
        >>> model = TimeModel()
        >>> for work in (1e9, 1e6, 5e8, 2e6, 8e8, 1e6):
        ...     model.observe(work, 0.2 + 6e-9 * work)
        >>> [round(float(value), 2) for value in model.values]
        [0.2, 0.6]
        """
        # Both may have changed since: machines are shared.
        self.covariance += np.diag([0.05**2, (0.1 * self.values[1]) ** 2])
        by = np.array([1.0, work / UNIT])
        spread = self.covariance @ by
        gain = spread / (by @ spread + (0.02 + 0.1 * seconds) ** 2)
        self.values = np.maximum(self.values + gain * (seconds - by @ self.values), [0.0, FASTEST])
        self.covariance -= np.outer(gain, spread)
