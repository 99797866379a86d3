"""The control state of a cell: its throttle, what it looks at, what it has learned, and when it last ran.

It is one small segment of the cell's state, so a restarted query goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.families.shedding.budget import Budget
from dovetail.families.shedding.inventory import CONTROL
from dovetail.families.shedding.optimizer.model import Flags, Floats, Ints
from dovetail.families.shedding.optimizer.orders import join_orders
from dovetail.families.shedding.optimizer.statistics import Learned
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import KEEP_UP, Shed
from dovetail.families.shedding.throttle import UNIT, Expected, TimeModel, joining_room, load, throttled

ENOUGH = 2e6
"""Comparisons from which on a plan can be compared with what was done."""
OUTSIDE = 1.0
"""Seconds that a micro-batch takes before its rows are packed and after its cells are done, as long as no measure
of it is better.
"""
SLOWLY = 1.05
"""By how much that may grow from one micro-batch to the next."""


@dataclass
class WallClock:
    """The last micro-batch by the wall clock, and what is known from those before it."""

    began: float = 0.0
    ended: float = 0.0
    joined: float = 0.0
    """Seconds of joining."""
    planned: float = 0.0
    done: float = 0.0
    """Comparisons planned, and those done."""
    overrun: float = 1.0
    """Comparisons done for each one planned."""
    outside: float = OUTSIDE
    """Seconds of a micro-batch before its rows are packed and after its cells are done, which no cell sees."""
    rest: float = 0.0
    """Seconds that a cell sees and that are not joining."""
    calls: float = 0.0


@dataclass
class Control:
    """The control state of a cell."""

    learned: Learned
    selected: Flags
    """(m, m, n): the slices that each direction looks at."""
    orders: Ints
    keep: Floats
    """(m,): the part of each input's rows that is kept, where rows are dropped."""
    held: Floats
    """(m,): and the part that windows hold, which follows as old rows leave them."""
    z: float = 1.0
    call: int = 0
    since: float = np.nan
    """The event time of the last adaptation."""
    wall: WallClock = field(default_factory=WallClock)
    timing: TimeModel = field(default_factory=TimeModel)

    @classmethod
    def new(cls, slices: Slices) -> Control:
        """Before the first row: everything is looked at."""
        m = slices.counts.shape[0]
        orders = join_orders(np.zeros((m, m)), np.ones((m, m), dtype=np.bool_))
        return cls(Learned.nothing(slices), slices.everything(), orders, np.ones(m), np.ones(m))

    @classmethod
    def load(cls, slices: Slices, state: Mapping[str, pa.RecordBatch]) -> Control:
        """Take up what an earlier call stored; where other slices were asked for since, learn again."""
        control = cls.new(slices)
        if CONTROL not in state:
            return control
        arrays = arrays_of(state[CONTROL])
        control.z, control.call, control.since = float(arrays["z"]), int(arrays["call"]), float(arrays["since"])
        control.keep, control.held = arrays["keep"], arrays["held"]
        control.wall = WallClock(*arrays["wall"].tolist())
        control.timing = TimeModel(arrays["watch"], arrays["doubt"])
        if arrays["selected"].shape == control.selected.shape:
            control.selected = arrays["selected"] > 0
            control.orders = arrays["orders"].astype(np.int64)
            # Sums that an older version did not keep begin at nothing.
            known = {name: arrays.get(name, zeros) for name, zeros in vars(control.learned).items()}
            if all(sums.shape == getattr(control.learned, name).shape for name, sums in known.items()):
                control.learned = Learned(**known)
        return control

    def batch(self) -> pa.RecordBatch:
        """The segment to store."""
        own = {name: np.asarray(getattr(self, name)) for name in ("selected", "orders", "keep", "held")}
        own |= {"wall": np.array(astuple(self.wall)), "watch": self.timing.values, "doubt": self.timing.covariance}
        own |= {name: np.asarray(float(getattr(self, name))) for name in ("z", "call", "since")}
        return numbers_segment({**own, **asdict(self.learned)})


class Pace(Protocol):
    """Decides the throttle."""

    def decide(self, control: Control, full: Callable[[], float | None]) -> float | None:
        """The throttle from now on, or None where it is not yet time to adapt.

        `full` works out how many comparisons the full join of this micro-batch will take, or None if nobody knows.
        """

    def budget(self, control: Control) -> Budget | None:
        """The time that the joining may take, once the throttle is decided; None where it does not count."""


