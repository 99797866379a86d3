"""What a join says about its own state, so that others can read it: whose rows lie there, and when they may go.

The header of every cell carries it as JSON (:mod:`dovetail.checkpoints`).  A family's ``inventory.py`` writes it and
tells what the names of its segments mean; nothing here knows a join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dovetail.columns.layout import SINCE

FAMILIES = ("aggregate", "approx", "asof", "bestmatch", "nearest", "shedding", "theta", "window")
"""Families with state; each has a module of the name ``inventory``."""


@dataclass(frozen=True)
class HeldInput:
    """The rows of one input as they lie in the state."""

    name: str
    columns: tuple[str, ...]
    """The names of the first columns of a stored row; what a join computed for itself lies behind them."""
    time: int | None = None
    """The position of the event time; -1 for the last column, None where there is none."""
    reach: int | None = None
    """How long after its own time a row may still be needed, in the units of the time; None where nothing bounds it."""
    types: tuple[str, ...] = ()
    """The types of the columns as Spark spells them; empty in what earlier versions have stored."""


@dataclass(frozen=True)
class StateLayout:
    """The state of a join.

    Examples
    --------
    >>> layout = StateLayout("asof", (HeldInput("A", ("id", "ts"), 1), HeldInput("B", ("id", "ts"), 1, 5_000_000)))
    >>> StateLayout.read(layout.stored()) == layout
    True
    >>> StateLayout.read({"family": "another"}) is None
    True
    """

    family: str
    inputs: tuple[HeldInput, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What only this family knows how to read, as JSON has it."""

    def stored(self) -> dict[str, Any]:
        """The layout as JSON has it."""
        inputs = [
            {"name": one.name, "columns": list(one.columns), "time": one.time, "reach": one.reach}
            | ({"types": list(one.types)} if one.types else {})
            for one in self.inputs
        ]
        return {"family": self.family, "inputs": inputs, "facts": dict(self.facts)}

    @classmethod
    def read(cls, stored: object) -> StateLayout | None:
        """A stored layout; None for one that this version does not know, and where there is none."""
        if not isinstance(stored, dict) or str(stored.get("family")) not in FAMILIES:
            return None
        try:
            inputs = tuple(
                HeldInput(
                    _text(one["name"]), tuple(map(_text, one["columns"])), _number(one["time"]), _number(one["reach"]),
                    tuple(map(_text, one.get("types", ()))),
                )
                for one in stored["inputs"]
            )  # fmt: skip
            return cls(stored["family"], inputs, dict(stored["facts"]))
        except (KeyError, TypeError, ValueError):
            return None

    def typed(self, types: Mapping[str, Mapping[str, str]]) -> StateLayout:
        """The layout with the types of each input's columns, by their names; "" for what is no column.

        Examples
        --------
        >>> StateLayout("asof", (HeldInput("A", ("id",)),)).typed({"A": {"id": "bigint"}}).inputs[0].types
        ('bigint',)
        """
        inputs = (
            replace(one, types=tuple(types[one.name].get(column, "") for column in one.columns)) for one in self.inputs
        )
        return replace(self, inputs=tuple(inputs))

    def number(self, name: str) -> int | None:
        """The number of an input by its name; None where there is none."""
        names = [one.name for one in self.inputs]
        return names.index(name) if name in names else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> Any:
    if value is not None and not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value


def by_reach(layout: StateLayout, watermark: int | None) -> list[int | None]:
    """For each input the time before which no row is needed at a watermark; None where nothing says so.

    Examples
    --------
    >>> by_reach(StateLayout("asof", (HeldInput("A", (), 0, 0), HeldInput("B", (), 0, 5), HeldInput("C", ()))), 100)
    [100, 95, None]
    """
    return [
        None if watermark is None or one.reach is None or one.time is None else watermark - one.reach
        for one in layout.inputs
    ]


class LetteredSegments:
    """What the names of a family's segments mean where each is a letter of its input and a number, and no other exists.

    Examples
    --------
    >>> LetteredSegments("LR").side_of("R/12")
    1
    """

    def __init__(self, letters: str) -> None:
        self._letters = letters

    def side_of(self, name: str) -> int | None:
        """The input whose rows a segment has."""
        return self._letters.index(name[0]) if name[:1] and name[0] in self._letters else None

    def beside(self, name: str) -> str:
        """What a segment is that has no rows of an input."""
        return "since when rows are answered" if name == SINCE else "unknown"

    def expiry(
        self, layout: StateLayout, state: Mapping[str, pa.RecordBatch], watermark: int | None
    ) -> list[int | None]:
        """For each input the time before which its rows can go; one that is answered may go before."""
        return by_reach(layout, watermark)
