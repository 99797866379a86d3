"""The state of an as-of join, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.inventory import HeldInput, LetteredSegments, StateLayout

if TYPE_CHECKING:
    from dovetail.families.asof.spec import AsofSpec

_SEGMENTS = LetteredSegments("LR")
side_of, beside, expiry = _SEGMENTS.side_of, _SEGMENTS.beside, _SEGMENTS.expiry


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
