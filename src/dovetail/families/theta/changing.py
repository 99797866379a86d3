"""A theta join in windows of time that is defined otherwise: what of the old state goes on, and how cells store it.

Rows of the windows that are open at the change are sorted into the new ones.  They match all rows that are still to
come; which of them match nothing is judged by the new definition, when their window closes.  A new window that had
begun before the oldest of the open ones has lost rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.changing import (
    NOTHING_GONE,
    Carry,
    Definition,
    Operators,
    Pieces,
    Standing,
    TakeStored,
    not_held,
    refused,
    same_parts,
)
from dovetail.columns.codes import Mask
from dovetail.columns.held import since_segment
from dovetail.columns.layout import SINCE
from dovetail.columns.segments import concat
from dovetail.families.theta.inventory import side_of
from dovetail.families.theta.router import CELLS
from dovetail.families.theta.spec import WindowSpec
from dovetail.families.theta.stream import WindowKernel


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    before, now = (one.layout.facts["every"] for one in (old, new))
    if before is None or now is None:
        raise refused(
            f"the window was {old.parts['window']!r} and is {new.parts['window']!r}, the condition was "
            f"{old.parts['condition']!r} and is {new.parts['condition']!r}",
            "windows of rows number them as they arrive, and the numbers of rows that are held are not stored",
        )
    same_parts(old, new, "inputs", "time")
    gone = None if standing.watermark is None else standing.watermark // before * before
    gone = standing.later(gone)
    since = None if gone is None or (gone % now == 0 and standing.since is None) else -(-gone // now) * now
    notes = not_held(old, new)
    return Carry({held.name: NOTHING_GONE for held in new.layout.inputs}, {"since": since}, since, notes)


class TakeRows(TakeStored):
    """The segments of an old cell in; the rows of one input out."""

    def held(self, operators: Operators) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """The rows of all windows that are open, which nobody marks."""
        for state in operators.values():
            own = [name for name in state if side_of(name) == self.side]
            for name in sorted(own, key=lambda name: int(name.rsplit("/", 1)[1])):
                yield state[name], np.zeros(state[name].num_rows, dtype=np.bool_)

    def kept(self, rows: pa.RecordBatch) -> Mask:
        """All rows of an open window."""
        return np.ones(rows.num_rows, dtype=np.bool_)


@dataclass(frozen=True)
class ThetaAdoption:
    """How the cells of a new theta join in windows store held rows; see :class:`dovetail.changing.Adoption`."""

    spec: WindowSpec
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return tuple(range(CELLS))

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows by window, as if they had come now and met nobody."""
        kernel = WindowKernel(self.spec)
        kernel.restore({}, None)
        for side, parts in enumerate(pieces):
            if parts:
                kernel.push(side, concat(parts))
        kernel.adopt()
        for name, rows in kernel.changes().stored.items():
            yield 0, name, rows
        if self.told["since"] is not None:
            yield 0, SINCE, since_segment(self.told["since"])
