"""The state of a best-match join of streams, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.inventory import HeldInput, StateLayout, by_reach

if TYPE_CHECKING:
    from dovetail.families.bestmatch.spec import BestSpec

BESIDE = {
    "head": "how far each input has come",
    "sent": "pairs that have left and may come up again",
    "best": "the best pairs so far",
}


def layout(spec: BestSpec, inputs: Sequence[str], columns: Sequence[Sequence[str]]) -> StateLayout:
    """What the cells of a join store; `columns` are the names of the columns of each input."""
    held = tuple(
        HeldInput(name, tuple(names), *_time(spec, side))
        for side, (name, names) in enumerate(zip(inputs, columns, strict=True))
    )
    return StateLayout("bestmatch", held)


def _time(spec: BestSpec, side: int) -> tuple[int | None, int | None]:
    """Where the ordering axis of a side lies, and how long its rows may be needed by the watermark."""
    if spec.max_age is not None:
        return spec.payload[side] + spec.keys, spec.max_age
    if spec.order is None or spec.compiled[spec.order].is_float:
        return None, None
    at = spec.payload[side] + len(spec.by) + spec.order
    within = spec.compiled[spec.order].within
    if spec.disorder != "watermark" or within is None:
        return at, None
    # A row waits until the other input has passed its candidates; it stays for those that wait, whose candidates it is.
    needed_by_others = 1 - side in spec.answers
    return at, int(within) * (2 if needed_by_others else 1)


def side_of(name: str) -> int | None:
    """The input whose rows a segment has; None for what is kept beside them.

    Examples
    --------
    >>> side_of("1/3"), side_of("best")
    (1, None)
    """
    first = name.split("/")[0]
    return int(first) if first.isdigit() else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input."""
    return BESIDE.get(name, "unknown")


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go; None where the order of arrival decides it."""
    return by_reach(layout, watermark)
