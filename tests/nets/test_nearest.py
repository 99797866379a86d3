"""Spark is the oracle: the nearest rows are those of Spark's own cross join, ranked by the distance.

Distances, types, keys, sizes, partitions and settings are drawn; a failure names its seed: ``NET_SEED=n`` replays it
alone, and ``NET_COUNT=n`` draws so many in the slow run (``make nets``).
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import types as T
from tests.nets.sessions import drawn_settings, seeds, settings, small_inputs
from tests.nets.tables import DOMAINS

import dovetail as dt

COLUMNS = ("k", "i", "l", "sh", "f", "d", "c", "s", "da", "ts", "tn", "iv")
CALLS = 3
ORDER = "s.k, s.i, s.s, s.a"


def table(spark, draw: random.Random, size: int):
    schema = T.StructType(
        [
            T.StructField("id", T.IntegerType()),
            *(T.StructField(name, DOMAINS[name][0]) for name in COLUMNS),
            T.StructField("x", T.DoubleType()),
            T.StructField("y", T.DoubleType()),
        ]
    )
    rows = [
        (
            at,
            *(None if draw.random() < 0.12 else draw.choice(DOMAINS[name][1]) for name in COLUMNS),
            draw.choice([None, 0.0, 1.0, 2.0, -3.5, draw.uniform(-5, 5)]),
            draw.choice([None, 0.0, 1.0, 1e6, draw.uniform(-5, 5)]),
        )
        for at in range(size)
    ]
    rows += [(size + at, *rows[0][1:]) for at in range(draw.choice([0, 3]))] if rows else []
    return spark.createDataFrame(rows, schema).repartition(draw.choice([1, 2, 5]))


def distance(draw: random.Random) -> tuple[str, str, list[Any]]:
    """A distance as it is asked for, as Spark computes it, and largest distances."""
    exact = "CAST({} AS DECIMAL(38,6))"
    name = draw.choice(["i", "l", "sh", "f", "d", "c", "da", "ts", "tn", "iv", "plane", "plane", "weighed", "space"])
    if name in ("i", "sh", "l", "c"):
        sides = [exact.format(f"{alias}.{name}") for alias in "rs"]
        return f"ABS(s.{name} - r.{name})", f"abs({sides[0]} - {sides[1]})", [0, 3, 2.5, 10**12]
    if name in ("f", "d"):
        return f"ABS(r.{name} - s.{name})", f"abs(CAST(r.{name} AS DOUBLE) - CAST(s.{name} AS DOUBLE))", [0, 2.5, 100]
    if name in ("da", "ts", "tn", "iv"):
        return (
            f"DISTANCE(r.{name} - s.{name})",
            f"abs(r.{name} - s.{name})",
            ["2 days", timedelta(hours=5), "0 seconds"],
        )
    parts = {
        "plane": ["(r.x - s.x)", "(r.y - s.y)"],
        "weighed": ["(3 * (r.x - s.x))", "(0.5D * (r.y - s.y))"],
        "space": ["(r.x - s.x)", "(r.y - s.y)", "(CAST(r.sh AS DOUBLE) - CAST(s.sh AS DOUBLE))"],
    }[name]
    asked = f"DISTANCE({', '.join(part.strip('()') if name == 'plane' else part for part in parts)})"
    if name == "plane":
        asked = draw.choice(["HYPOT(r.x - s.x, r.y - s.y)", "SQRT(POW(r.x - s.x, 2) + POW(s.y - r.y, 2))", asked])
    if name == "weighed":
        asked = "DISTANCE(3 * (r.x - s.x), 0.5 * (r.y - s.y))"
    if name == "space":
        asked = "DISTANCE(r.x - s.x, r.y - s.y, r.sh - s.sh)"
    return asked, f"sqrt({' + '.join(f'{part} * {part}' for part in parts)})", [0, 2.5, 7]


def limit(within: Any) -> str:
    """A largest distance as Spark writes it."""
    if isinstance(within, str):
        number, unit = within.split()
        return f"INTERVAL {number} {unit.upper()}"
    if isinstance(within, timedelta):
        return f"INTERVAL {int(within.total_seconds())} SECONDS"
    return str(within)


def check(spark, seed: int) -> None:
    draw = random.Random(f"nearest {seed}")
    conf = drawn_settings("nearest", seed)
    wrong = []
    with settings(spark, conf):
        for _ in range(CALLS):
            r, s = (table(spark, draw, draw.choice([0, 1, 9, 25])) for _ in range(2))
            # A column without an order of its own, which decides between equally near rows by its text.
            s = s.selectExpr(
                "k", "i", "s", "array(k) AS a", "id", "l", "sh", "f", "d", "c", "da", "ts", "tn", "iv", "x", "y"
            )
            asked, computed, limits = distance(draw)
            keys = draw.choice([[], [], ["k"], ["s"], ["k", "s"]])
            within, how = draw.choice([None, *limits]), draw.choice(["inner", "left"])
            k, ties = draw.choice([1, 2, 5, 100]), draw.choice(["all", "first"])
            more = draw.choice([{}, {}, {"broadcast": False}, {"broadcast": False, "sample": False}])
            small = nullcontext() if more else small_inputs(at_once=draw.random() < 0.5)
            if more and draw.random() < 0.5:
                more["partitions"] = draw.choice([1, 4])
            called = f"on={asked!r} keys={keys} within={within!r} how={how} k={k} ties={ties} {more}"
            r.createOrReplaceTempView("r_of_net")
            s.createOrReplaceTempView("s_of_net")
            equal = " AND ".join([f"r.{key} = s.{key}" for key in keys] or ["TRUE"])
            near = "" if within is None else f" AND far <= {limit(within)}"
            number = "rank() OVER (PARTITION BY r ORDER BY far)"
            if ties == "first":
                number = f"row_number() OVER (PARTITION BY r ORDER BY far, {ORDER.replace('s.', '')})"
            found = "CAST(far AS DOUBLE)" if "INTERVAL" not in near and "abs(r" not in computed else "far"
            finite = f"{found} IS NOT NULL AND NOT isnan({found}) AND abs({found}) < DOUBLE('inf')"
            if computed.startswith("abs(r."):
                finite, found = "far IS NOT NULL", "far"
            wanted = spark.sql(
                f"SELECT r, k, i, s, far, n FROM (SELECT *, {number} AS n FROM ("
                f"SELECT r.id AS r, {ORDER}, {computed} AS far FROM r_of_net r JOIN s_of_net s ON {equal}) "
                f"WHERE {finite}{near}) WHERE n <= {k}"
            ).collect()
            unmatched = {row.id for row in r.collect()} - {row.r for row in wanted} if how == "left" else set()
            expected = Counter((row.r, row.k, row.i, row.s, _plain(row.far), row.n) for row in wanted)
            expected.update((n, None, None, None, None, None) for n in unmatched)
            with small:
                joined = dt.nearest_join(
                    {"r": r, "s": s}, on=asked, by=keys or None, within=within, how=how, k=k, ties=ties, **more
                )
            rows = joined.selectExpr("r.id", "s.k", "s.i", "s.s", "distance", "rank")
            try:
                answer = Counter((a, b, c, e, _plain(far), n) for a, b, c, e, far, n in rows.collect())
            except Exception as error:
                # Two longs may be farther apart than a long can say.
                if "does not fit the type" not in str(error) or all(_plain(row.far) < 2**63 for row in wanted):
                    raise
                continue
            if answer != expected:
                wrong.append(f"{called}\n  more {list((answer - expected).items())[:4]}\n"
                             f"  missing {list((expected - answer).items())[:4]}")  # fmt: skip
    assert not wrong, "\n".join([f"NET_SEED={seed}, {conf}", *wrong[:20]])


def _plain(far: Any) -> Any:
    """Distances of one length that are equal, whatever their type."""
    return far if far is None or isinstance(far, timedelta | float) else float(far)


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", seeds(0, 6))
def test_nearest_rows_are_those_of_sparks_own_join(spark, seed):
    check(spark, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(100, int(os.environ.get("NET_COUNT", "20"))))
def test_more_nearest_rows(spark, seed):
    check(spark, seed)
