"""What a nearest join looks for, in the form that its kernel knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from dovetail.conditions.comparison import Kind
from dovetail.conditions.distances import Metric

Ties = Literal["all", "first"]
TIES: tuple[Ties, ...] = ("all", "first")

ASKING, ANSWERING = 0, 1
"""The two sides: the input whose rows ask, and the one whose rows are near."""

EARTH = 6_371_008.8
"""The mean radius of the Earth in metres."""


@dataclass(frozen=True)
class NearestSpec:
    """For each asking row its `k` nearest answering rows of the same equality keys."""

    metric: Metric
    kind: Kind
    """On a line: whether coordinates are ``int`` codes, whose distances are exact, or ``float64``."""
    factors: tuple[float, ...]
    """One for each coordinate; its difference is multiplied with it."""
    keys: tuple[Kind, ...]
    """The kinds of the equality keys, whose columns come before the coordinates."""
    k: int
    within: int | float | None
    """The largest distance, itself allowed: in codes, or as a double; None for any."""
    ties: Ties
    keep: bool
    """Whether asking rows without any neighbour come out."""
    payload: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    """Arrow types of the columns of each side."""
    order: tuple[int, ...]
    """Where an answering segment has the columns that decide between equally near rows."""
    texts: int
    """How many texts an answering segment has behind its payload, for columns without an order of their own."""
    distance: pa.DataType
    """The type of the distances that come out."""
    unit: int = 1
    """What a distance in codes is multiplied with to come out."""
    window: tuple[int, int] | None = None
    """How much later than an asking row an answering one may be, least and most; a time follows the coordinates."""

    @property
    def whole(self) -> bool:
        """Whether distances are whole numbers of codes."""
        return self.metric == "line" and self.kind == "int"

    @property
    def coordinates(self) -> int:
        """How many coordinates a row has."""
        return len(self.factors)

    @property
    def width(self) -> int:
        """How many columns the keys, the coordinates and, beside a window, the time of a side take."""
        return len(self.keys) + self.coordinates + (self.window is not None)

    @property
    def dimensions(self) -> int:
        """How many dimensions the space has in which cells lie: places on the Earth lie in space."""
        return 3 if self.metric == "haversine" else self.coordinates

    @property
    def held(self) -> int:
        """How many columns an answering row keeps: its payload, and the texts behind it."""
        return len(self.payload[ANSWERING]) + self.texts
