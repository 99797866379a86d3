"""The state of an approximate join, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dovetail.inventory import HeldInput, StateLayout

BESIDE = {
    "head": "counters, and the seed",
    "strata": "what is known of each stratum",
    "queues": "what is known of each queue",
    "live": "which of the stored rows are still held",
}


def layout(inputs: Sequence[str], columns: Sequence[Sequence[str]]) -> StateLayout:
    """What the cells of a join store; `columns` are the names of the columns of each input."""
    held = (HeldInput(name, tuple(names)) for name, names in zip(inputs, columns, strict=True))
    return StateLayout("approx", tuple(held))


def side_of(name: str) -> int | None:
    """The input whose rows a segment has; None for what is kept beside them.

    Examples
    --------
    >>> side_of("rows/1/5/100"), side_of("live")
    (1, None)
    """
    parts = name.split("/")
    return int(parts[1]) if parts[0] == "rows" else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input."""
    return BESIDE.get(name, "unknown")


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go: memory decides that, and not time."""
    return [None] * len(layout.inputs)
