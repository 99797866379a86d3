"""The throttle fraction: which part of the full work a join may do (section 3), and what it is measured by.

The paper compares the rows taken out of the input buffers (alpha) with the rows put in (lambda') and multiplies the
throttle by their ratio beta, or by the boost factor where beta is not below 1.  A join that keeps up takes out what
comes in, so beta cannot say how much room is left, and a fixed boost overshoots and is taken back again and again.
Here the rate of consumption is that of the time the join was busy: beta above 1 is the room there is, and the boost
factor bounds the step.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST = 0.005
"""The throttle never falls below: some work must go on, or nothing would be measured."""
HEADROOM = 0.85
"""The part of the time that a join plans to be busy: loads vary from one micro-batch to the next."""
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


def paper_throttled(z: float, beta: float, boost: float) -> float:
    """The paper's rule: the boost factor in full whenever beta is not below 1."""
    return max(LEAST, z * beta) if beta < 1 else min(1.0, z * boost)


@dataclass(frozen=True)
class Measured:
    """Wall-clock times of a micro-batch, in seconds, measured or expected."""

    interval: float
    """From the start of the micro-batch before it to its own: the time in which its rows arrived."""
    lasted: float
    """From its start, when its rows were packed, until the cell is done."""
    joined: float
    """The part of that in which rows are joined: what shedding can shorten."""


def load(measured: Measured, target: float | None) -> float:
    """Room for the join over what it took: below 1 means overload.

    Parameters
    ----------
    measured
        The micro-batch, at the present throttle.
    target
        Seconds that it may take; None for the interval in which its rows arrived.

    Examples
    --------
    Of 4 s that a micro-batch took, 3 s were joining; in 5 s it may take 4.25 s:

    >>> round(load(Measured(interval=5.0, lasted=4.0, joined=3.0), None), 3)
    1.083
    >>> load(Measured(interval=5.0, lasted=12.0, joined=11.0), 5.0) < 0.3
    True
    """
    allowed = HEADROOM * (max(measured.interval, SHORT) if target is None else target)
    if measured.joined < 0.05 * allowed:
        # Whatever takes long, it is not the join: less of it would not help.
        return 1e9 if measured.lasted <= allowed else 1.0
    room = allowed - (measured.lasted - measured.joined)
    # Where the rest alone takes too long, shedding cannot do it all: halve what it can.
    return max(room, 0.5 * min(measured.joined, allowed)) / measured.joined
