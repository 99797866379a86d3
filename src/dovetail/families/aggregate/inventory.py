"""The state of an aggregate join of two streams, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dovetail.inventory import HeldInput, StateLayout, by_reach

LETTERS = "QT"
"""Segments of the matched and of the asking side."""


def layout(inputs: Sequence[str], columns: Sequence[Sequence[str]], low: int, high: int) -> StateLayout:
    """What the cells of a join store: of the matched rows their keys and what is aggregated, of those that ask all.

    `inputs` and `columns` are in the order of the sides.
    """
    held = [HeldInput(inputs[side], tuple(columns[side]), -1, reach) for side, reach in enumerate((high - low, high))]
    return StateLayout("aggregate", tuple(held))


def side_of(name: str) -> int | None:
    """The input whose rows a segment has.

    Examples
    --------
    >>> side_of("Q/0"), side_of("T/3")
    (0, 1)
    """
    return LETTERS.index(name[0]) if name[:1] in LETTERS else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input: there is none."""
    return "unknown"


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go."""
    return by_reach(layout, watermark)
