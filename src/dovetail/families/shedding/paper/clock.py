"""A virtual clock: kernels run on a budget of work for each second, so an overload can be repeated from a seed.

Rows arrive at their times and wait in a buffer for each input.  The paper's join takes them out one by one.  Here a
service takes the rows of one tick, the oldest that wait, and the clock moves on by their work over the capacity: what
arrives meanwhile waits, and what finds its buffer full is lost.  A tick is short beside the adaptation interval, so a
new throttle is in force a moment after it is set, however many rows wait.

Every adaptation interval the rows taken out are compared with the rows that came, and the throttle is set (section 3).
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

Arrivals = Sequence[npt.NDArray[np.float64]]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Interval:
    """What an adaptation interval tells: rows taken out of the buffers, rows that came, and seconds."""

    taken: int
    arrived: int
    busy: float
    """Seconds that the join worked, out of `seconds`."""
    seconds: float
    waiting: int = 0
    """Rows that wait at its end, beside those of the tick that is served next."""


Rule = Callable[[float, Interval, float], float]
"""From the throttle, an interval and the boost factor to the throttle of the next interval."""


def by_room(z: float, interval: Interval, boost: float) -> float:
    """Our rule: the rate of consumption is that of the time the join was busy, so beta above 1 is the room there is."""
    if interval.arrived == 0 or interval.busy <= 0:
        return z
    return throttled(z, ROOM * (interval.taken / interval.busy) / (interval.arrived / interval.seconds), boost)


def as_printed(z: float, interval: Interval, boost: float) -> float:
    """The paper's rule: beta is the rows taken out over the rows that came."""
    return z if interval.arrived == 0 else paper_throttled(z, interval.taken / interval.arrived, boost)


def paper_throttled(z: float, beta: float, boost: float) -> float:
    """The paper's next throttle fraction: the boost factor in full whenever beta is not below 1."""
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

    def budget(self, control: Control) -> None:
        """None: a tick of rows is served at once."""
        return


@dataclass
class Buffers:
    """Rows on their way into the join: those that wait for each input, and those that are still to come."""

    arrivals: Arrivals
    most: int
    """Rows that wait for an input, beside those that the next service takes."""
    tick: float
    waiting: list[Rows] = field(default_factory=list)
    _next: list[int] = field(default_factory=list)
    """For each input the row that arrives next."""

    def __post_init__(self) -> None:
        self.waiting = [np.empty(0, dtype=np.int64) for _ in self.arrivals]
        self._next = [0] * len(self.arrivals)

    def until(self, now: float) -> tuple[int, int]:
        """Take in what arrives up to a time; how many rows came and how many of them were lost."""
        came, lost = 0, 0
        end = self._end()
        for side, times in enumerate(self.arrivals):
            begin, stop = self._next[side], int(np.searchsorted(times, now, side="right"))
            # The rows of the tick that is served next have left the buffer as soon as the join is free.
            served = int(np.searchsorted(times[self.waiting[side]], end)) if self.waiting[side].size else 0
            room = max(0, self.most - (self.waiting[side].size - served))
            early = int(np.clip(np.searchsorted(times, end) - begin, 0, stop - begin))
            kept = min(stop - begin, early + room)
            self.waiting[side] = np.concatenate([self.waiting[side], np.arange(begin, begin + kept)])
            self._next[side] = stop
            came, lost = came + stop - begin, lost + stop - begin - kept
        return came, lost

    def take(self) -> list[Rows]:
        """The oldest rows that wait, a tick of them."""
        end, taken = self._end(), []
        for side, times in enumerate(self.arrivals):
            count = int(np.searchsorted(times[self.waiting[side]], end))
            taken.append(self.waiting[side][:count])
            self.waiting[side] = self.waiting[side][count:]
        return taken

    def behind(self) -> int:
        """Rows that wait, without those of the next tick."""
        end = self._end()
        return sum(
            rows.size - int(np.searchsorted(times[rows], end))
            for times, rows in zip(self.arrivals, self.waiting, strict=True)
        )

    def due(self, now: float) -> int:
        """Rows whose tick was over before a time.

        A row that waits for the end of its tick is not behind.  Counted when they come, those of the last tick would
        make every interval in which the rates rise look like an overload, the more the shorter it is.
        """
        end = (np.ceil(now / self.tick - 1e-9) - 1) * self.tick
        return sum(int(np.searchsorted(times, end)) for times in self.arrivals)

    def ready(self) -> float:
        """When the rows of the next tick are all there; never, where nothing comes any more."""
        return self._end()

    def _end(self) -> float:
        """The end of the tick of the oldest row that has not been taken."""
        oldest = [float(times[rows[0]]) for times, rows in zip(self.arrivals, self.waiting, strict=True) if rows.size]
        coming = [float(t[at]) for t, at in zip(self.arrivals, self._next, strict=True) if at < t.size]
        first = min(oldest or coming, default=np.inf)
        if not np.isfinite(first):
            return np.inf
        end = (np.floor(first / self.tick) + 1) * self.tick
        return float(end if end > first else end + self.tick)


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


@dataclass(frozen=True)
class Adapted:
    """One adaptation: when, what its interval told, and the throttle before and after it."""

    at: float
    interval: Interval
    before: float
    after: float


@dataclass
class Run:
    """All services and adaptations of a run."""

    served: list[Served] = field(default_factory=list)
    adapted: list[Adapted] = field(default_factory=list)

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
        Rows that wait for each input at most, beside those of the tick that is served next.
    tick
        Seconds of rows that a service takes.
    boost, rule
        The boost factor, and how the throttle follows from what an interval tells.
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
    rule: Rule = by_room
    fixed: float | None = None
    overhead: float = 0.0

    def run(
        self,
        inputs: Sequence[pa.RecordBatch],
        arrivals: Arrivals,
        until: float,
        take: Callable[[pa.RecordBatch], None] | None = None,
    ) -> Run:
        """Serve rows in the order of their arrival, in seconds, until a time; `take` is given every result."""
        pace = VirtualPace(self.fixed or 1.0)
        state: dict[str, pa.RecordBatch] = {}
        run, buffers = Run(), Buffers(arrivals, int(self.buffer), self.tick)
        now, since = buffers.ready(), 0.0
        busy, taken = 0.0, 0
        while now < until:
            came, lost = buffers.until(now)
            parts = [_chosen(rows, wanted) for rows, wanted in zip(inputs, buffers.take(), strict=True)]
            kernel = self._call(pace, state, parts, take)
            ended = now + kernel.work / self.capacity
            rows = sum(part.num_rows for part in parts)
            results = kernel.counters["results"]
            served = Served(now, ended, kernel.control.z, came, rows, lost, kernel.work, results, kernel.missed)
            run.served.append(served)
            busy, taken = busy + ended - now, taken + rows
            now = max(ended, buffers.ready())
            if now - since >= self.interval:
                if self.fixed is None:
                    arrived = buffers.due(now) - buffers.due(since)
                    told = Interval(taken, arrived, busy, now - since, buffers.behind())
                    before, pace.z = pace.z, self.rule(pace.z, told, self.boost)
                    run.adapted.append(Adapted(now, told, before, pace.z))
                # The adaptation takes the join's own time, so it is part of what the next interval was busy with.
                pace.due, since, busy, taken = True, now, self.overhead, 0
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


def _chosen(rows: pa.RecordBatch, wanted: Rows) -> pa.RecordBatch:
    """Some rows; most often neighbours."""
    if wanted.size and wanted[-1] - wanted[0] == wanted.size - 1:
        return rows.slice(int(wanted[0]), wanted.size)
    return rows.take(wanted)
