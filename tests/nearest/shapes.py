"""Drawn nearest joins: specs, rows with every odd value, and the answers of the definition."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dovetail.columns.codes import HIGHEST, LOWEST
from dovetail.families.nearest.spec import NearestSpec
from dovetail.reference import nearest

Row = dict[str, Any]

_ODD = [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1e308, -1e308, 5e-324, 1e154]
_WHOLE_ODD = [None, 2**63 - 1, -(2**63), -(2**63) + 1, 0, 2**53 + 1]
NAMES = ("x", "y", "z")


@dataclass(frozen=True)
class Case:
    """A join: its spec, and its rows as the definition takes them."""

    spec: NearestSpec
    rows: list[Row]
    others: list[Row]

    @property
    def columns(self) -> tuple[str, ...]:
        return NAMES[: self.spec.coordinates]

    def measure(self) -> nearest.Measure:
        if self.spec.metric == "line":
            return nearest.line("x")
        if self.spec.metric == "haversine":
            return nearest.haversine("x", "y")
        return nearest.euclidean(self.columns, self.spec.factors)

    def expected(self) -> list[tuple[int, Row | None, Any, int | None]]:
        """The definition's answer: number of the asking row, other row, distance, rank."""
        found = nearest.nearest_join(
            self.rows, self.others, self.measure(), k=self.spec.k, keys=["k"] if self.spec.keys else [],
            within=self.spec.within, ties=self.spec.ties, how="left" if self.spec.keep else "inner",
            time="t", window=self.spec.window,
        )  # fmt: skip
        return [(row["n"], other, far, rank) for row, other, far, rank in found]

    def keys(self, rows: list[Row]) -> list[pa.Array[Any]]:
        """Keys and coordinates, as Spark sends them."""
        kind = pa.int64() if self.spec.whole else pa.float64()
        found = [pa.array([row["k"] for row in rows], pa.string())] if self.spec.keys else []
        found += [pa.array([row[name] for row in rows], kind, from_pandas=False) for name in self.columns]
        return found + ([pa.array([row["t"] for row in rows], pa.int64())] if self.spec.window else [])

    def payload(self, rows: list[Row]) -> list[pa.Array[Any]]:
        """The columns of the answering rows."""
        return [
            pa.array([row["k"] for row in rows], pa.string()), pa.array([row["v"] for row in rows], pa.int32()),
        ]  # fmt: skip


def comparable(answers: list[tuple[int, Any, Any, int | None]]) -> Counter[Any]:
    """Answers whose order does not matter; of the other row its columns k and v."""
    return Counter((n, other, far if far is None else float(far), rank) for n, other, far, rank in answers)


def seen(other: Row | None) -> Any:
    """What a test sees of an answering row."""
    return None if other is None else (other["k"], other["v"])


def ordered(pair: tuple[int, int]) -> tuple[int, int]:
    return min(pair), max(pair)


@st.composite
def cases(
    draw: st.DrawFn, *, metrics: tuple[str, ...] = ("whole", "line", "plane", "space"), most: int = 30,
    timed: bool | None = None, odd_times: bool = True,
) -> Case:  # fmt: skip
    """A drawn join; `timed` tells whether it has a window of time, which is drawn as well otherwise."""
    metric = draw(st.sampled_from(metrics))
    dims = {"plane": 2, "space": 3, "earth": 2}.get(metric, 1)
    if metric == "whole":
        number = st.integers(-6, 6) | st.sampled_from(_WHOLE_ODD) | st.integers(-(2**63), 2**63 - 1)
    elif metric == "earth":
        number = st.integers(-9, 9).map(lambda v: v * 10.0) | st.sampled_from([None, math.nan, 91.0, 400.0, -180.0])
    else:
        small = st.integers(-4, 4).map(float)
        number = small | small | st.sampled_from(_ODD) | st.floats(-100, 100) | st.sampled_from([1e6, 1e6 + 1])
    timed = draw(st.booleans()) if timed is None else timed
    time = st.integers(0, 40) | st.none()
    if odd_times:
        time |= st.sampled_from([HIGHEST, LOWEST, HIGHEST - 5])
    key = st.sampled_from(["a", "b", None]) if draw(st.booleans()) else st.just("a")

    def side(size: int) -> list[Row]:
        rows = []
        for n in range(size):
            place = {name: draw(number) for name in NAMES[:dims]}
            rows.append({"k": draw(key), "v": draw(st.sampled_from([None, 1, 2, 3, n])), **place, "n": n, "t": None})
            if timed:
                rows[-1]["t"] = draw(time)
        return rows

    rows, others = side(draw(st.integers(0, most))), side(draw(st.integers(0, most)))
    # Answering rows are ordered by k and v alone, so that "first" has ties that only rows alike remain in.
    for other in others:
        del other["n"]
        place = {name: other.pop(name) for name in (*NAMES[:dims], "t")}
        other.update(place)
    factors = tuple(draw(st.sampled_from([1.0, 0.5, 3.0])) for _ in range(dims)) if dims > 1 else (1.0,)
    within: Any = draw(st.none() | (st.integers(0, 9) if metric == "whole" else st.floats(0, 9)))
    if metric == "earth":
        factors, within = (1.0, 1.0), draw(st.none() | st.just(3e6))
    spec = NearestSpec(
        metric="haversine" if metric == "earth" else "line" if dims == 1 else "euclidean",
        kind="int" if metric == "whole" else "float64",
        factors=factors,
        keys=("rank",) if draw(st.booleans()) else (),
        k=draw(st.integers(1, 5) | st.just(100)),
        within=within,
        ties=draw(st.sampled_from(["all", "first"])),
        keep=draw(st.booleans()),
        payload=((pa.int64(),), (pa.string(), pa.int32())),
        order=(0, 1),
        texts=0,
        distance=pa.int64() if metric == "whole" else pa.float64(),
        window=draw(st.tuples(st.integers(-12, 12), st.integers(-12, 12)).map(ordered)) if timed else None,
    )
    return Case(spec, rows, others)
