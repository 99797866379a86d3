"""The wire format by name: columns that cross a module, a process or a shuffle.

Batches between two stages have the payload of one side (``c0``, ``c1`` ...) and then what that stage needs.  Names are
short because Spark writes them once for every column and batch; this module is where they are spelled.
"""

from __future__ import annotations

from dataclasses import dataclass

POINT_PAYLOAD = "c"
BOX_PAYLOAD = "d"
"""Prefixes of the payload of the two sides of a pair."""
KEY = "k"
"""Prefix of the key columns behind the payload."""
KEY_HASH = "h"
"""The hash of the equality keys."""
ROUTING = "g"
"""The routing, or the packed small side of a broadcast join: only the first row of a task carries it."""
STARTS_HERE = "s"
"""Whether the interval of a row starts in this cell, which then owns its pairs."""
HAS_MATCH = "b"
"""Whether the row has a match; where it has none, the other side is NULL."""
CELL, ROW = "n", "r"
"""The cell, and the number of the row within it, while Spark still decides which pairs count."""
COUNTERS = "m"
"""The counters of a cell, on a row of their own that holds nothing else."""
SEGMENT, CELL_NUMBER, SIDE = "segment", "number", "side"
"""A packed segment, the number of its cell (which Spark hashes to a task), and the side that its rows belong to."""

STREAM_CELL, ARRIVAL = "cell", "place"
"""In streams: the cell, under which Spark stores its state, and the position of a segment in the order of arrival."""
STREAM_COLUMNS = (STREAM_CELL, SIDE, ARRIVAL, SEGMENT)
"""The columns of packed rows on their way to the cells of :mod:`dovetail.spark.stream`."""


def columns_of(prefix: str, count: int) -> list[str]:
    """The names of so many columns with one prefix.

    Examples
    --------
    >>> columns_of(KEY, 3)
    ['k0', 'k1', 'k2']
    """
    return [f"{prefix}{at}" for at in range(count)]


@dataclass(frozen=True)
class Source:
    """A key that need not travel: a payload column, or one of type double moved by a number."""

    column: int
    shift: float = 0.0
