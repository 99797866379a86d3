"""GrubJoin as printed: Figure 5's search and section 5.3's join orders, without what Dovetail adds to them.

Ours refines the search (`optimizer/fractions.py`) and changes an order only for a clear gain (`optimizer/orders.py`).
The throttle's rule is the clock's: :func:`dovetail.families.shedding.paper.clock.as_printed`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.families.shedding.optimizer.fractions import harvest_counts
from dovetail.families.shedding.stream import HarvestKernel


@dataclass
class PrintedHarvestKernel(HarvestKernel):
    """Window harvesting by the double-sided greedy search of the paper, scores from one histogram for each stream."""

    def _configure(self, z: float) -> None:
        # Low selectivity first, whenever the throttle is set: estimates that are alike change places.
        self._reorder(self.control.learned.orders(self.spec))
        self._choose(z)

    def _choose(self, z: float) -> None:
        control = self.control
        model = control.learned.model(self._slices, control.orders, "stream", self.costs)
        if z >= 1.0:
            control.selected = self._slices.everything()
        elif model is not None:
            control.selected = model.selected(harvest_counts(model, z, refined=False))