@dataclass
class WallPace:
    """The throttle on Spark: adapts in every micro-batch, by the wall clock.

    `began` is when the rows of this micro-batch were packed, by the packing tasks' own clock.  The work ahead is known
    from the rows that are there, and the time it takes from the last micro-batch: an overload is met in the
    micro-batch that brings it, not in the next.

    A micro-batch takes a time that no throttle changes, and the time of joining.  Part of the former lies before the
    packing and after the cell is done, where Spark plans and commits.  Where one micro-batch follows another at once,
    as it does after one that took longer than the target, it is the gap between them.  Where Spark waits for the next
    trigger the gap is longer, so the shortest one counts.
    """

    shed: Shed
    began: float | None
    _room: float = field(default=0.0, init=False)
    _ahead: float | None = field(default=None, init=False)

    def decide(self, control: Control, full: Callable[[], float | None]) -> float:
        """By what the last micro-batches took, or as the user fixed it."""
        wall, z = control.wall, control.z
        began = self.began if self.began is not None else time.time()
        target = None if self.shed.target == KEEP_UP else float(self.shed.target)
        # The first micro-batch starts Python and loads the kernel on the way: its times say nothing about others.
        if wall.calls > 1:
            self._look_back(control, began, target)
        interval, wall.began, wall.planned = began - wall.began, began, 0.0
        if self.shed.throttle is not None:
            return self.shed.throttle
        always, each = control.timing.values.tolist()
        rest = wall.rest + wall.outside if wall.calls > 1 else 0.0
        ahead = full() if wall.calls > 0 else None
        joining = 0.0 if ahead is None else z * ahead * wall.overrun * each / UNIT
        expected = Expected(interval, joining, rest=rest + always)
        # What any join takes is part of the time that a budget watches, but no part of what a throttle shortens.
        self._room, self._ahead = joining_room(Expected(interval, joining, rest), target), ahead
        if ahead is None:
            return z
        z = throttled(z, load(expected, target), self.shed.boost)
        wall.planned = z * ahead
        return z

    def budget(self, control: Control) -> Budget | None:
        """What the micro-batch of the last decision may take; None where the user fixed the throttle."""
        if self.shed.throttle is not None:
            return None
        wall = control.wall
        full = None if self._ahead is None else self._ahead * wall.overrun
        return Budget(self._room, full, control.timing, self.shed.boost, warm=wall.calls > 0, last=wall.joined)

    def _look_back(self, control: Control, began: float, target: float | None) -> None:
        """What the last micro-batch tells, now that the next one has begun."""
        wall = control.wall
        control.timing.observe(wall.done, wall.joined)
        if wall.planned > ENOUGH:
            # Up at once, down gradually, as with the rest below: an overrun hurts, a cautious plan hardly.
            overrun = wall.done / wall.planned
            wall.overrun = min(4.0, max(0.25, overrun, (wall.overrun + overrun) / 2))
        gap = max(0.0, began - wall.ended)
        # A gap beyond the target is no proof: the trigger interval may be longer than the target, or a moment longer.
        beyond = target is not None and wall.ended - wall.began + wall.outside > target
        wall.outside = gap if beyond else min(OUTSIDE, SLOWLY * wall.outside, gap)
        rest = max(0.0, wall.ended - wall.began - wall.joined)
        # Up at once, down gradually.
        wall.rest = max(rest, (wall.rest + rest) / 2)

    def done(self, control: Control, joined: float, done: float) -> None:
        """Remember what this micro-batch took."""
        wall = control.wall
        wall.ended, wall.joined, wall.done = time.time(), joined, done
        wall.calls += 1


def numbers_segment(arrays: Mapping[str, npt.NDArray[Any]]) -> pa.RecordBatch:
    """Arrays of numbers as a segment of state."""
    return pa.RecordBatch.from_pydict(
        {
            "name": list(arrays),
            "shape": [list(array.shape) for array in arrays.values()],
            "values": [np.asarray(array, dtype=np.float64).ravel() for array in arrays.values()],
        },
        schema=pa.schema([("name", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.list_(pa.float64()))]),
    )


def arrays_of(batch: pa.RecordBatch) -> dict[str, Floats]:
    """The arrays of a segment of state."""
    arrays = {}
    for name, shape, values in zip(*(batch.column(at) for at in range(3)), strict=True):
        array = values.values.to_numpy(zero_copy_only=False).astype(np.float64)
        arrays[name.as_py()] = array.reshape(shape.as_py()).copy()
    return arrays
