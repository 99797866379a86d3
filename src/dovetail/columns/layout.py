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
PARTITION = "p"
"""The number of the partition that a row comes from."""
ARRIVAL = "a"
"""Where a row is in the order of arrival."""
CHANGE, INSTANT = "_change", "_time"
"""Columns of a best-match join of streams: whether a pair was inserted or retracted, and when an answer holds."""
HAS_ROW = "p"
"""Prefix of the columns that say whether a row of a side is present; where it is not, that side is NULL."""
VALUE = "e"
"""Prefix of the values that Spark computes for candidate pairs."""
GROUP, LEFT_ROW, RIGHT_ROW, OWNED = "g", "i", "j", "o"
"""Of a candidate pair: the group it competes in, its two rows, and whether it leaves from this cell."""
WEIGHT, SAMPLE_CELL, MOMENT, STRATUM, JOIN_VALUE = "weight", "cell", "at", "stratum", "value"
"""How a result was sampled: what it stands for, where and when, its stratum, and the hash of its join value."""


def columns_of(prefix: str, count: int) -> list[str]:
    """The names of so many columns with one prefix.

    Examples
    --------
    >>> columns_of(KEY, 3)
    ['k0', 'k1', 'k2']
    """
    return [f"{prefix}{at}" for at in range(count)]


def input_prefix(side: int) -> str:
    """The prefix of the payload columns of an input among the results of a kernel.

    Examples
    --------
    >>> columns_of(input_prefix(1), 2)
    ['i1_0', 'i1_1']
    """
    return f"i{side}_"


@dataclass(frozen=True)
class Source:
    """A key that need not travel: a payload column, or one of type double moved by a number."""

    column: int
    shift: float = 0.0
