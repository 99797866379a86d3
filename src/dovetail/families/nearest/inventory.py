"""The state of a nearest join of two streams, for those who read it without the join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.inventory import HeldInput, LetteredSegments, StateLayout

if TYPE_CHECKING:
    from dovetail.families.nearest.join_stages import ResultStage

_SEGMENTS = LetteredSegments("RS")
"""Segments of the asking and of the answering side."""
side_of, beside, expiry = _SEGMENTS.side_of, _SEGMENTS.beside, _SEGMENTS.expiry


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
