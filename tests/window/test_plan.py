"""What the plan of a window join decides: the time columns, where keys travel, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dovetail.errors import ArgumentError, UnknownNameError, UnsupportedTypeError
from dovetail.plan.window import InputColumns, read_times

from .harness import make_plan
from .shapes import table


def columns(**types: str) -> InputColumns:
    return InputColumns(tuple(types), tuple(types.values()), (pa.null(),) * len(types))


@pytest.mark.parametrize(
    ("time", "a", "b", "meaning"),
    [
        ("ts", "timestamp", "date", ({"A": "ts", "B": "ts"}, False)),
        ("TS", "timestamp_ntz", "timestamp_ntz", ({"A": "ts", "B": "ts"}, False)),
        ({"A": "ts", "B": "Ts"}, "tinyint", "bigint", ({"A": "ts", "B": "ts"}, True)),
    ],
)
def test_time_columns(time, a, b, meaning):
    assert read_times(time, {"A": columns(ts=a), "B": columns(ts=b)}) == meaning


@pytest.mark.parametrize(
    ("time", "kind", "error", "text"),
    [
        ("ts", "decimal(10,2)", UnsupportedTypeError, "scale it to whole numbers first"),
        ("ts", "string", UnsupportedTypeError, "to_timestamp(ts)"),
        ("ts", "array<int>", UnsupportedTypeError, "time='ts' has the type array<int> in 'A'"),
        ("ts", "bigint", UnsupportedTypeError, "bigint in 'A' and timestamp in 'B'"),
        ("ts", "timestamp_ntz", UnsupportedTypeError, "timestamp_ntz in 'A' and timestamp in 'B'"),
        ("when", "timestamp", UnknownNameError, "'A' does not have"),
        ({"A": "ts"}, "timestamp", ArgumentError, "no column for the input 'B'"),
        ({"A": "ts", "B": "ts", "C": "ts"}, "timestamp", UnknownNameError, "time="),
        (7, "timestamp", ArgumentError, "time=7 is not a column name"),
    ],
)
def test_refused_times(time, kind, error, text):
    with pytest.raises(error) as caught:
        read_times(time, {"A": columns(ts=kind), "B": columns(ts="timestamp")})
    assert text in str(caught.value)


def test_the_plan_holds_the_spec():
    """A key of the payload's own type stays there; one that Spark casts or computes travels behind it."""
    row = {"t": 1, "k": 1, "s": "", "v": 0.0, "w": 0}
    tables = {alias: table([row]) for alias in "AB"}
    spec = make_plan("A.k = B.k AND A.w <= B.k AND A.v <= B.v", tables, 5, streaming=True, partitions=3).spec
    assert spec.times == (0, 0)
    assert spec.payload == (6, 6)
    assert [key.sql for key in spec.keys[0]] == ["`A`.`k`", "`A`.`w`", "`A`.`v`"]
    assert spec.sources == ((1, None, 3), (1, 3))
    assert spec.cells == len(spec.numbers) == 6
