"""Approximate joins in Spark: samples of the exact join within the limit, batch and streaming."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.errors import ArgumentError, DovetailError, PredicateError
from dovetail.reference.approx import divergence, mean_square_error

from .streams import put, run, source

pytestmark = pytest.mark.usefixtures("few_partitions")

SCHEMA = "id long, k long, name string, x double"


def rows_of(rows: int, seed: int, values: int = 40) -> pa.Table:
    random = np.random.default_rng(seed)
    k = random.zipf(1.3, rows) % values
    name = [None if at % 50 == 49 else f"key {key % 7}" for at, key in enumerate(k)]
    return pa.table({"id": np.arange(rows), "k": k, "name": name, "x": np.round(random.normal(10, 3, rows), 2)})


@pytest.fixture(scope="module")
def sides(spark):
    return [spark.createDataFrame(rows_of(900, seed)) for seed in (1, 2)]


def pairs(frame) -> list[tuple[int, int]]:
    return [(row.R, row.S) for row in frame.selectExpr("R.id AS R", "S.id AS S").collect()]


@pytest.fixture(scope="module")
def complete(sides):
    r, s = (side.toPandas() for side in sides)
    joined = r.merge(s, on="k", suffixes=("_r", "_s"))
    return set(zip(joined.id_r.tolist(), joined.id_s.tolist(), strict=True))


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "policy", ["raj_hash", "raj", "prob", "prob_hash", "arrpj", "raj_hash_printed", "prob_hash_printed"]
)
def test_a_sample_is_a_subset_without_duplicates_within_the_limit(sides, complete, policy):
    r, s = sides
    some = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=300, policy=policy, seed=4)
    found = pairs(some)
    assert 0 < len(found) < len(complete)
    assert len(set(found)) == len(found)
    assert set(found) <= complete
    counts = dt.metrics(some)
    assert counts["results"] == len(found)
    assert 250 < counts["peak_rows"] <= 300
    assert counts["held_rows"] <= 300
    if policy in ("raj", "raj_hash"):
        again = pairs(dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=300, policy=policy, seed=4))
        assert sorted(again) == sorted(found)
        assert counts["estimated"] == pytest.approx(len(complete), rel=0.25)


@pytest.mark.in_turns(group="samples on Spark")
def test_with_memory_for_everything_the_join_is_exact(sides, complete):
    r, s = sides
    for memory in (1800, "2 MB"):
        whole = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=memory)
        assert sorted(pairs(whole)) == sorted(complete)
        assert whole.select(F.max("sampling.weight")).first()[0] == 1.0
    free = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=None, policy="exact")
    assert free.count() == len(complete)


def test_exact_fails_where_memory_does_not_hold_all(sides):
    r, s = sides
    with pytest.raises(Exception, match="needs more than its memory"):
        dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=200, policy="exact").count()


@pytest.mark.in_turns(group="several seconds")
def test_composite_keys_texts_filters_and_what_only_spark_evaluates(sides):
    r, s = sides
    on = "R.name = S.name AND R.k = S.k AND R.x > 9 AND ABS(R.x - S.x) <= 1 AND R.id % 3 <> S.id % 3"
    whole = dt.approx_join({"R": r, "S": s}, on=on, memory=None, policy="exact")
    expected = r.alias("R").join(s.alias("S"), F.expr(on)).select(F.col("R.id"), F.col("S.id"))
    assert sorted(pairs(whole)) == sorted((a, b) for a, b in expected.collect())
    some = dt.approx_join({"R": r, "S": s}, on=on, memory=500, seed=2)
    found = pairs(some)
    assert found
    assert set(found) <= set(pairs(whole))
    assert dt.metrics(some)["candidates"] > dt.metrics(some)["results"] == len(found)


@pytest.mark.in_turns(group="samples on Spark")
def test_three_inputs_and_bands(sides):
    r, s = (side.where("id < 300") for side in sides)
    three = dt.approx_join({"R": r, "S": s, "T": r}, on="R.k = S.k AND S.k = T.k", memory=300, seed=1)
    found = dt.estimates(three).first().rows
    values = [Counter(row.k for row in side.select("k").collect()) for side in (r, s)]
    true = sum(count**2 * values[1][k] for k, count in values[0].items())
    assert found.estimate == pytest.approx(true, rel=0.3)
    assert three.where("R.k <> S.k OR S.k <> T.k").isEmpty()
    near = dt.approx_join({"R": r, "S": s}, on="ABS(R.x - S.x) <= 0.1", memory=200, policy="raj", seed=1)
    assert near.where("ABS(R.x - S.x) > 0.1000001").isEmpty()
    size = r.alias("R").join(s.alias("S"), F.expr("ABS(R.x - S.x) <= 0.1")).count()
    estimate = dt.estimates(near, confidence=0.999).first().rows
    assert estimate.low <= size <= estimate.high


@pytest.mark.in_turns(group="samples on Spark")
def test_estimates_by_group(sides, complete):
    r, s = sides
    some = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=600, seed=4)
    measures = {"n": "count(*)", "names": "count(R.name)", "x": "sum(R.x)", "mean": "AVG(R.x * S.x)"}
    joined = r.alias("R").join(s.alias("S"), F.expr("R.k = S.k"))
    true = {
        row.g: row
        for row in joined.groupBy(F.expr("R.k % 3 AS g"))
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.count("R.name").alias("names"),
            F.sum("R.x").alias("x"),
            F.avg(F.expr("R.x * S.x")).alias("mean"),
        )
        .collect()
    }
    found = dt.estimates(some, measures, by="R.k % 3 AS g", confidence=0.9999).collect()
    assert {row.g for row in found} == set(true)
    told = 0
    for row in found:
        for name in measures:
            one = row[name]
            if one.low is not None:  # a few held rows may decide about a group, and then there is no interval
                told += 1
                assert one.low <= true[row.g][name] <= one.high, (row.g, name)
            assert one.estimate == pytest.approx(true[row.g][name], rel=0.5), (row.g, name)
    assert told >= len(found) * len(measures) // 2
    # Rows that were stored and filtered in the meantime carry all that is needed.
    part = dt.estimates(some.where("R.x > 10"), {"n": "count(*)"}, confidence=0.9999).first().n
    assert part.low <= joined.where("R.x > 10").count() <= part.high
    # Nothing found is nothing known; a join that held every row knows, even if little was found.
    nothing = dt.estimates(some.where("R.x > 1000")).first().rows
    assert (nothing.estimate, nothing.error, nothing.low, nothing.high) == (0.0, None, None, None)
    whole = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=2000, seed=4)
    for frame in (whole, dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=None, policy="exact")):
        few = dt.estimates(frame.where("R.id = 3 AND S.id < 400")).first().rows
        assert few.estimate == joined.where("R.id = 3 AND S.id < 400").count() < 10 * few.estimate
        assert (few.error, few.low) == (0.0, few.estimate)


@pytest.mark.in_turns(group="samples on Spark")
def test_quality_is_what_the_paper_measures(sides):
    r, s = sides
    whole = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=None, policy="exact")
    some = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=150, policy="prob_hash", seed=4)
    counts = [Counter(row.k for row in frame.select("R.k").collect()) for frame in (whole, some)]
    found = dt.quality(some, whole, on="R.k").first()
    assert found.results == counts[1].total()
    assert found.complete == counts[0].total()
    assert found.share == pytest.approx(found.results / found.complete)
    assert found.mse == pytest.approx(mean_square_error(*counts))
    assert found.js == pytest.approx(divergence(*counts))
    fair = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=150, seed=4)
    online = dt.quality(fair, on="R.k").first()
    assert online.complete == pytest.approx(found.complete, rel=0.3)
    assert dt.quality(fair, whole, on="R.k").first().js < found.js
    moments = dt.quality(fair, whole, on="R.k", over="sampling.at div 100").collect()
    assert [row.results for row in moments] == sorted(row.results for row in moments)
    assert moments[-1].results == online.results


@pytest.mark.in_turns(group="samples on Spark")
def test_quality_of_nothing_is_a_row(spark, sides):
    r, s = sides
    none = dt.approx_join({"R": r, "S": s}, on="R.k = S.k AND R.id < 0", memory=100)
    found = dt.quality(none, on="R.k").collect()
    assert [(row.results, row.complete, row.share, row.js) for row in found] == [(0, 0.0, None, None)]
    whole = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=None, policy="exact")
    (found,) = dt.quality(none, whole, on="R.k").collect()
    assert (found.results, found.complete, found.share) == (0, whole.count(), 0.0)
    assert dt.quality(none, on="R.k", over="sampling.at").collect() == []


@pytest.mark.in_turns
@pytest.mark.parametrize("policy", ["raj_hash", "raj", "prob", "exact"])
@pytest.mark.parametrize("partitions", [1, 5])
def test_a_bound_on_what_comes_out(sides, complete, capsys, policy, partitions):
    r, s = sides
    memory = None if policy == "exact" else 300
    some = dt.approx_join(
        {"R": r, "S": s}, on="R.k = S.k", memory=memory, policy=policy, seed=4, results=777, partitions=partitions
    )
    found = pairs(some)
    # A cell with fewer results than its share leaves the rest unused.
    assert 400 < len(found) <= 777
    assert len(set(found)) == len(found)
    assert set(found) <= complete
    counts = dt.metrics(some)
    assert counts["results"] == len(found) < counts["candidates"]
    dt.explain(some)
    assert "at most 777 results in all" in capsys.readouterr().out
    if policy == "prob":
        return
    size = dt.estimates(some, confidence=0.9999).first().rows
    assert size.low <= len(complete) <= size.high
    assert size.high - size.low < size.estimate
    lean = dt.approx_join(
        {"R": r, "S": s}, on="R.k = S.k", memory=memory, policy=policy, seed=4, results=777, partitions=partitions,
        detail=False,
    )  # fmt: skip
    assert lean.agg(F.sum("sampling.weight")).first()[0] == pytest.approx(size.estimate)


def test_mistakes_are_told_before_anything_runs(spark, sides):
    r, s = sides
    both = {"R": r, "S": s}
    with pytest.raises(ArgumentError, match=r"memory='100 bytes' for 2 inputs in 1 partition"):
        dt.approx_join(both, on="R.k = S.k", memory="100 B")
    with pytest.raises(ArgumentError, match="results=0"):
        dt.approx_join(both, on="R.k = S.k", memory=100, results=0)
    with pytest.raises(ArgumentError, match=r"results=9 in 5 partition"):
        dt.approx_join(both, on="R.k = S.k", memory=100, results=9, partitions=5)
    with pytest.raises(ArgumentError, match="policy='best'"):
        dt.approx_join(both, on="R.k = S.k", memory=10, policy="best")
    with pytest.raises(ArgumentError, match="memory='much'"):
        dt.approx_join(both, on="R.k = S.k", memory="much")
    with pytest.raises(ArgumentError, match="memory=0"):
        dt.approx_join(both, on="R.k = S.k", memory=0)
    with pytest.raises(ArgumentError, match="memory=None"):
        dt.approx_join(both, on="R.k = S.k", memory=None)
    with pytest.raises(ArgumentError, match="memory=3 for 2 inputs in 4"):
        dt.approx_join(both, on="R.k = S.k", memory=3, partitions=4)
    with pytest.raises(ArgumentError, match="with 3 inputs"):
        dt.approx_join({**both, "T": r}, on="R.k = S.k AND S.k = T.k", memory=100, policy="prob")
    with pytest.raises(PredicateError, match="join value that all inputs have in common"):
        dt.approx_join(both, on="ABS(R.x - S.x) < 1", memory=100)
    with pytest.raises(PredicateError, match="no condition connects"):
        dt.approx_join({**both, "T": r}, on="R.k = S.k", memory=100, policy="raj")
    with pytest.raises(ArgumentError, match="alias 'Sampling'"):
        dt.approx_join({"Sampling": r, "S": s}, on="Sampling.k = S.k", memory=100)
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ArgumentError, match="together with the stream"):
        dt.approx_join({"R": stream, "S": s}, on="R.value = S.k", memory=100)
    some = dt.approx_join(both, on="R.k = S.k", memory=100, policy="prob")
    with pytest.raises(ArgumentError, match="carry no weights"):
        dt.estimates(some)
    fair = dt.approx_join(both, on="R.k = S.k", memory=100)
    for measures in ({"x": "max(R.x)"}, {"x": "sum(*)"}, {"x": "count(DISTINCT R.k)"}, {}):
        with pytest.raises(ArgumentError):
            dt.estimates(fair, measures)
    with pytest.raises(PredicateError, match="Spark cannot evaluate"):
        dt.estimates(fair, {"x": "sum(R.nothing)"})
    with pytest.raises(ArgumentError, match="confidence=95"):
        dt.estimates(fair, confidence=95)
    assert issubclass(ArgumentError, DovetailError)


def test_the_plan_in_words(sides, capsys):
    r, s = sides
    dt.explain(dt.approx_join({"R": r, "S": s}, on="R.k = S.k AND R.x <= S.x AND R.id > 5", memory=1000, seed=3))
    text = capsys.readouterr().out
    assert "approximate join, batch, policy='raj_hash'" in text
    assert "1,000 rows, shared by 7 cells in proportion to their rows" in text
    assert "R.k = S.k, by its value; R.x <= S.x checked" in text
    assert "R keeps rows where R.id > 5" in text
    assert "about 71 in its cell divided by the number of join values there; results= bounds them" in text


def sampled(spark, folders: dict[str, Path], policy: str, seed: int | None):
    inputs = {alias: source(spark, folder, SCHEMA) for alias, folder in folders.items()}
    return dt.approx_join(inputs, on="R.k = S.k", memory=300, policy=policy, seed=seed, partitions=2)


@pytest.mark.in_turns(group="streams across a restart")
@pytest.mark.parametrize("policy", ["raj_hash", "raj_hash_printed"])
def test_a_stream_that_is_stopped_and_started_again(spark, tmp_path, policy):
    tables = {alias: rows_of(800, seed) for alias, seed in (("R", 5), ("S", 6))}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    folders = {}
    for alias, table in tables.items():
        folders[alias] = tmp_path / f"{alias}-halves"
        put(tmp_path / f"{alias}-whole", table.slice(0, 400))
        put(tmp_path / f"{alias}-whole", table.slice(400))
        put(folders[alias], table.slice(0, 400))
    run(sampled(spark, {alias: tmp_path / f"{alias}-whole" for alias in tables}, policy, 8), whole)
    run(sampled(spark, folders, policy, 8), halves)
    before = spark.read.parquet(str(halves / "out")).count()
    for alias, table in tables.items():
        put(folders[alias], table.slice(400))
    # Without a seed: the one that is stored goes on.
    counts = run(sampled(spark, folders, policy, None), halves)[-1]
    assert counts["held_rows"] <= counts["peak_rows"] <= 300
    one, two = (spark.read.parquet(str(out / "out")) for out in (whole, halves))
    assert 0 < before < two.count()
    found = pairs(two)
    assert sorted(found) == sorted(pairs(one))
    assert len(set(found)) == len(found)
    r, s = (table.to_pandas() for table in tables.values())
    joined = r.merge(s, on="k", suffixes=("_r", "_s"))
    assert set(found) <= set(zip(joined.id_r.tolist(), joined.id_s.tolist(), strict=True))
    if policy == "raj_hash_printed":
        with pytest.raises(ArgumentError, match="policy='raj_hash', 'raj' or 'exact'"):
            dt.estimates(two)
        return
    size = dt.estimates(two, confidence=0.9999).first().rows
    assert size.low <= len(joined) <= size.high


@pytest.mark.in_turns(group="streams across a restart")
def test_a_bound_on_what_a_micro_batch_returns(spark, tmp_path):
    tables = {alias: rows_of(800, seed) for alias, seed in (("R", 5), ("S", 6))}
    for alias, table in tables.items():
        for begin in (0, 300, 600):
            put(tmp_path / alias, table.slice(begin, 300))
    inputs = {alias: source(spark, tmp_path / alias, SCHEMA) for alias in tables}
    live = dt.approx_join(inputs, on="R.k = S.k", memory=300, seed=8, partitions=2, results=400)
    counts = run(live, tmp_path)
    assert [one["results"] <= 400 < one["candidates"] for one in counts] == [True] * 3
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.count() == sum(one["results"] for one in counts) > 800
    assert found.select("sampling.cell", "sampling.call").distinct().count() == 6
    r, s = (table.to_pandas() for table in tables.values())
    size = dt.estimates(found, confidence=0.9999).first().rows
    assert size.low <= len(r.merge(s, on="k")) <= size.high
