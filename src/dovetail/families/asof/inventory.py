"""The state of an as-of join, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.inventory import HeldInput, StateLayout, by_reach

if TYPE_CHECKING:
    from dovetail.families.asof.spec import AsofSpec

LETTERS = "LR"


def layout(spec: AsofSpec, inputs: Sequence[str], columns: Sequence[Sequence[str]]) -> StateLayout:
    """What the cells of a join store; `columns` are the names of the columns of each input."""
    whole = spec.time == "int"
    within = None if spec.within is None else int(spec.within)
    waits, looks_back = spec.direction != "backward", spec.direction != "forward"
    # A left row waits for its horizon at most; a right row is there for those that wait, and for what they look back.
    # Without a tolerance the last right row of each key stays, whatever its age.
    reach = (within if waits else 0, None if within is None else (waits + looks_back) * within)
    held = (
        HeldInput(name, tuple(names), spec.times[side] if whole else None, reach[side] if whole else None)
        for side, (name, names) in enumerate(zip(inputs, columns, strict=True))
    )
    return StateLayout("asof", tuple(held))


def side_of(name: str) -> int | None:
    """The input whose rows a segment has.

    Examples
    --------
    >>> side_of("L/0"), side_of("R/12")
    (0, 1)
    """
    return LETTERS.index(name[0]) if name[:1] in LETTERS else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input: there is none."""
    return "unknown"


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go; a left row that has its match may go before."""
    return by_reach(layout, watermark)
