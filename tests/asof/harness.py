"""Data and specs for the tests of as-of joins, and the nested loop beside them.  No JVM."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from dovetail.columns.structs import Nested
from dovetail.columns.ties import tie_kind
from dovetail.conditions.comparison import KeyType, build_step
from dovetail.conditions.forms import Band, Bound, Inequality, Term
from dovetail.families.asof.spec import DIRECTIONS, HOWS, AsofSpec, Where, distance
from dovetail.reference.asof import asof_join
from dovetail.reference.values import at_most, both, equal, less

INT64 = np.iinfo(np.int64)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 1.5, 2.0, math.nan, math.inf, -math.inf, 5e-324, 1e308, -1e308]


@dataclass(frozen=True)
class Type:
    """A type of column: its values, its code, and tolerances for it."""

    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    key: KeyType
    within: tuple[Any, ...] = ()


def _single(value: float) -> float:
    return float(np.float32(value))


TIMES = {
    "int": Type(
        pa.int32(), st.integers(-5, 5) | st.sampled_from([-(2**31), 2**31 - 1]),
        KeyType("INT", "int"), (0, 1, 2.5, 2**32 - 1),
    ),
    "bigint": Type(
        pa.int64(),
        st.integers(-5, 5) | st.sampled_from([INT64.min, INT64.min + 1, INT64.max - 1, INT64.max]),
        KeyType("BIGINT", "int"), (0, 3, 2**63 - 1, 2**64 - 1, 2**70),
    ),
    "double": Type(
        pa.float64(), st.sampled_from(FLOATS) | st.integers(-4, 4).map(float),
        KeyType("DOUBLE", "float64"), (0, 0.1, 1, 2.5),
    ),
    "float": Type(
        pa.float32(), (st.sampled_from(FLOATS[:12]) | st.integers(-4, 4).map(float)).map(_single),
        KeyType("FLOAT", "float32"), (0, 0.25, 1),
    ),
    "decimal": Type(
        pa.decimal128(18, 2), st.integers(-30, 30).map(lambda value: Decimal(value).scaleb(-2)),
        KeyType("DECIMAL(18,2)", "int", unit=100), (0, Decimal("0.05"), 0.07),
    ),
    "date": Type(
        pa.date32(), st.integers(-4, 4).map(lambda d: date(2026, 1, 1) + timedelta(days=d)),
        KeyType("DATE", "int", micros=86_400_000_000), (timedelta(days=2), "36 hours"),
    ),
    "string": Type(
        pa.string(), st.sampled_from(["", "a", "aa", "b", "é", "same first 8, a", "same first 8, b"]),
        KeyType("STRING", "rank"),
    ),
    "wide": Type(
        pa.decimal128(38, 2),
        st.integers(-3, 3).map(Decimal) | st.sampled_from([Decimal(2**90), Decimal(-(2**90)), Decimal(10**36 - 1)]),
        KeyType("DECIMAL(38,2)", "rank", unit=100), (0, 1, Decimal("2.5"), 10**30, 10**40),
    ),
    "time": Type(
        pa.time64("ns"), st.integers(0, 9).map(lambda s: time(23, 59, 50 + s)),
        KeyType("TIME(6)", "int", micros=1), ("1 second", "3 seconds"),
    ),
    "timestamp": Type(
        pa.timestamp("us", "UTC"),
        st.integers(-5, 5).map(lambda s: EPOCH + timedelta(seconds=s)) | st.just(datetime(1, 1, 1, tzinfo=UTC)),
        KeyType("TIMESTAMP", "int", micros=1), (timedelta(seconds=2), "1 second"),
    ),
}  # fmt: skip

KEYS = {
    "long": Type(pa.int64(), st.integers(0, 2) | st.sampled_from([INT64.min, INT64.max]), KeyType("BIGINT", "int")),
    "double": Type(pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan]), KeyType("DOUBLE", "float64")),
    "string": Type(pa.string(), st.sampled_from(["", "a", "b", "é"]), KeyType("STRING", "rank")),
    "wide": Type(pa.decimal128(38, 0), st.sampled_from([Decimal(0), Decimal(2**90)]), KeyType("DECIMAL(38,0)", "rank")),
    "boolean": Type(pa.bool_(), st.booleans(), KeyType("BOOLEAN", "int")),
}


@dataclass(frozen=True)
class Condition:
    """A condition over both sides: what it means, and the comparison or the column that it is for the kernel."""

    meaning: Callable[[dict[str, Any], dict[str, Any]], bool | None]
    compared: tuple[Inequality | Band, KeyType] | None = None
    unequal: str = ""
    kind: str = ""


def _terms(name: str) -> tuple[Term, Term]:
    return Term("L", name), Term("R", name)


def _negated(found: bool | None) -> bool | None:
    return None if found is None else not found


def _apart(left: dict[str, Any], right: dict[str, Any]) -> bool | None:
    a, b = left["v"], right["v"]
    return None if a is None or b is None else at_most(a - b, 1.5)


_V, _W = KeyType("DOUBLE", "float64"), KeyType("STRING", "rank")
WHERE = {
    "v below": Condition(lambda a, b: less(a["v"], b["v"]), (Inequality(*_terms("v"), strict=True), _V)),
    "v from": Condition(
        lambda a, b: at_most(b["v"], a["v"]), (Inequality(*reversed(_terms("v")), strict=False), _V)
    ),
    "v apart": Condition(_apart, (Band(*_terms("v"), None, Bound(Decimal("1.5"), False)), _V)),
    "w below": Condition(lambda a, b: less(a["w"], b["w"]), (Inequality(*_terms("w"), strict=True), _W)),
    "v differs": Condition(lambda a, b: _negated(equal(a["v"], b["v"])), unequal="v", kind="float64"),
    "w differs": Condition(lambda a, b: _negated(equal(a["w"], b["w"])), unequal="w", kind="rank"),
}  # fmt: skip

SECONDS = {"36 hours": timedelta(hours=36), "1 second": timedelta(seconds=1), "3 seconds": timedelta(seconds=3)}
"""Tolerances in words, and what they mean."""


@dataclass(frozen=True)
class Case:
    """Two tables and an as-of join of them.  Columns: the keys, the time t, then v, w and the row number n."""

    left: pa.Table
    right: pa.Table
    keys: tuple[str, ...]
    time: str
    direction: str = "backward"
    how: str = "inner"
    within: Any = None
    exact: bool = True
    ties: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    judged: bool = False

    @property
    def by(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.keys))]

    def spec(self) -> AsofSpec:
        names = self.right.column_names
        order = [*self.ties, *[name for name in names if name not in self.ties]]
        types = (tuple(self.left.schema.types), tuple(self.right.schema.types))
        assert all(tie_kind(kind) for kind in types[1])
        places = tuple(range(len(self.keys)))
        return AsofSpec(
            payload=(self.left.num_columns, self.right.num_columns),
            types=types,
            keys=(places, places),
            times=(len(self.keys), len(self.keys)),
            kinds=tuple(KEYS[key].key.kind for key in self.keys),
            time=TIMES[self.time].key.kind,
            ties=tuple(names.index(name) for name in order),
            direction=self.direction,
            how=self.how,
            exact=self.exact,
            within=distance(self.within, TIMES[self.time].key),
            where=self._where() if self.where else None,
            judged=self.judged,
        )

    def _where(self) -> Where:
        conditions = [WHERE[name] for name in self.where]
        step = build_step([], [one.compared for one in conditions if one.compared], left=frozenset("L"), how="left")
        names = self.left.column_names, self.right.column_names
        positions = tuple(
            tuple(side.index(key.sql) for key in keys)
            for side, keys in zip(names, (step.point_keys, step.box_keys), strict=True)
        )
        unequal = tuple(
            (names[0].index(one.unequal), names[1].index(one.unequal), one.kind) for one in conditions if one.unequal
        )
        return Where(step, positions, unequal)

    def holds(self, left: dict[str, Any], right: dict[str, Any]) -> bool | None:
        """All further conditions."""
        return both(*(WHERE[name].meaning(left, right) for name in self.where))

    def shape(self) -> list[Nested]:
        """Joined rows as structs ``l`` and ``r``."""
        left, right = (
            tuple((name, f"{prefix}{at}") for at, name in enumerate(rows.column_names))
            for prefix, rows in (("c", self.left), ("d", self.right))
        )
        shapes = [Nested("l", left, "p0" if self.how in ("right", "full") else None)]
        if self.how not in ("semi", "anti"):
            shapes.append(Nested("r", right, "b" if self.how in ("left", "full") else None))
        return shapes

    def plain_within(self) -> Any:
        """The tolerance as the nested loop takes it."""
        if isinstance(self.within, float) and self.time == "decimal":
            return Decimal(str(self.within))
        return SECONDS.get(self.within, self.within) if isinstance(self.within, str) else self.within

    def meaning(self) -> list[dict[str, Any]]:
        """The nested loop's answer."""
        return asof_join(
            {"L": self.left.to_pylist(), "R": self.right.to_pylist()},
            time="t", by=self.by, direction=self.direction, within=self.plain_within(), how=self.how,
            allow_exact_matches=self.exact, ties=self.ties, where=self.holds,
        )  # fmt: skip

    def expected(self) -> Counter:
        """Pairs of row numbers, where right rows that are equal in all but their number count as one."""
        return Counter(pair_of(found["L"], found.get("R")) for found in self.meaning())

    def replace(self, **changes: Any) -> Case:
        return replace(self, **changes)


