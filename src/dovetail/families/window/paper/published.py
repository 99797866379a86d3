"""What a published algorithm, ``pipeline``, ``nested``, ``hash`` or ``merge``, finds in a cell of a window join."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.families.window.encode import SAME_SLICE, ConditionKey, Index
from dovetail.families.window.indexes import IndexedInput, PartialMatches
from dovetail.families.window.paper.algorithms import find
from dovetail.families.window.paper.inputs import Condition, Side
from dovetail.families.window.residual import residual_mask
from dovetail.families.window.spec import WindowJoinSpec


def published_matches(
    spec: WindowJoinSpec, inputs: list[IndexedInput], order: npt.NDArray[np.int32], held: Index
) -> tuple[PartialMatches, int]:
    """Matches that need a new row, and how many comparisons they took.

    Parameters
    ----------
    spec
        The join.
    inputs
        The rows of every input, those held from earlier calls first.
    order
        The input of each new row, in the order of arrival.
    held
        How many rows of each input come from earlier calls.
    """
    windows = spec.graph.alternatives
    rows, counted = find(
        spec.options.algorithm, spec.options.approach,
        [Side(rows.times, rows.group) for rows in inputs], _conditions(spec, inputs),
        windows if len(windows) > 1 else windows[0], order, held,
    )  # fmt: skip
    matches = dict(enumerate(rows))
    kept = residual_mask(spec, inputs, matches)
    if kept is not None:
        matches = {side: rows[kept] for side, rows in matches.items()}
    return matches, counted["comparisons"]


def _conditions(spec: WindowJoinSpec, inputs: list[IndexedInput]) -> list[Condition]:
    """Everything beyond the group and the windows, as the paper's algorithms take it."""
    conditions: list[Condition] = []

    def add(point: int, box: int, condition: ConditionKey) -> None:
        low, high = inputs[box].ranges(condition)
        conditions.append(Condition(point, box, inputs[point].ranges(condition)[0], low, high))

    if len(spec.classes) > 1:
        for number in range(len(spec.classes)):
            for side in spec.sides[1:]:
                add(0, side, ConditionKey("class", number))
    if spec.grid is not None:
        for side in spec.sides[1:]:
            add(0, side, SAME_SLICE)
    for number, equality in enumerate(spec.equalities):
        add(*equality.sides, ConditionKey("equality", number))
    for number, comparison in enumerate(spec.comparisons):
        if comparison.axis.kind != "rank":
            add(comparison.point_side, comparison.box_side, ConditionKey("comparison", number))
    return conditions
