"""The state of a theta join in windows, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.columns.layout import SINCE
from dovetail.inventory import HeldInput, StateLayout

if TYPE_CHECKING:
    from dovetail.families.theta.spec import WindowSpec


def layout(spec: WindowSpec, columns: Sequence[Sequence[str]]) -> StateLayout:
    """What the cells of a join store; `columns` are the names of the columns of each input."""
    time = None if spec.every is None else -1
    inputs = tuple(HeldInput(alias, tuple(names), time) for alias, names in zip(spec.aliases, columns, strict=True))
    return StateLayout("theta", inputs, {"every": spec.every})


def side_of(name: str) -> int | None:
    """The input whose rows a segment has; None for what is kept beside them.

    Examples
    --------
    >>> side_of("-3/1/12"), side_of("head")
    (1, None)
    """
    parts = name.split("/")
    return int(parts[1]) if len(parts) == 3 else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input."""
    return "since when windows are whole" if name == SINCE else "rows of each input so far"


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go: the end of the last window that is over."""
    every = layout.facts["every"]
    over = None if every is None or watermark is None else watermark // every * every
    return [over] * len(layout.inputs)