def plain(value: Any) -> Any:
    """A value that equals itself, and -0.0 as 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def pair_of(left: dict[str, Any] | None, right: dict[str, Any] | None) -> tuple[Any, ...]:
    """A pair as values that can be counted."""
    other = None if right is None else tuple(plain(value) for value in right.values())
    return None if left is None else left["n"], other


def table(kinds: Sequence[pa.DataType], columns: Sequence[list[Any]], names: Sequence[str]) -> pa.Table:
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=list(names))


wheres = st.lists(st.sampled_from(sorted(WHERE)), max_size=2, unique=True).map(tuple)


@st.composite
def tables(draw, keys: Sequence[str], time: str, *, rows: int = 14):
    """A left and a right table with many ties, NULLs and duplicates."""
    made = []
    for side in range(2):
        size = draw(st.integers(0, rows))
        kinds = [*[KEYS[key] for key in keys], TIMES[time]]
        columns = [draw(st.lists(st.none() | kind.values, min_size=size, max_size=size)) for kind in kinds]
        v = draw(st.lists(st.none() | st.sampled_from(FLOATS[:10]), min_size=size, max_size=size))
        w = draw(st.lists(st.none() | st.sampled_from(["", "a", "b"]), min_size=size, max_size=size))
        names = [*[f"k{at}" for at in range(len(keys))], "t", "v", "w"]
        types = [*[kind.arrow for kind in kinds], pa.float64(), pa.string()]
        columns += [v, w]
        if side == 0:
            columns, names, types = [*columns, list(range(size))], [*names, "n"], [*types, pa.int64()]
        made.append(table(types, columns, names))
    return tuple(made)


@st.composite
def cases(draw, *, times: Sequence[str] = tuple(TIMES), hows: Sequence[str] = HOWS, rows: int = 14):
    keys = tuple(draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=2)))
    time = draw(st.sampled_from(sorted(times)))
    left, right = draw(tables(keys, time, rows=rows))
    where = draw(wheres) if draw(st.booleans()) else ()
    far = not (time == "string" or (time == "wide" and where))  # whether distances are known
    return Case(
        left,
        right,
        keys,
        time,
        direction=draw(st.sampled_from(DIRECTIONS if far else DIRECTIONS[:2])),
        how=draw(st.sampled_from(hows)),
        within=draw(st.none() | st.sampled_from(TIMES[time].within)) if far else None,
        exact=draw(st.booleans()),
        ties=draw(st.sampled_from([(), ("w",), ("w", "v")])),
        where=where,
    )
