"""Conditions and data for the tests of whole joins: SQL text beside its meaning in plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dovetail import reference

INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Type:
    """A type of column: its values, and bounds of bands over it as SQL and as a Python value."""

    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    bounds: tuple[tuple[str, Any], ...] = ()


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    whole = st.integers(-30, 30) | st.sampled_from([-top, top, 1 - top, top - 1])
    return whole.map(lambda value: Decimal(value).scaleb(-scale))


def _single(value: float) -> float:
    return float(np.float32(value))


_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 1.5, 2.0, math.nan, math.inf, -math.inf, 5e-324, 1e308, -1e308]
_NUMBERS = (("0", 0), ("1", 1), ("2.5", Decimal("2.5")), ("-1", -1), ("-2.5", Decimal("-2.5")), ("0.2", Decimal("0.2")))
_WIDE = [Decimal(2**90), Decimal(-(2**90)), Decimal(2**90 + 1), Decimal(10**30 - 1), Decimal(1 - 10**30)]

TYPES: dict[str, Type] = {
    "int": Type(
        pa.int32(), st.integers(-4, 4) | st.sampled_from([-(2**31), 2**31 - 1]), (*_NUMBERS, ("4294967295", 2**32 - 1))
    ),
    "bigint": Type(
        pa.int64(),
        st.integers(-4, 4) | st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max]),
        (*_NUMBERS, ("18446744073709551615", 2**64 - 1), ("9223372036854775807", 2**63 - 1)),
    ),
    "double": Type(pa.float64(), st.sampled_from(_FLOATS) | st.integers(-4, 4).map(float), _NUMBERS),
    "float": Type(pa.float32(), (st.sampled_from(_FLOATS[:12]) | st.integers(-4, 4).map(float)).map(_single), _NUMBERS),
    "decimal": Type(pa.decimal128(18, 2), _decimals(18, 2), _NUMBERS),
    "wide": Type(pa.decimal128(38, 4), _decimals(34, 4) | st.sampled_from(_WIDE)),
    "date": Type(
        pa.date32(),
        st.integers(-4, 4).map(lambda d: date(2026, 1, 1) + timedelta(days=d))
        | st.sampled_from([date(1, 1, 1), date(9999, 12, 31)]),
        (("INTERVAL 2 DAYS", timedelta(days=2)), ("INTERVAL 36 HOURS", timedelta(hours=36))),
    ),
    "timestamp": Type(
        pa.timestamp("us", "UTC"),
        st.integers(-4, 4).map(lambda s: _EPOCH + timedelta(seconds=s)) | st.just(datetime(1, 1, 1, tzinfo=UTC)),
        (("INTERVAL 2 SECONDS", timedelta(seconds=2)), ("INTERVAL -1 SECOND", timedelta(seconds=-1))),
    ),
    "string": Type(
        pa.string(), st.sampled_from(["", "a", "ab", "b", "é", "z", "\U0001f600", "a long prefix 1", "a long prefix 2"])
    ),
    "boolean": Type(pa.bool_(), st.booleans()),
}


@dataclass(frozen=True)
class Conjunct:
    """One conjunct: how Spark reads it, and what it says of two rows."""

    sql: str
    left: str
    right: str
    kind: str
    """An operator, or ``band``."""
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    single: bool = False
    turned: bool = False
    """Whether the difference of a band is S - R."""

    def holds(self, r: reference.Row, s: reference.Row) -> bool | None:
        a, b = r[self.left], s[self.right]
        if self.kind == "=":
            return reference.equal(a, b)
        if self.kind != "band":
            strict, up = self.kind in "<>", self.kind[0] == "<"
            small, large = (a, b) if up else (b, a)
            return reference.less(small, large) if strict else reference.at_most(small, large)
        if self.turned:
            a, b = b, a
        gap = reference.difference(a, b)
        if self.single and gap is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                gap = float(np.float32(a) - np.float32(b))
        ends = []
        if self.low is not None:
            value, strict = _as(gap, self.low[0]), self.low[1]
            ends.append(reference.less(value, gap) if strict else reference.at_most(value, gap))
        if self.high is not None:
            value, strict = _as(gap, self.high[0]), self.high[1]
            ends.append(reference.less(gap, value) if strict else reference.at_most(gap, value))
        return reference.both(*ends)


def _as(gap: Any, bound: Any) -> Any:
    return float(bound) if isinstance(gap, float) else bound


@st.composite
def inequalities(draw: st.DrawFn, left: str, right: str) -> Conjunct:
    op = draw(st.sampled_from(["<", "<=", ">", ">="]))
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
    sql = draw(st.sampled_from([f"R.{left} {op} S.{right}", f"S.{right} {mirrored} R.{left}"]))
    return Conjunct(sql, left, right, op)


@st.composite
def bands(draw: st.DrawFn, left: str, right: str, kind: str) -> Conjunct:
    bounds = TYPES[kind].bounds
    (sql, value), strict = draw(st.sampled_from(bounds)), draw(st.booleans())
    turned = draw(st.booleans())
    gap = f"S.{right} - R.{left}" if turned else f"R.{left} - S.{right}"
    shape = draw(st.sampled_from(["abs", "between", "at most", "at least", "both"]))
    single = kind == "float"
    less, more = ("<", ">") if strict else ("<=", ">=")
    if shape == "abs":
        low, high, text = (-value, strict), (value, strict), f"ABS({gap}) {less} {sql}"
    elif shape == "at most":
        low, high, text = None, (value, strict), f"{gap} {less} {sql}"
    elif shape == "at least":
        low, high, text = (value, strict), None, f"{sql} {less} {gap}"
    else:
        (low_sql, low_value) = draw(st.sampled_from(bounds))
        if shape == "between":
            low, high, text = (low_value, False), (value, False), f"{gap} BETWEEN {low_sql} AND {sql}"
        else:
            low, high, text = (low_value, strict), (value, strict), f"{gap} {more} {low_sql} AND {gap} {less} {sql}"
    return Conjunct(text, left, right, "band", low, high, single, turned)


def equality(left: str, right: str, turned: bool = False) -> Conjunct:
    return Conjunct(f"S.{right} = R.{left}" if turned else f"R.{left} = S.{right}", left, right, "=")


@dataclass(frozen=True)
class Case:
    """A join to run: its condition and both tables."""

    conjuncts: tuple[Conjunct, ...]
    left: pa.Table
    right: pa.Table

    @property
    def on(self) -> str:
        return " AND ".join(c.sql for c in self.conjuncts)

    def condition(self, r: reference.Row, s: reference.Row) -> bool | None:
        return reference.both(*(c.holds(r, s) for c in self.conjuncts))

    def expected(self, how: str) -> list[tuple[int | None, int | None]]:
        rows = [
            [{**row, "row_number": at} for at, row in enumerate(table.to_pylist())] for table in (self.left, self.right)
        ]
        joined = reference.theta_join({"R": rows[0], "S": rows[1]}, self.condition, how)
        return [tuple((row.get(a) or {}).get("row_number") for a in "RS") for row in joined]  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Case({self.on!r}, {self.left.to_pydict()}, {self.right.to_pydict()})"


@st.composite
def tables(draw: st.DrawFn, kinds: dict[str, str], rows: int) -> pa.Table:
    """A table with columns of these kinds; maybe empty, maybe with one value in most rows."""
    size = draw(st.sampled_from([0, 1, rows // 2, rows]) | st.integers(0, rows))
    columns = {}
    for name, kind in kinds.items():
        values = st.none() | TYPES[kind].values if draw(st.booleans()) else TYPES[kind].values
        cells = draw(st.lists(values, min_size=size, max_size=size))
        if size and draw(st.integers(0, 3)) == 0:
            cells[: 2 * size // 3] = [cells[0]] * (2 * size // 3)
        columns[name] = pa.array(cells, TYPES[kind].arrow)
    return pa.table(columns)


@st.composite
def others(draw: st.DrawFn, table: pa.Table, rows: int = 14) -> pa.Table:
    """Another table with the columns of this one: some of its rows, values of its own, or nothing at all."""
    kinds = {kind.arrow: name for name, kind in TYPES.items()}
    if draw(st.booleans()):
        kept = draw(st.lists(st.booleans(), min_size=table.num_rows, max_size=table.num_rows))
        return table.filter(pa.array(kept, pa.bool_()))
    return draw(tables({field.name: kinds[field.type] for field in table.schema}, rows))


@st.composite
def cases(draw: st.DrawFn, *, rows: int = 14, comparison: bool = False) -> Case:
    """Any condition of up to three comparisons and two equalities, over data that suits it."""
    shape = draw(
        st.sampled_from(["ineq", "band", "same", "overlap", "bands", "three", "between", "mixed", "one key", "none"])
    )
    if comparison and shape == "none":
        shape = "ineq"
    kind, other = draw(st.sampled_from(sorted(TYPES))), draw(st.sampled_from(sorted(TYPES)))
    if shape in ("band", "bands", "mixed", "one key"):
        subtractable = [k for k in sorted(TYPES) if TYPES[k].bounds]
        kind, other = draw(st.sampled_from(subtractable)), draw(st.sampled_from(subtractable))
    left, right = {"a": kind, "b": kind, "c": other}, {"x": kind, "y": kind, "z": other}
    if shape == "ineq":
        found = [draw(inequalities("a", "x"))]
    elif shape == "band":
        found = [draw(bands("a", "x", kind))]
    elif shape == "same":
        found = [draw(inequalities("a", "x")), draw(inequalities("c", "z"))]
    elif shape == "overlap":
        ops = draw(st.sampled_from([("<=", ">="), ("<", ">"), ("<=", ">"), (">=", "<=")]))
        found = [Conjunct(f"R.a {ops[0]} S.y", "a", "y", ops[0]), Conjunct(f"R.b {ops[1]} S.x", "b", "x", ops[1])]
    elif shape == "bands":
        found = [draw(bands("a", "x", kind)), draw(bands("c", "z", other))]
    elif shape == "three":
        found = [draw(inequalities(*columns)) for columns in (("a", "x"), ("b", "y"), ("c", "z"))]
    elif shape == "between":
        # One range for the points of one input, two half-lines for those of the other.
        found = [Conjunct("R.a BETWEEN S.x AND S.y", "a", "x", ">="), Conjunct("TRUE", "a", "y", "<=")]
        if draw(st.booleans()):
            found = [Conjunct("S.x BETWEEN R.a AND R.b", "a", "x", "<="), Conjunct("TRUE", "b", "x", ">=")]
    elif shape == "mixed":
        found = [draw(bands("a", "x", kind)), draw(inequalities("c", "z"))]
    elif shape == "one key":
        # A band and an inequality over the very same columns share an axis.
        found = [draw(bands("a", "x", kind)), draw(inequalities("a", "x"))]
    else:
        found = []
    keys = draw(st.integers(0, 2)) if found else draw(st.integers(1, 2))
    for at in range(keys):
        named = draw(st.sampled_from(sorted(TYPES)))
        left[f"k{at}"] = right[f"k{at}"] = named
        found.append(equality(f"k{at}", f"k{at}", draw(st.booleans())))
    found = [c if c.sql != "TRUE" else Conjunct("", c.left, c.right, c.kind) for c in draw(st.permutations(found))]
    return _Written(tuple(found), draw(tables(left, rows)), draw(tables(right, rows)))


class _Written(Case):
    """A case in which one conjunct may have been written together with another (BETWEEN)."""

    @property
    def on(self) -> str:
        return " AND ".join(c.sql for c in self.conjuncts if c.sql)
