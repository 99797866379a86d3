"""A virtual clock: kernels run on a budget of work for each second, so an overload can be repeated from a seed.

Rows arrive at their times and wait in a buffer for each input.  The join takes what waits, works on it, and the
clock moves on by that work over the capacity.  What arrives meanwhile waits, and what finds its buffer full is lost.
Every adaptation interval the rows taken are compared with the rows that came, and the throttle is set (section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.layout import MAX_TIME_HEADER
from dovetail.families.shedding.control import Control
from dovetail.families.shedding.recall import Missed
from dovetail.families.shedding.stream import SheddingKernel
from dovetail.families.shedding.throttle import LEAST, throttled

SECOND = 1_000_000
ROOM = 0.97
"""The part of its time that the join plans to be busy."""

Rule = Callable[[float, float, float], float]


def paper_throttled(z: float, beta: float, boost: float) -> float:
    """The paper's rule: the boost factor in full whenever beta is not below 1."""
    return max(LEAST, z * beta) if beta < 1 else min(1.0, z * boost)


@dataclass
class VirtualPace:
    """The throttle of a virtual clock, set from outside."""

    z: float = 1.0
    due: bool = True

    def decide(self, control: Control, full: Callable[[], float | None]) -> float | None:
        """The throttle, where the clock says that it is time."""
        due, self.due = self.due, False
        return self.z if due else None


@dataclass(frozen=True)
class Served:
    """One service: when it began, what it took in and what came of it."""

    began: float
    ended: float
    z: float
    arrived: int
    taken: int
    lost: int
    work: float
    results: int
    missed: Missed


@dataclass
class Run:
    """All services of a run."""

    served: list[Served] = field(default_factory=list)

    def total(self, name: str, begin: float = 0.0, end: float = np.inf) -> float:
        """A sum over the services that began in a span of time."""
        return float(sum(getattr(service, name) for service in self.served if begin <= service.began < end))

    def rate(self, name: str, begin: float, end: float) -> float:
        """The same for each second."""
        return self.total(name, begin, end) / (end - begin)

    def throttle(self, at: float) -> float:
        """The throttle at a time."""
        return next((service.z for service in reversed(self.served) if service.began <= at), 1.0)


@dataclass
class VirtualClock:
    """Runs a kernel on a budget.

    Parameters
    ----------
    make
        Makes the kernel of the one cell, given the pace to follow.
    capacity
        Work a second, in comparisons.
    interval
        Seconds between adaptations, the paper's Delta.
    buffer
        Rows that wait for each input at most.
    tick
        Seconds between services while the join keeps up.
    boost, rule
        The boost factor, and how the throttle follows from the load.
    fixed
        A throttle that stays as it is.
    overhead
        Seconds that an adaptation takes.
    """

    make: Callable[[VirtualPace], SheddingKernel]
    capacity: float
    interval: float = 5.0
    buffer: float = 100
    tick: float = 0.1
    boost: float = 2.0
    rule: Rule = throttled
    fixed: float | None = None
    overhead: float = 0.0

    def run(
        self,
        inputs: Sequence[pa.RecordBatch],
        arrivals: Sequence[npt.NDArray[np.float64]],
        until: float,
        take: Callable[[pa.RecordBatch], None] | None = None,
    ) -> Run:
        """Serve rows in the order of their arrival, in seconds, until a time; `take` is given every result."""
        pace = VirtualPace(self.fixed or 1.0)
        state: dict[str, pa.RecordBatch] = {}
        run, heads = Run(), [0] * len(inputs)
        now, since = self.tick, 0.0
        busy, taken = 0.0, 0
        while now < until:
            parts, came, lost = [], 0, 0
            for side, times in enumerate(arrivals):
                arrived = int(np.searchsorted(times, now, side="right"))
                kept = min(arrived - heads[side], int(self.buffer))
                parts.append(inputs[side].slice(heads[side], kept))
                came, lost = came + arrived - heads[side], lost + arrived - heads[side] - kept
                heads[side] = arrived
            kernel = self._call(pace, state, parts, take)
            ended = now + kernel.work / self.capacity
            rows = sum(part.num_rows for part in parts)
            results = kernel.counters["results"]
            served = Served(now, ended, kernel.control.z, came, rows, lost, kernel.work, results, kernel.missed)
            run.served.append(served)
            busy, taken = busy + ended - now, taken + rows
            now = max(ended, now + self.tick)
            if now - since >= self.interval:
                # What came while the join was busy counts, too: that is what overload shows in.
                arrived = sum(int(np.diff(np.searchsorted(times, [since, now]))[0]) for times in arrivals)
                if self.fixed is None and arrived and busy > 0:
                    beta = ROOM * (taken / busy) / (arrived / (now - since))
                    pace.z = self.rule(pace.z, beta, self.boost)
                pace.due, since, busy, taken = True, now, 0.0, 0
                now += self.overhead
        return run

    def _call(
        self,
        pace: VirtualPace,
        state: dict[str, pa.RecordBatch],
        parts: list[pa.RecordBatch],
        take: Callable[[pa.RecordBatch], None] | None,
    ) -> SheddingKernel:
        kernel = self.make(pace)
        kernel.restore(state, None)
        for side, part in enumerate(parts):
            if part.num_rows:
                kernel.push(side, part)
                top = part.column(kernel.spec.times[side])[-1].as_py()
                kernel.push(side, part.slice(0, 0).replace_schema_metadata({MAX_TIME_HEADER: str(top)}))
        for batch in kernel.results():
            if take is not None:
                take(batch)
        changes = kernel.changes()
        for name in changes.dropped:
            state.pop(name, None)
        state.update(changes.stored)
        return kernel
