"""`explain(sample=True)`: the interval holds what the join then gives, for every call, and refusals."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import dovetail as dt
from dovetail.plan import prediction

pytestmark = pytest.mark.usefixtures("few_partitions")


@pytest.fixture
def inputs(spark):
    """Two inputs with a few matches for each row, and NULLs."""

    def rows(seed: int, count: int):
        return spark.range(count).selectExpr(
            "id", f"pmod(xxhash64(id, {seed}), 20) AS k", "timestamp_seconds(id) AS ts", "'a text' AS t",
            f"IF(id % 50 = 0, NULL, pmod(xxhash64(id, {seed + 1}), 9000)) AS x",
        )  # fmt: skip

    return {"a": rows(1, 6000), "b": rows(7, 5000)}


JOINS = {
    "band": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3"),
    "key and inequality": lambda i: dt.theta_join(i, on="a.k = b.k AND a.x < b.x"),
    "left": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3", how="left_outer"),
    "right": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3", how="right"),
    "full": lambda i: dt.theta_join(i, on="a.x = b.x + 1", how="full"),
    "semi": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3", how="semi"),
    "anti": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3", how="anti"),
    "a Column": lambda i: dt.theta_join(i, on=F.col("a.x") == F.col("b.x")),
    "what only Spark evaluates": lambda i: dt.theta_join(i, on="a.k = b.k AND length(concat(a.t, b.t)) > 3"),
    "selected": lambda i: dt.theta_join(i, on="ABS(a.x - b.x) <= 3", select=["a.id", "b.t"]),
    "keywords": lambda i: dt.theta_join(on="ABS(a.x - b.x) <= 3", **i),
    "window": lambda i: dt.window_join(i, on="a.k = b.k", time="ts", within="20 seconds"),
    "as-of": lambda i: dt.asof_join(i, time="ts", by="k", how="left"),
    "as-of, inner": lambda i: dt.asof_join(i, time="ts", by="k"),
    "aggregate": lambda i: dt.aggregate_join(i, on="ABS(a.x - b.x) <= 3", by="a", agg={"n": "count(*)"}),
    "nearest": lambda i: dt.nearest_join(i, on="ABS(a.x - b.x)", k=2),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("name", JOINS)
def test_the_interval_holds_what_comes(name, inputs, capsys, monkeypatch):
    monkeypatch.setattr("dovetail.spark.prediction.SAMPLES", (500, 2000))
    joined = JOINS[name](inputs)
    dt.explain(joined, sample=True)
    said = capsys.readouterr().out
    assert "  predicted   results     " in said
    assert "  predicted   inputs      a 6k rows of " in said
    count = joined.count()
    found = dt.metrics(joined)
    # Wider than 95 %: one seed must not fail for being one of twenty.
    room = 2 * (found["predicted_high"] - found["predicted_low"])
    assert found["predicted_low"] - room <= count <= found["predicted_high"] + room
    assert found["predicted_core_seconds"] > 0
    dt.explain(joined, analyzed=True)
    assert "; predicted " in capsys.readouterr().out


def test_small_inputs_are_joined_whole(inputs, capsys):
    joined = dt.theta_join({alias: frame.limit(900) for alias, frame in inputs.items()}, on="a.x < b.x")
    dt.explain(joined, sample=True)
    assert "all rows were joined" in capsys.readouterr().out
    count = joined.count()
    assert dt.metrics(joined)["predicted_results"] == count


@pytest.mark.in_turns(group="several seconds")
def test_three_inputs(inputs, capsys, monkeypatch):
    monkeypatch.setattr("dovetail.spark.prediction.SAMPLES", (500, 3000))
    joined = dt.theta_join({**inputs, "c": inputs["b"]}, on="ABS(a.x - b.x) <= 20 AND ABS(b.x - c.x) <= 20")
    dt.explain(joined, sample=True)
    assert "c 5k rows" in capsys.readouterr().out
    count = joined.count()
    found = dt.metrics(joined)
    assert found["predicted_low"] * 0.8 <= count <= found["predicted_high"] * 1.25


def test_what_cannot_be_told(inputs, capsys):
    best = dt.bestmatch_join({alias: frame.limit(50) for alias, frame in inputs.items()}, on=[dt.closest("x")])
    dt.explain(best, sample=True)
    assert "cannot be told from a sample" in capsys.readouterr().out
    best.count()
    assert "predicted_results" not in dt.metrics(best)


def test_refusals(spark, inputs):
    joined = dt.theta_join(inputs, on="a.x < b.x")
    with pytest.raises(dt.ArgumentError, match="sample=3"):
        dt.explain(joined, sample=3)
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    streamed = dt.theta_join({"s": stream, "b": inputs["b"]}, on="s.value < b.x")
    with pytest.raises(dt.ArgumentError, match="streaming join"):
        dt.explain(streamed, sample=True)
    statement = dt.sql("SELECT a.id FROM a JOIN b ON a.x < b.x", **inputs)
    with pytest.raises(dt.ArgumentError, match=r"frame of dt\.sql"):
        dt.explain(statement, sample=True)


def test_nothing_runs_unless_it_is_asked_for(inputs, capsys, monkeypatch):
    monkeypatch.setattr("dovetail.spark.prediction._counts", lambda frames: pytest.fail("a job"))
    dt.explain(dt.theta_join(inputs, on="a.x < b.x"))
    assert "predicted" not in capsys.readouterr().out
    assert prediction.SAMPLES[0] < prediction.SAMPLES[1]
