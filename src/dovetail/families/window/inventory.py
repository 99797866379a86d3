"""The state of a window join for those who read it without the join."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.families.window.eviction import completed_expiry_of, watermarks_of
from dovetail.inventory import HeldInput, StateLayout

if TYPE_CHECKING:
    from dovetail.families.window.spec import WindowJoinSpec

HEAD = "head"
"""The name under which the list of segments is stored."""

BESIDE = {
    HEAD: "list of the segments, and how far each input has come",
    "matched": "which rows have matched",
    "pending": "rows that come out next, without a match",
}
"""What is kept beside rows, by the beginning or the end of its name."""


def layout(
    spec: WindowJoinSpec,
    columns: Sequence[Sequence[str]],
    *,
    tasks: int,
    family: str = "window",
    sheds: str | None = None,
    judged: bool = False,
) -> StateLayout:
    """What the cells of a join store, with the names of the columns of each input, and the tasks it was planned for.

    `sheds` is what a join sheds, "work" or "rows", if it does; `judged` says that a second operator decides.
    """
    inputs = tuple(
        HeldInput(alias, tuple(names), spec.times[side])
        for side, (alias, names) in enumerate(zip(spec.aliases, columns, strict=True))
    )
    facts = {
        "hull": spec.hull.tolist(), "delays": list(spec.delays or [0] * len(inputs)), "idle": spec.idle,
        "core": list(spec.core), "extras": list(spec.extras), "cells": spec.cells, "tasks": tasks,
        "routing": _routing(spec), "flagged": list(spec.flagged), "preserved": list(spec.preserved),
        "optional": list(spec.roles.optional) if spec.roles is not None else [], "sheds": sheds, "judged": judged,
    }  # fmt: skip
    return StateLayout(family, inputs, facts)


def _routing(spec: WindowJoinSpec) -> dict[str, Any] | None:
    """How rows find their cells; None where there is one cell for all."""
    if not spec.classes and spec.grid is None:
        return None
    places: list[list[int]] = []
    for side in spec.sides:
        behind, own = spec.payload[side], []
        for source in spec.sources[side]:
            own.append(behind if source is None else source)
            behind += source is None
        places.append(own)
    classes = [
        {"kind": equal.kind, "columns": [places[side][equal.members[side]] for side in spec.sides]}
        for equal in spec.classes
    ]
    grid: dict[str, Any] | None = None
    if spec.grid is not None and spec.grid.keys is not None:
        own = [places[side][key] for side, key in enumerate(spec.grid.keys)]
        lows = [low for low, _ in spec.grid.reach]
        grid = {
            "columns": own, "kind": spec.grid.kind, "length": spec.grid.length, "lows": lows,
            "farthest": [max(abs(low), abs(high)) for low, high in spec.grid.reach], "pivot": spec.grid.pivot,
        }  # fmt: skip
    return {"classes": classes, "sliced": spec.grid is not None, "grid": grid}


def side_of(name: str) -> int | None:
    """The input whose rows a segment has; None for what is kept beside them.

    Examples
    --------
    >>> side_of("1/0a0b"), side_of("1/0a0b/matched"), side_of("head")
    (1, None, None)
    """
    parts = name.split("/")
    return int(parts[0]) if len(parts) == 2 and parts[0].isdigit() else None


def beside(name: str) -> str:
    """What a segment is that has no rows of an input."""
    parts = name.split("/")
    return BESIDE["matched" if "matched" in parts else "pending" if parts[0] == "pending" else HEAD]


def expiry(layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> list[int | None]:
    """For each input the time before which its rows can go; the join keeps watermarks of its own."""
    if HEAD not in state:
        return [None] * len(layout.inputs)
    facts = layout.facts
    tops = json.loads(state[HEAD].schema.metadata[b"about"])["tops"]
    watermarks = watermarks_of(tops, facts["delays"], facts["idle"])
    hull = np.array(facts["hull"], dtype=np.int64)
    return list(completed_expiry_of(hull, facts["core"], facts["extras"], watermarks))
