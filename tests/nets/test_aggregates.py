"""Spark is the oracle: aggregates over a join are those of Spark's own left join, grouped by the rows.

Conditions, aggregates, types, sizes, partitions and settings are drawn; a failure names its seed: ``NET_SEED=n``
replays it alone, and ``NET_COUNT=n`` draws so many in the slow run (``make nets``).
"""

from __future__ import annotations

import math
import os
import random
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tests.nets.sessions import drawn_settings, seeds, settings, small_inputs
from tests.nets.tables import DOMAINS, ORDERED

import dovetail as dt

COLUMNS = ("k", "i", "l", "sh", "f", "d", "c", "w", "s", "da", "ts", "tn", "bo", "bi", "iv")
CALLS = 3


def table(spark, draw: random.Random, size: int):
    schema = T.StructType(
        [T.StructField("id", T.IntegerType()), *(T.StructField(name, DOMAINS[name][0]) for name in COLUMNS)]
    )
    rows = [
        (at, *(None if draw.random() < 0.12 else draw.choice(DOMAINS[name][1]) for name in COLUMNS))
        for at in range(size)
    ]
    rows += [(size + at, *rows[0][1:]) for at in range(draw.choice([0, 3]))] if rows else []
    return spark.createDataFrame(rows, schema).repartition(draw.choice([1, 2, 5]))


def condition(draw: random.Random) -> str:
    """Every form that is taken: keys, one range, two ranges, overlaps, bands, and conditions on one input."""
    kind = draw.choice(["key", "range", "key and range", "two", "overlap", "band", "safe", "three", "either", "spark"])
    name = draw.choice([c for c in ORDERED if c not in ("k", "bo")])
    word = draw.choice(["<", "<=", ">", ">="])
    parts = {
        "key": [f"q.{draw.choice(['k', 's', 'da', 'd'])} = t.{'k'}"],
        "range": [f"q.{name} {word} t.{name}"],
        "key and range": ["q.k = t.k", f"q.{name} {word} t.{name}"],
        "two": [f"q.{name} {word} t.{name}", f"q.i {draw.choice(['<', '>='])} t.i"],
        "overlap": ["q.i <= t.l", "q.l >= t.i"],
        "band": [
            draw.choice(["q.i BETWEEN CAST(t.i AS BIGINT) - 3 AND t.i + 5L", "ABS(q.d - t.d) <= 2", "q.c - t.c < 7"])
        ],
        "three": ["q.i <= t.l", "q.l >= t.i", f"q.{name} {word} t.{name}"],
        "either": [f"(q.k = t.k OR q.{name} {word} t.{name})"],
        "spark": ["q.k = t.k", "length(concat(q.s, t.s)) > 2"],
        "safe": ["q.s <=> t.s", f"q.i {word} t.i"],
    }[kind]
    if kind == "key":
        shared = draw.choice(["k", "s", "da", "d", "w", "ts"])
        parts = [f"q.{shared} = t.{shared}"]
    if draw.random() < 0.3:
        parts.append(draw.choice(["t.k > 1", "q.k < 3", "q.bo", "t.s IS NOT NULL"]))
    return " AND ".join(parts)


def aggregates(draw: random.Random, *, ansi: bool) -> dict[str, str]:
    """Some aggregates of every kind."""
    ordered = draw.choice([c for c in COLUMNS if c != "k"])
    choices = [
        "count(*)", f"count(q.{draw.choice(COLUMNS)})", f"min(q.{ordered})", f"max(q.{draw.choice(COLUMNS)})",
        "sum(q.i)", "sum(q.l % 1000)" if ansi else "sum(q.l)", "sum(q.sh * 2)", "sum(q.c)", "sum(q.w)", "sum(q.d)",
        "sum(q.f)", "avg(q.i)", "avg(q.c)", "avg(q.w)", "avg(q.d)", "avg(q.sh)", "stddev(q.sh)", "variance(q.i)",
        "stddev_pop(q.c)", "var_pop(q.d)", f"min_by(q.{ordered}, q.id)", f"max_by(q.{draw.choice(COLUMNS)}, q.id)",
        "count_if(q.i > 0)", "bool_or(q.bo)", "every(q.bo)", "sum(CASE WHEN q.bo THEN q.i END)", "max(q.i + 1L)",
        f"count(DISTINCT q.{draw.choice(COLUMNS)})", "median(q.i)", "percentile(q.d, array(0.3, 0.5))",
        "percentile_approx(q.i, 0.5)", "percentile_approx(q.da, array(0.1, 0.9))", "median(q.c)",
    ]  # fmt: skip
    if draw.random() < 0.3:
        choices += [
            f"size(collect_set(q.{draw.choice(['k', 's', 'da'])}))",
            "array_sort(collect_list(q.i))", "approx_count_distinct(q.s)", "sum(q.i + t.i)",
        ]  # fmt: skip
    return {f"v{at}": text for at, text in enumerate(draw.sample(choices, 7))}


def agree(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agree, found, wanted))
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        return found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(found == wanted)


def check(spark, seed: int) -> None:
    draw = random.Random(f"aggregates {seed}")
    conf = drawn_settings("aggregates", seed)
    wrong = []
    with settings(spark, conf):
        for _ in range(CALLS):
            t, q = (table(spark, draw, draw.choice([0, 1, 9, 14])) for _ in range(2))
            on, how = condition(draw), draw.choice(["left", "left", "inner"])
            agg = aggregates(draw, ansi=conf["spark.sql.ansi.enabled"] == "true")
            more = draw.choice([{}, {}, {"broadcast": False}, {"broadcast": False, "sample": False}])
            small = nullcontext() if more else small_inputs(at_once=draw.random() < 0.5)
            if more and draw.random() < 0.5:
                more["partitions"] = draw.choice([1, 4])
            with small:
                ours = dt.aggregate_join({"t": t, "q": q}, on=on, by="t", agg=agg, how=how, **more)
            ours = ours.select("t.id", *agg)
            marked = q.withColumn("here", F.lit(1))
            pairs = t.alias("t").join(marked.alias("q"), F.expr(on), how)
            texts = {name: text.replace("count(*)", "count(q.here)") for name, text in agg.items()}
            theirs = pairs.groupBy("t.id").agg(*(F.expr(text).alias(name) for name, text in texts.items()))
            kinds = [[field.dataType for field in frame.schema] for frame in (ours, theirs)]
            found, wanted = ({row[0]: row for row in frame.collect()} for frame in (ours, theirs))
            called = f"on={on!r} agg={agg} how={how} {more}"
            if kinds[0] != kinds[1]:
                wrong.append(f"types {kinds}: {called}")
            if sorted(found) != sorted(wanted):
                wrong.append(f"rows {sorted(found)} {sorted(wanted)}: {called}")
                continue
            for key, row in wanted.items():
                wrong += [
                    f"{agg[name]} {found[key][name]!r} {row[name]!r}: {called}"
                    for name in agg
                    if not agree(found[key][name], row[name])
                ]
    assert not wrong, "\n".join([f"NET_SEED={seed}, {conf}", *wrong[:20]])


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", seeds(0, 6))
def test_aggregates_are_those_of_sparks_own_join(spark, seed):
    check(spark, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(100, int(os.environ.get("NET_COUNT", "20"))))
def test_more_aggregates(spark, seed):
    check(spark, seed)
