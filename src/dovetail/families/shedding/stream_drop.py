"""The streaming kernel of RandomDrop: the exact join of a random part of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.columns.layout import MAX_TIME_HEADER
from dovetail.families.shedding.control import Control
from dovetail.families.shedding.optimizer.drop_rates import keep_rates
from dovetail.families.shedding.optimizer.model import Costs, Ints, Model
from dovetail.families.shedding.optimizer.orders import beginning_with
from dovetail.families.shedding.recall import dropped_matches
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import RandomDrop, Shed
from dovetail.families.shedding.stream import SheddingKernel
from dovetail.families.window.encode import Index
from dovetail.families.window.indexes import IndexedInput, PartialMatches
from dovetail.families.window.spec import WindowJoinSpec

ELSEWHERE = 0.025
"""The part of the rows that try another join order, where rows are dropped: all look everywhere, so few will do.  Some
in every micro-batch, not many in some of them: another order may take many times the work, and micro-batches should be
alike.
"""


@dataclass
class DropKernel(SheddingKernel):
    """RandomDrop: the exact join of a random part of the rows."""

    shed: Shed = field(default_factory=RandomDrop)

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state."""
        super().restore(state, watermark)
        control = self.control
        if control.call == 0 and self.shed.throttle is not None:
            # Nothing is known yet, but rows that meet rows are mostly what costs: their pairs, so each side's root.
            control.keep[:] = control.held[:] = self.shed.throttle**0.5
        self._entered = control.keep.copy()

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in a random part of new rows."""
        if MAX_TIME_HEADER in (rows.schema.metadata or {}):
            super().push(side, rows)
            return
        self.control.learned.pace[side] += rows.num_rows
        keep = self.control.keep[side]
        if keep < 1.0:
            kept = self._random.random(rows.num_rows) < keep
            self.counters["rows_dropped"] += int((~kept).sum())
            rows = rows.filter(pa.array(kept))
        super().push(side, rows)

    def _configure(self, z: float) -> None:
        control, learned = self.control, self.control.learned
        models = drop_models(self.spec, self._slices, control, self.costs)
        if z >= 1.0 or not models:
            self._reorder(learned.orders(self.spec))
        if z >= 1.0:
            control.keep = np.ones_like(control.keep)
        elif models:
            control.keep, orders = keep_rates(models, z, None if control.keep.min() == 1.0 else control.keep)
            self._reorder(orders)

    def _matches(
        self, turn: int, inputs: list[IndexedInput], rows: Index
    ) -> Iterator[tuple[list[IndexedInput], PartialMatches]]:
        # New rows came in by the rates before this adaptation, and windows hold rows of older ones.
        keep = self.control.held.copy()
        keep[turn] = self._entered[turn]
        chance = float(keep.prod())
        other = self._another_order(turn)
        tried = self._random.random(rows.size) < (0.0 if other is None else ELSEWHERE)
        for flags, order, known in ((~tried, self.control.orders[turn], True), (tried, other, False)):
            some = rows[flags]
            if some.size == 0 or order is None:
                continue
            search = self._search(turn, inputs, order)
            for matches in search.matches(turn, some):
                self.missed += dropped_matches(matches, keep)
                yield inputs, matches
            self._count_work(search)
            self.counters["work_full"] += round(search.compared / chance)
            self._learn(turn, inputs, some, search, 1.0, known)

    def _another_order(self, turn: int) -> Ints | None:
        """A join order that begins elsewhere, another one each time, so that all selectivities are known."""
        order = self.control.orders[turn]
        if order.size == 1:
            return None
        first = order[1 + self.control.call % (order.size - 1)]
        return beginning_with(order, int(first))


def drop_models(spec: WindowJoinSpec, slices: Slices, control: Control, costs: Costs) -> list[Model]:
    """The join in numbers with each choice of the window that is looked into first; none before anything is known."""
    learned = control.learned
    choices = [learned.orders(spec, first) for first in range(max(1, len(spec.aliases) - 1))]
    models = [learned.model(slices, orders, "pair", costs, known=control.orders) for orders in choices]
    return [model for model in models if model is not None]
