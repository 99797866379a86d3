"""The state of an aggregate join of two streams, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.inventory import HeldInput, LetteredSegments, StateLayout

_SEGMENTS = LetteredSegments("QT")
"""Segments of the matched and of the asking side."""
side_of, beside, expiry = _SEGMENTS.side_of, _SEGMENTS.beside, _SEGMENTS.expiry


def layout(
    inputs: Sequence[str],
    columns: Sequence[Sequence[str]],
    low: int,
    high: int,
    matched: Sequence[tuple[str, str]] = (),
) -> StateLayout:
    """What the cells of a join store: of the matched rows their keys and what is aggregated, of those that ask all.

    `inputs` and `columns` are in the order of the sides, `matched` what is stored of the matched rows, with the types.
    """
    held = [HeldInput(inputs[side], tuple(columns[side]), -1, reach) for side, reach in enumerate((high - low, high))]
    return StateLayout("aggregate", tuple(held), {"matched": [list(column) for column in matched]})
