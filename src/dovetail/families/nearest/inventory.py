"""The state of a nearest join of two streams, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dovetail.inventory import HeldInput, StateLayout, by_reach

if TYPE_CHECKING:
    from dovetail.families.nearest.join_stages import ResultStage

LETTERS = "RS"
"""Segments of the asking and of the answering side."""


def layout(stage: ResultStage, inputs: Sequence[str], columns: Sequence[Sequence[str]]) -> StateLayout:
    """What the cells of a join store; `inputs` and the names of their columns, the asking one first."""
    assert stage.spec.window is not None
    low, high = stage.spec.window
    held = []
    for side, reach in enumerate((high, high - low)):
        source = None if stage.sources is None else stage.sources[side][-1]
        time = stage.held(side) + stage.travelling(side) - 1 if source is None else source.column
        held.append(HeldInput(inputs[side], tuple(columns[side]), time, reach))
    return StateLayout("nearest", tuple(held))


def side_of(name: str) -> int | None:
    """The input whose rows a segment has.

    Examples
    --------
    >>> side_of("R/0"), side_of("S/3")
    (0, 1)
    """
    return LETTERS.index(name[0]) if name[:1] in LETTERS else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input: there is none."""
    return "unknown"


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go."""
    return by_reach(layout, watermark)
