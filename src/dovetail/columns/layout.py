"""The wire format by name: columns that cross a module, a process or a shuffle.

Batches between two stages have the payload of one side (``c0``, ``c1`` ...) and then what that stage needs.  Names are
short because Spark writes them once for every column and batch; this module is where they are spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.conditions.comparison import Key

POINT_PAYLOAD = "c"
BOX_PAYLOAD = "d"
"""Prefixes of the payload of the two sides of a pair."""
PAYLOADS = (POINT_PAYLOAD, BOX_PAYLOAD)
KEY = "k"
"""Prefix of the key columns behind the payload."""
KEY_HASH = "h"
"""The hash of the equality keys."""
EVENT_TIME = "t"
"""The event time of a row, behind its keys."""
ROUTING = "g"
"""The routing, or the packed small side of a broadcast join: only the first row of a task carries it."""
STARTS_HERE = "s"
"""Whether the interval of a row starts in this cell, which then owns its pairs."""
HAS_MATCH = "b"
"""Whether the row has a match; where it has none, the other side is NULL."""
CELL, ROW = "n", "r"
"""The cell, and the number of the row within it, while Spark still decides which pairs count."""
RECORD, BLOCK, MATCH = "kind", "block", "match"
"""In a window join that Spark judges: what a row of candidates is, the block it belongs to, and its match there."""
VERDICT = "keep"
"""What Spark decided about such a pair."""
COUNTERS = "dovetail_counters"
"""The counters of a cell, on a row of their own that holds nothing else: beside names that users have chosen."""
SEGMENT, CELL_NUMBER, SIDE = "segment", "number", "side"
"""A packed segment, the number of its cell (which Spark hashes to a task), and the side that its rows belong to."""
TURN, COPIES = "turn", "copies"
"""Whether a cell holds the rows of a segment (0) or lets them pass by those it holds (1), which decides the order of
arrival; and how many of the rows are copies that a cut made necessary, in the families that count them."""
DRAW, DEEP = "draw", "deep"
"""The random number of a sampled row, and whether the row lies deep in its task."""
SAMPLED_KEYS = ("p", "b")
"""Prefixes of the sampled keys of the points and of the boxes, which one frame holds side by side."""
FITTED = "routing"
"""The routing that was fitted to a sample, as bytes."""
HAS_ROW = "p"
"""Prefix: whether an input has a row in a combination of several inputs; where it has none, it is NULL."""

STREAM_CELL, ARRIVAL = "cell", "place"
"""In streams: the cell, under which Spark stores its state, and the position of a segment in the order of arrival."""
STREAM_COLUMNS = (STREAM_CELL, SIDE, ARRIVAL, SEGMENT)
"""The columns of packed rows on their way to the cells of :mod:`dovetail.spark.stream`."""
PARTITION = "p"
"""The number of the partition that a row comes from."""
ROW_ARRIVAL = "a"
"""The position of a row in the order of arrival."""
CHANGE, INSTANT = "_change", "_time"
"""Columns of a best-match join of streams: whether a pair was inserted or retracted, and when an answer holds."""
VALUE = "e"
"""Prefix of the values that Spark computes for candidate pairs."""
GROUP, LEFT_ROW, RIGHT_ROW, OWNED = "g", "i", "j", "o"
"""Of a candidate pair: the group it competes in, its two rows, and whether it leaves from this cell."""
WEIGHT, SAMPLE_CELL, MOMENT, STRATUM, MIXED, JOIN_VALUE = "weight", "cell", "at", "stratum", "mixed", "value"
"""How a result was sampled: what it stands for, where and when, its stratum, whether rows of that differ in what they
match, and the hash of its join value."""

SINCE = "since"
"""The segment without rows that says from which time on rows are answered, in a cell that took over the rows of another
definition of the join: what rows before it would have to know has gone."""
SLICE = "slice"
"""The number of a row's slice, behind all other columns, where a window join has a grid."""
MAX_TIME_HEADER = b"top"
"""Metadata of a segment without rows: the largest time of an input that a packing task has seen."""
PACKED_AT_HEADER = b"began"
"""Metadata of the same segment: when the task that packed it began, in microseconds of the wall clock."""


def columns_of(prefix: str, count: int) -> list[str]:
    """The names of so many columns with one prefix.

    Examples
    --------
    >>> columns_of(KEY, 3)
    ['k0', 'k1', 'k2']
    """
    return [f"{prefix}{at}" for at in range(count)]


def input_payload(side: int) -> str:
    """The prefix of the payload of one input in a combination of several.

    Examples
    --------
    >>> columns_of(input_payload(1), 2)
    ['i1_0', 'i1_1']
    """
    return f"i{side}_"


@dataclass(frozen=True)
class Source:
    """A key that need not travel: a payload column, one of type double moved by a number, or a small integer."""

    column: int
    shift: float = 0.0
    widened: bool = False
    """Whether the column has integers of less than 64 bits, in which keys are compared."""


_SMALL_INTEGERS = ("TINYINT", "SMALLINT", "INT")
_MOVED = re.compile(r"(?P<column>`.+`)(?: ?(?P<sign>[+-]) ?(?P<number>\d+(?:\.\d*)?|\.\d+))?")


def key_source(payload: Sequence[tuple[str, str]], key: Key) -> Source | None:
    """Where in the payload a key is, if it is there: a bare column, or a double moved by a number.

    Adding a number to a double gives the same bits in NumPy as in Spark, and saves the way through Arrow; so does
    widening an integer.  `payload` has the columns as SQL names them, with their types as Spark spells them.

    Examples
    --------
    >>> payload = [("`A`.`k`", "int"), ("`A`.`v`", "double")]
    >>> key_source(payload, Key("`A`.`v` - 2", "DOUBLE", "A"))
    Source(column=1, shift=-2.0, widened=False)
    >>> key_source(payload, Key("`A`.`k`", "BIGINT", "A"))
    Source(column=0, shift=0.0, widened=True)
    >>> key_source(payload, Key("`A`.`k`", "DOUBLE", "A")) is None
    True
    """
    found = _MOVED.fullmatch(key.sql)
    if found is None:
        return None
    for number, (name, kind) in enumerate(payload):
        if found["column"] == name:
            if found["number"] is None:
                if key.ddl == "BIGINT" and kind.upper() in _SMALL_INTEGERS:
                    return Source(number, widened=True)
                return Source(number) if kind.upper() == key.ddl else None
            if key.ddl == kind.upper() == "DOUBLE":
                shift = float(found["number"])
                return Source(number, -shift if found["sign"] == "-" else shift)
    return None
