"""What a cell knows beside its rows: its throttle, what it looks at, what it has learned, and when it last ran.

It is one small segment of the cell's state, so a restarted query goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Protocol

import numpy as np
import pyarrow as pa

from dovetail.families.shedding.learning import Learned, from_batch, to_batch
from dovetail.families.shedding.model import Flags, Floats, Ints
from dovetail.families.shedding.ordering import join_orders
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import KEEP_UP, Shed
from dovetail.families.shedding.throttle import Measured, load, throttled

SEGMENT = "shedding"
USUAL, SLOWEST = 10e-9, 100e-9
"""Seconds of a comparison with all that comes with it, before it is measured and at most."""
ENOUGH = 2e6
"""Comparisons from which on their time can be told from that of everything else."""


@dataclass
class Control:
    """The control state of a cell."""

    learned: Learned
    selected: Flags
    """(m, m, n): the slices that each direction looks at."""
    orders: Ints
    keep: Floats
    """(m,): the part of each input's rows that is kept, where rows are dropped."""
    z: float = 1.0
    call: int = 0
    since: float = np.nan
    """The event time of the last adaptation."""
    wall: Floats = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 0.0, USUAL, 0.0]))
    """Of the last micro-batch: its start and end, seconds of joining and comparisons; seconds of a comparison; and how
    many micro-batches there were.
    """

    @classmethod
    def new(cls, slices: Slices) -> Control:
        """Before the first row: everything is looked at."""
        m = slices.counts.shape[0]
        orders = join_orders(np.zeros((m, m)), np.ones((m, m), dtype=np.bool_))
        return cls(Learned.nothing(slices), slices.everything(), orders, np.ones(m))

    @classmethod
    def load(cls, slices: Slices, state: Mapping[str, pa.RecordBatch]) -> Control:
        """Take up what an earlier call stored; where other slices were asked for since, learn anew."""
        control = cls.new(slices)
        if SEGMENT not in state:
            return control
        found = from_batch(state[SEGMENT])
        control.z, control.call, control.since = float(found["z"]), int(found["call"]), float(found["since"])
        control.wall, control.keep = found["wall"], found["keep"]
        if found["selected"].shape == control.selected.shape:
            control.selected = found["selected"] > 0
            control.orders = found["orders"].astype(np.int64)
            names = [one.name for one in fields(Learned)]
            if all(found[name].shape == getattr(control.learned, name).shape for name in names):
                control.learned = Learned(**{name: found[name] for name in names})
        return control

    def batch(self) -> pa.RecordBatch:
        """The segment to store."""
        own = {name: np.asarray(getattr(self, name)) for name in ("selected", "orders", "keep", "wall")}
        own |= {name: np.asarray(float(getattr(self, name))) for name in ("z", "call", "since")}
        return to_batch({**own, **asdict(self.learned)})

    @property
    def whole(self) -> bool:
        """Whether every direction looks at everything."""
        return self.z >= 1.0


class Pace(Protocol):
    """Decides the throttle."""

    def decide(self, control: Control, full: Callable[[], float | None]) -> float | None:
        """The throttle from now on, or None where it is not yet time to adapt.

        `full` works out how many comparisons the full join of this micro-batch will take, or None if nobody knows.
        """


@dataclass(frozen=True)
class WallPace:
    """The throttle on Spark: adapts in every micro-batch, by the clock on the wall.

    `began` is when the rows of this micro-batch were packed, by the packing tasks' own clock.  The work ahead is known
    from the rows that are there, and the time it takes from the last micro-batch: an overload is met in the
    micro-batch that brings it, not in the next.
    """

    shed: Shed
    began: float | None

    def decide(self, control: Control, full: Callable[[], float | None]) -> float:
        """By what the last micro-batch took, or as the user fixed it."""
        wall, z = control.wall, control.z
        last, ended, joined, effort, pace, calls = wall.tolist()
        began = self.began if self.began is not None else time.time()
        wall[0] = began
        if self.shed.throttle is not None:
            return self.shed.throttle
        ahead = full() if calls > 0 else None
        if ahead is None:
            return z
        # The first micro-batch starts Python and loads the kernel on the way: its times say nothing about others.
        if calls > 1 and effort > ENOUGH:
            wall[4] = pace = min(SLOWEST, joined / effort)
        other = max(0.0, ended - last - effort * pace) if calls > 1 else 0.0
        target = None if self.shed.target == KEEP_UP else float(self.shed.target)
        joining = z * ahead * pace
        return throttled(z, load(Measured(began - last, other + joining, joining), target), self.shed.boost)

    def done(self, control: Control, joined: float, effort: float) -> None:
        """Remember how long this micro-batch took."""
        control.wall[1], control.wall[2], control.wall[3] = time.time(), joined, effort
        control.wall[5] += 1
