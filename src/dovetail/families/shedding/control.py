"""What a cell knows beside its rows: its throttle, what it looks at, what it has learned, and when it last ran.

It is one small segment of the cell's state, so a restarted query goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
    wall: Floats = field(default_factory=lambda: np.zeros(4))
    """Start of the micro-batch before the last, start and end of the last, and seconds of joining in it."""

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

    def decide(self, control: Control) -> float | None:
        """The throttle from now on, or None where it is not yet time to adapt."""


@dataclass(frozen=True)
class WallPace:
    """The throttle on Spark: adapts in every micro-batch, by the clock on the wall.

    `began` is when the rows of this micro-batch were packed, by the packing tasks' own clock.
    """

    shed: Shed
    began: float | None

    def decide(self, control: Control) -> float:
        """By what the last micro-batch took, or as the user fixed it."""
        if self.shed.throttle is not None:
            return self.shed.throttle
        before, began, ended, joined = control.wall.tolist()
        z = control.z
        if before > 0:  # of the first micro-batch nobody knows in what time its rows arrived; it also starts Python
            measured = Measured(began - before, ended - began, joined)
            target = None if self.shed.target == KEEP_UP else float(self.shed.target)
            z = throttled(z, load(measured, target), self.shed.boost)
        control.wall[0], control.wall[1] = began, self.began if self.began is not None else time.time()
        return z

    def done(self, control: Control, joined: float) -> None:
        """Remember how long this micro-batch took."""
        control.wall[2], control.wall[3] = time.time(), joined
