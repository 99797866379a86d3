"""Aggregates, conditions and rows that tests of the kernel draw, with what the nested loop says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dovetail.conditions.comparison import Axis, Edge, Key, Step
from dovetail.families.aggregate.spec import AggregateSpec, Measure, Output
from dovetail.reference.values import at_most, both, equal, less

KEY = Key("x", "BIGINT")

# Argument columns of the answering side: a double, a bigint, a decimal(38, 2), a text, a small int.
ARGUMENTS = (pa.float64(), pa.int64(), pa.decimal128(38, 2), pa.string(), pa.int32())
KINDS = ("float64", "int", "rank", "rank", "int")
NAMES = ("f", "i", "d", "s", "n")

MEASURES = (
    Measure("rows"),
    Measure("count", (0,)),
    Measure("float", (0,)),
    Measure("whole", (1,), limbs=2),
    Measure("whole", (2,), limbs=4),
    Measure("moments", (0,)),
    Measure("best", (3,)),
    Measure("best", (0,), largest=True),
    Measure("best", (3, 4)),
    Measure("best", (1, 0), largest=True),
    Measure("whole", (4,), limbs=1),
    Measure("best", (2,)),
)
OUTPUTS = (
    Output("n", "count", (0,), pa.int64()),
    Output("known", "count", (1,), pa.int64()),
    Output("total", "sum", (2,), pa.float64()),
    Output("mean", "avg", (2,), pa.float64()),
    Output("whole", "sum", (3,), pa.int64()),
    Output("whole_mean", "avg", (3,), pa.float64()),
    Output("exact", "sum", (4,), pa.decimal128(38, 2)),
    Output("exact_mean", "avg", (4,), pa.decimal128(38, 6)),
    Output("spread", "stddev_samp", (5,), pa.float64()),
    Output("variance", "var_pop", (5,), pa.float64()),
    Output("least_text", "min", (6,), pa.string()),
    Output("most", "max", (7,), pa.float64()),
    Output("by", "min_by", (8,), pa.string()),
    Output("by_most", "max_by", (9,), pa.int64()),
    Output("small", "sum", (10,), pa.int64()),
    Output("least", "min", (11,), pa.decimal128(38, 2)),
)


def _of(name: str) -> Callable[[Any], Any]:
    return lambda row: row[name]


EXPECTED = {
    "n": ("count", ()),
    "known": ("count", (_of("f"),)),
    "total": ("sum", (_of("f"),)),
    "mean": ("avg", (_of("f"),)),
    "whole": ("sum", (_of("i"),)),
    "whole_mean": ("avg", (_of("i"),)),
    "exact": ("sum", (_of("d"),)),
    "exact_mean": ("avg", (_of("d"),)),
    "spread": ("stddev_samp", (_of("f"),)),
    "variance": ("var_pop", (_of("f"),)),
    "least_text": ("min", (_of("s"),)),
    "most": ("max", (_of("f"),)),
    "by": ("min_by", (_of("s"), _of("n"))),
    "by_most": ("max_by", (_of("i"), _of("f"))),
    "small": ("sum", (_of("n"),)),
    "least": ("min", (_of("d"),)),
}

coordinates = st.none() | st.integers(-4, 4) | st.sampled_from([-(2**63), 2**63 - 1])
doubles = st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, -1e300, 1e16, 1.0, math.inf, -math.inf, math.nan])
answering = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.integers(0, 2),
            "x": coordinates,
            "y": coordinates,
            "f": doubles,
            "i": st.none() | st.integers(-5, 5) | st.sampled_from([2**62, -(2**62)]),
            "d": st.none() | st.integers(-(10**30), 10**30).map(lambda value: Decimal(value).scaleb(-2)),
            "s": st.none() | st.sampled_from(["", "a", "b", "ab", "é"]),
            "n": st.none() | st.integers(-2, 2),
        }
    ),
    max_size=14,
)
asking = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.integers(0, 2),
            "x0": coordinates, "x1": coordinates, "y0": coordinates, "y1": coordinates,
        }
    ),
    max_size=8,
)  # fmt: skip


def spec_of(*, keyed: bool, axes: str, keep: bool = True, ansi: bool = False) -> AggregateSpec:
    """A spec over the keys k, x, y; `axes` names those with a range, an upper-case letter one that is open below."""
    point_keys = [Key("k", "INT")] if keyed else []
    box_keys = [Key("k", "INT")] if keyed else []
    made = []
    for name in axes:
        ends = []
        for end in ("0", "1"):
            box_keys.append(Key(name.lower() + end, "BIGINT"))
            ends.append(Edge(len(box_keys) - 1, strict=False))
        point_keys.append(Key(name.lower(), "BIGINT"))
        made.append(Axis("int", len(point_keys) - 1, None if name.isupper() else ends[0], ends[1]))
    if not point_keys:
        point_keys, box_keys, made = [Key("0", "BIGINT")], [Key("0", "BIGINT")], [Axis("int", 0)]
    step = Step(tuple(made), ("int",) if keyed else (), tuple(point_keys), tuple(box_keys))
    payload = (pa.int64(),)
    return AggregateSpec(step, MEASURES, OUTPUTS, ARGUMENTS, KINDS, payload, keep=keep, ansi=ansi)


WHOLE = ("n", "known", "whole", "whole_mean", "exact", "exact_mean", "small")
"""What can be counted by rank: sums of whole numbers and decimals."""


def overlap_spec(*, keyed: bool, strict: tuple[bool, bool] = (False, False), keep: bool = True) -> AggregateSpec:
    """Intervals [x, y] that overlap [x0, x1]: x <= x1 and y >= x0, or strictly so."""
    keys = [Key("k", "INT")] if keyed else []
    first = len(keys)
    axes = (
        Axis("int", first, None, Edge(first + 1, strict=strict[0])),
        Axis("int", first + 1, Edge(first, strict=strict[1]), None),
    )
    step = Step(
        axes, ("int",) if keyed else (), (*keys, Key("x", "BIGINT"), Key("y", "BIGINT")),
        (*keys, Key("x0", "BIGINT"), Key("x1", "BIGINT")),
    )  # fmt: skip
    used = [0, 1, 3, 4, 10]
    outputs = tuple(
        Output(one.name, one.function, (used.index(one.measures[0]),), one.type) for one in OUTPUTS if one.name in WHOLE
    )
    measures = tuple(MEASURES[at] for at in used)
    return AggregateSpec(step, measures, outputs, ARGUMENTS, KINDS, (pa.int64(),), keep=keep, ansi=False)


def overlaps(*, keyed: bool, strict: tuple[bool, bool] = (False, False)) -> Callable[[Any, Any], bool | None]:
    """The condition of :func:`overlap_spec`."""

    def holds(a: Any, b: Any) -> bool | None:
        parts = [equal(a["k"], b["k"])] if keyed else []
        compare = [less if one else at_most for one in strict]
        return both(*parts, compare[0](b["x"], a["x1"]), compare[1](a["x0"], b["y"]))

    return holds


def condition(*, keyed: bool, axes: str) -> Callable[[Any, Any], bool | None]:
    """The condition of :func:`spec_of`, for the nested loop."""

    def holds(a: Any, b: Any) -> bool | None:
        parts: list[bool | None] = [equal(a["k"], b["k"])] if keyed else []
        for name in axes:
            low, high = (a[name.lower() + end] for end in ("0", "1"))
            # Both ends are key columns, and a NULL among them matches nothing.
            parts.append(at_most(b[name.lower()], high))
            parts.append(low is not None and True if name.isupper() else at_most(low, b[name.lower()]))
        return both(*parts)

    return holds


def points_batch(spec: AggregateSpec, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Keys and arguments of the answering rows."""
    columns = [pa.array([row.get(key.sql, 0) for row in rows], _type(key)) for key in spec.step.point_keys]
    columns += [pa.array([row[name] for row in rows], kind) for name, kind in zip(NAMES, ARGUMENTS, strict=True)]
    names = [f"k{at}" for at in range(len(spec.step.point_keys))] + [f"a{at}" for at in range(len(NAMES))]
    return pa.RecordBatch.from_arrays(columns, names=names)


def box_keys(spec: AggregateSpec, rows: list[dict[str, Any]]) -> list[pa.Array[Any]]:
    """Key columns of the asking rows."""
    return [pa.array([row.get(key.sql, 0) for row in rows], _type(key)) for key in spec.step.box_keys]


def _type(key: Key) -> pa.DataType:
    return pa.int32() if key.ddl == "INT" else pa.int64()


def same(found: Any, wanted: Any, name: str) -> bool:
    """Whether a value is the expected one; whole sums wrap, and averages of decimals are rounded half up."""
    if wanted is None or found is None:
        return wanted is None and found is None
    if name == "whole":
        return bool(found == (wanted + 2**63) % 2**64 - 2**63)
    if name == "exact_mean":
        exact = wanted * 10**6
        whole = abs(exact) // 1 + (2 * (abs(exact) % 1) >= 1)
        return bool(Fraction(found) * 10**6 == (whole if exact >= 0 else -whole))
    if isinstance(wanted, float):
        if math.isnan(wanted) or math.isinf(wanted):
            return bool(found == wanted or (math.isnan(wanted) and math.isnan(found)))
        return math.isclose(found, wanted, rel_tol=1e-13, abs_tol=1e-300) or found == wanted
    return bool(found == wanted)
