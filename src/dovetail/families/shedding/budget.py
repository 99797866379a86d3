"""The budget of one micro-batch: its rows are joined in portions, and the throttle is set again between them.

A micro-batch takes all rows that wait.  The throttle decided before its first row is a forecast, from the micro-batches
before it: a burst, hot values or a busy neighbour on the machine make it wrong, and a micro-batch that has begun cannot
be cut short.  So rows go in portions, oldest first.  The first is small and tells what the forecast was worth; each is
expected to take an eighth of the time at most; and after each the throttle is what the time that is left allows for the
rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dovetail.families.shedding.optimizer.model import Flags, Floats
from dovetail.families.shedding.throttle import FASTEST, TWENTIETH, UNIT, TimeModel, throttled
from dovetail.families.window.encode import Index

FIRST = 1 / 64
"""The part of the rows that the first portion has."""
GROWTH = 3.0
"""A portion has at most so many times the rows before it: what was measured on few rows says little about many."""
EIGHTH = 1 / 8
"""The part of the budget that a portion takes at most, as far as anybody knows."""
MOST = 12
"""Portions of a micro-batch at most."""
ROWS = 1024
"""Rows below which a micro-batch is not worth dividing."""
FORECAST = 1 / 64
"""How much the forecast of the work counts, as if so much of the rows had been seen."""
NOISE = 0.02
"""Seconds by which the time of a portion may be off, as other processes take their turns."""
CLEARLY = 0.05
"""By how much a throttle must differ from the one in force."""


@dataclass
class Budget:
    """What is left of the time that a micro-batch may join for.

    Parameters
    ----------
    room
        Seconds that its joining may take.
    full
        Comparisons of the full join, as forecast; None where nobody knows.
    timing
        How long joins take, by the micro-batches before it.
    boost
        The most by which the throttle grows from one portion to the next.
    warm
        Whether earlier calls have loaded the kernel: if not, the first portion does, and its time is not counted.
    last
        Seconds that the joining of the micro-batch before it took.

    Examples
    --------
    A join of 1e9 comparisons was forecast to take a second for each 1e8, in a budget of five.  It turns out to take
    twice the work:

    >>> budget = Budget(room=5.0, full=1e9, timing=TimeModel(np.array([0.0, 1.0]), np.zeros((2, 2))), boost=2.0)
    >>> z = 0.5
    >>> budget.next_end(z)
    0.015625
    >>> budget.record(z, seconds=0.15, work=1.5e7)
    >>> 0.2 < budget.throttle(z) < 0.4
    True
    """

    room: float
    full: float | None
    timing: TimeModel
    boost: float
    warm: bool = True
    last: float = 0.0
    done: float = 0.0
    """The part of the rows that is joined."""
    spent: float = 0.0
    work: float = 0.0
    asked: float = 0.0
    """The sum over portions of their share of the rows times their throttle: the part of the full work asked for."""
    count: int = 0
    _end: float = 0.0

    def __post_init__(self) -> None:
        # What is learned here is learned once more from the whole micro-batch, for those that follow.
        self.timing = TimeModel(self.timing.values.copy(), self.timing.covariance.copy())

    def divides(self, z: float, rows: int) -> bool:
        """Whether the rows should go in portions: not where they are few, nor where they need little of the room."""
        if rows < ROWS:
            return False
        return not self.warm or self.full is None or max(self.last, self._seconds(z, 1.0)) > EIGHTH * self.room

    def next_end(self, z: float) -> float:
        """The part of the rows up to which the next portion goes."""
        self._end = self._chosen(z)
        return self._end

    def _chosen(self, z: float) -> float:
        if self.count == 0:
            return FIRST
        left = 1.0 - self.done
        fits = left * EIGHTH * self.room / max(self._seconds(z, left), 1e-9)
        share = max(min(GROWTH * self.done, fits), left / (MOST - self.count))
        # A remnant is not worth a portion of its own.
        return 1.0 if self.count >= MOST - 1 or share >= 0.8 * left else self.done + share

    def record(self, z: float, seconds: float, work: float) -> None:
        """The portion up to where the last one was to go is joined: what it took, and what was done."""
        share = self._end - self.done
        if self.count == 0:
            # Indexes are built on the way: of few comparisons most of the time is not theirs.
            if self.warm:
                self.timing.observe(work, seconds)
        elif work > 0:
            each, trust = float(self.timing.values[1]), seconds / (seconds + NOISE)
            self.timing.values[1] = max(FASTEST, (1 - trust) * each + trust * UNIT * seconds / work)
        self.spent += seconds if self.warm or self.count else 0.0
        self.work, self.asked = self.work + work, self.asked + z * share
        self.done, self.count = self._end, self.count + 1

    def throttle(self, z: float) -> float:
        """The throttle of the portions to come; as it is where it hardly differs."""
        left = max(self.room - self.spent, TWENTIETH * self.room)
        after = throttled(z, left / max(self._seconds(z, 1.0 - self.done), 1e-9), self.boost)
        return after if after == 1.0 or abs(after / z - 1) > CLEARLY else z

    def _seconds(self, z: float, share: float) -> float:
        """Seconds that a part of the rows takes at a throttle."""
        seen, known = self.asked, self.work
        if self.full is not None:
            seen, known = seen + FORECAST, known + FORECAST * self.full
        return z * share * known / max(seen, 1e-9) * float(self.timing.values[1]) / UNIT


class Portion(NamedTuple):
    """How a part of the rows of every direction, in the order of their times, was joined."""

    begin: float
    end: float
    z: float
    selected: Flags

    def rows(self, order: Index) -> Index:
        """The rows of this portion, of a direction's rows in the order of their times."""
        return order[round(self.begin * order.size) : round(self.end * order.size)]


@dataclass
class Portions:
    """The portions of a micro-batch once it is joined, and the times of each direction's rows, in order."""

    portions: list[Portion] = field(default_factory=list)
    times: dict[int, Index] = field(default_factory=dict)

    def throttle(self) -> float:
        """The mean throttle."""
        return sum((portion.end - portion.begin) * portion.z for portion in self.portions)

    def looked(self) -> Floats:
        """(m, m, n): the part of the rows that looked at each slice."""
        return np.asarray(sum((portion.end - portion.begin) * portion.selected for portion in self.portions))

    def shares(self, turn: int, times: Index) -> Sequence[Floats]:
        """For each portion the probability that a row of a direction with each of these times was in it.

        Rows of one time may lie in several portions.
        """
        if len(self.portions) == 1 or turn not in self.times:
            return [np.full(times.size, portion.end - portion.begin) for portion in self.portions]
        known = self.times[turn]
        first, last = np.searchsorted(known, times, side="left"), np.searchsorted(known, times, side="right")
        # A time that is not among them: where it would be.
        last = np.maximum(last, first + 1)
        shares = []
        for at, portion in enumerate(self.portions):
            begin, end = round(portion.begin * known.size), round(portion.end * known.size)
            end = end if at + 1 < len(self.portions) else known.size + 1
            inside = np.minimum(last, end) - np.maximum(first, begin)
            shares.append(np.maximum(inside, 0) / (last - first))
        return shares
