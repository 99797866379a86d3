"""Every public name of Dovetail in use, as a function of a session and a folder of data that gives texts to compare."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.cluster.families import CASES, SCHEMA, larger, run, streams, tables, texts

import dovetail as dt
from dovetail.watch.files import read_records

Case = Callable[..., list[str]]


def _joins(*names: str) -> Case:
    def case(spark, folder: Path) -> list[str]:
        return [row for name in names for row in CASES[name](spark, folder)]

    return case


def _refused(kind: type[Exception], call: Callable[..., object]) -> Case:
    """What a call that must fail says.  Spark's own words below ours may differ."""

    def case(spark, folder: Path) -> list[str]:
        with pytest.raises(kind) as caught:
            call(spark, folder)
        return str(caught.value).splitlines()[:2]

    return case


def _best(*on, how: str = "left") -> Case:
    def case(spark, folder: Path) -> list[str]:
        frames = {
            name: frame.where("id < 40").selectExpr("*", "array(k, CAST(id % 3 AS STRING)) AS tags")
            for name, frame in tables(spark, folder, "AB").items()
        }
        return texts(dt.bestmatch_join(frames, on=list(on), how=how))

    return case


def _after(spark, folder: Path) -> list[str]:
    within = {("A", "B"): dt.after("4 seconds")}
    joined = dt.window_join(tables(spark, folder, "AB"), on="A.k = B.k", time="t", within=within, how="left")
    return texts(joined)


def _aggregate(spark, folder: Path) -> list[str]:
    agg = {"n": "count(*)", "total": "sum(B.x)", "last": "max_by(B.id, B.t)"}
    ways = (
        {"on": "A.k = B.k AND B.x <= A.x"},
        {"on": "B.x <= A.x AND B.t >= A.t"},
        {"on": "A.k = B.k", "how": "inner"},
        {"on": "A.k = B.k AND B.x <= A.x", "agg": {"keys": "count(DISTINCT B.t)", "middle": "median(B.x)"}},
        {"on": "A.k = B.k", "time": "t", "within": "3 seconds"},
    )
    joins = [
        dt.aggregate_join(tables(spark, folder, "AB"), **{"by": "A", "agg": agg, "broadcast": small, **way})
        for way in ways
        for small in (None, False)
    ]
    counted = joins[1].count()
    assert dt.metrics(joins[1])["results"] == counted
    return [text for joined in joins for text in texts(joined)]


def _nearest(spark, folder: Path) -> list[str]:
    ways = ({"on": "ABS(A.x - B.x)", "by": "k"}, {"on": "HYPOT(A.x - B.x, A.id - B.id)", "ties": "first"})
    joins = [
        dt.nearest_join(tables(spark, folder, "AB"), k=2, how="left", broadcast=small, **way)
        for way in ways
        for small in (None, False)
    ]
    counted = joins[1].count()
    assert dt.metrics(joins[1])["results"] == counted
    return [text for joined in joins for text in texts(joined)]


def _sampled(spark, folder: Path, memory: int | None = 60):
    return dt.approx_join(tables(spark, folder, "AB"), on="A.k = B.k", memory=memory, seed=3)


def _estimates(spark, folder: Path) -> list[str]:
    measures = {"n": "count(*)", "x": "avg(A.x)"}
    found = dt.estimates(_sampled(spark, folder), measures, by="A.k").collect()
    return sorted(f"{row.k} {row.n.estimate:.6f} {row.x.estimate:.6f} {row.x.error or 0:.6f}" for row in found)


def _quality(spark, folder: Path) -> list[str]:
    row = dt.quality(_sampled(spark, folder), _sampled(spark, folder, 10_000), on="A.k").first()
    return [f"{row.results} {row.complete:.0f} {row.mse:.9f} {row.js:.9f}"]


def _explain(spark, folder: Path) -> list[str]:
    frames = tables(spark, folder, "AB")
    said = io.StringIO()
    with redirect_stdout(said):
        dt.explain(dt.theta_join(frames, on="ABS(A.x - B.x) <= 1", partitions=3))
        dt.explain(dt.sql("SELECT A.id FROM A, B WHERE A.x < B.x", **frames))
        window = {"on": "A.k = B.k", "time": "t", "within": "3 seconds"}
        dt.explain(dt.window_join(streams(spark, folder, "AB"), **window))
    return said.getvalue().splitlines()


def _metrics(spark, folder: Path) -> list[str]:
    pairs = dt.theta_join(tables(spark, folder, "AB"), on="A.k = B.k AND A.x < B.x", partitions=3)
    rows = pairs.count()
    found = dt.metrics(pairs)
    assert found["balance_in"] >= 1
    assert found["kernel_ms"] > 0
    assert found["results"] == rows
    return [f"{name} {found[name]}" for name in sorted(found) if name != "kernel_ms"]


def _plot(spark, folder: Path) -> list[str]:
    sample, whole = _sampled(spark, folder), _sampled(spark, folder, 10_000)
    said = [axis.get_title() for axis in dt.plot.histograms(sample, whole, on="A.k").axes]
    joined = dt.window_join(streams(spark, folder, "AB"), on="A.k = B.k", time="t", within="3 seconds")
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    said += [axis.get_ylabel() for axis in dt.plot.rates(query.recentProgress).axes]
    said += [axis.get_title() for axis in dt.plot.partitions([1, 2, 5], [2, 4, 8], algorithms=["prefap"]).axes]
    return said + [axis.get_title() for axis in dt.plot.harvested({"A -> B": [1, 0.5]}).axes[:1]]


def _order(spark, folder: Path) -> list[str]:
    def same(p, q):
        equal = [one == other for one, other in (p, q)]
        return "equal" if equal[0] == equal[1] else "better" if equal[0] else "worse"

    dt.register_order("sameText", same)
    dt.register_order("apart", "abs(a - b)")
    text = "SELECT A.id AS a, B.id AS b FROM A LEFT BESTMATCH JOIN B ON A.k sameText B.k, A.x apart B.x"
    frames = {name: frame.where("id < 20") for name, frame in tables(spark, folder, "AB").items()}
    return texts(dt.sql(text, **frames))


def _session(spark, folder: Path) -> list[str]:
    assert dt.session() is spark
    return ["the session in use"]


def _sql(spark, folder: Path) -> list[str]:
    text = "SELECT A.id AS a, B.id AS b FROM A, B WINDOW = 3 SECONDS WHERE A.k = B.k"
    both = tables(spark, folder, "AB")
    plain = "SELECT A.k, count(*) AS n FROM A, B WHERE A.x < B.x AND A.n <> B.n GROUP BY A.k"
    asof = "SELECT A.id AS a, B.id AS b FROM A ASOF JOIN B ON A.k = B.k AND A.t >= B.t"
    found = [*texts(dt.sql(text, **both)), *texts(dt.sql(plain, **both)), *texts(dt.sql(asof, **both))]
    return [*found, *run(dt.sql(text, **streams(spark, folder, "AB")))]


def _random_drop(spark, folder: Path) -> list[str]:
    inputs = streams(spark, folder, "AB")
    shed = dt.RandomDrop(throttle=0.5)
    joined = dt.window_join(inputs, on="A.k = B.k", time="t", within="3 seconds", partitions=1, shed=shed)
    return run(joined.selectExpr("A.id AS a", "B.id AS b"))


def _wrong_store(spark, folder: Path) -> None:
    setting = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        dt.window_join(streams(spark, folder, "AB"), on="A.k = B.k", time="t", within="3 seconds")
    finally:
        spark.conf.set(setting, before)


def _other_checkpoint(spark, folder: Path) -> list[str]:
    def start(place: Path, file: int, rows: int) -> str:
        for name in "AB":
            (place / name).mkdir(exist_ok=True)
            shutil.copy2(folder / name / f"{file}.parquet", place / name)
        joined = dt.theta_join(streams(spark, place, "AB"), on="A.x < B.x", window=rows)
        writer = joined.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(900)
        except Exception as error:
            return str(error)
        return "it ran"

    with tempfile.TemporaryDirectory() as place:
        first, second = start(Path(place), 0, 5), start(Path(place), 1, 7)
    assert "CheckpointError: the checkpoint belongs to another join: the window was '5 rows' and is '7 rows'" in second
    return [first]


def _check_checkpoint(spark, folder: Path) -> list[str]:
    def joined(rows: int):
        return dt.theta_join(streams(spark, folder, "AB"), on="A.x < B.x", window=rows)

    with tempfile.TemporaryDirectory() as place:
        dt.check_checkpoint(joined(5), place)
        writer = joined(5).writeStream.format("noop").option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(900)
        dt.check_checkpoint(joined(5), place)
        with pytest.raises(dt.CheckpointError) as caught:
            dt.check_checkpoint(joined(7), place)
    total = dt.metrics(query)
    return [*str(caught.value).splitlines(), f"{total['rows']} rows, {total['results']} results"]


def _state(spark, folder: Path) -> list[str]:
    joined = dt.theta_join(streams(spark, folder, "AB"), on="A.x < B.x", window=1000)
    with tempfile.TemporaryDirectory() as place:
        writer = joined.writeStream.format("noop").option("checkpointLocation", place)
        assert writer.trigger(availableNow=True).start().awaitTermination(900)
        held = dt.state(spark, place).where("input IS NOT NULL").groupBy("input").agg({"rows": "sum"}).collect()
    return sorted(f"{row[0]}: {row[1]} rows" for row in held)


def _resume(spark, folder: Path) -> list[str]:
    """What it does needs the files of the driver; what it refuses, it refuses everywhere."""
    with pytest.raises(dt.ArgumentError) as caught:
        dt.resume(dt.theta_join(tables(spark, folder, "AB"), on="A.x < B.x"), folder, folder)
    return str(caught.value).splitlines()


def _out_of_memory(spark, folder: Path) -> list[str]:
    """A worker without memory says so in words, wherever it runs."""
    from dovetail.spark.routing import arrow_function

    def stage(batches):
        yield from (batch for batch in batches if not batch.num_rows)
        raise MemoryError

    table = tables(spark, folder, "A")["A"]
    with pytest.raises(Exception, match="out of memory") as caught:
        table.mapInArrow(arrow_function(stage, "a trial"), table.schema).collect()
    assert "a trial" in str(caught.value)
    return ["said in words"]


def _watermarked(spark, folder: Path) -> list[str]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    raw = {name: reader.parquet(str(folder / name)) for name in "AB"}
    inputs = dt.watermarked(raw, time="t", delay="2 seconds", max_ahead="1 hour", clock="t")
    joined = dt.window_join(inputs, on="A.k = B.k", time="t", within="3 seconds")
    return run(joined.selectExpr("A.id AS a", "B.id AS b"))


def _listen(spark, folder: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        with dt.listen(spark, folder=place):
            _watermarked(spark, folder)
        [file] = Path(place).glob("*.jsonl")
        records = read_records(file)
    batches = [record for record in records if record["kind"] == "batch"]
    [plan] = [record["plan"].splitlines()[0] for record in records if record["kind"] == "plan"]
    totals = [str(sum(record[name] or 0 for record in batches)) for name in ("rows", "results", "evicted", "late")]
    return [plan, records[-1]["status"], *totals]


JOB = """
inputs:
  A: {{format: parquet, path: {folder}/A, schema: '{schema}'}}
  B: {{format: parquet, path: {folder}/B, schema: '{schema}'}}
join:
  kind: theta
  on: {on}
  select: [A.id AS a, B.id AS b]
output: {{format: parquet, path: {out}, mode: overwrite}}
"""
JOB_ON = "ABS(A.x - B.x) <= 0.2"


def _bad_jobs(spark, folder: Path) -> list[str]:
    from dovetail.jobs import read_job
    from dovetail.jobs.build import BuiltJob

    said = []
    good = JOB.format(folder=folder, schema=SCHEMA, on=JOB_ON, out="out")
    for text in (good.replace("A.x", "A.nowhere"), good.replace("A.id AS a", "A.nowhere AS a")):
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "job.yaml"
            file.write_text(text)
            job = read_job(file)
        with pytest.raises(dt.JobError) as caught:
            BuiltJob(job, spark)
        # The folder differs from run to run.
        said.append(str(caught.value).splitlines()[0].partition("job.yaml")[2])
    return said


def job_answer(spark, folder: Path) -> list[str]:
    """What the job above writes, by a call."""
    return texts(dt.theta_join(tables(spark, folder, "AB"), on=JOB_ON).selectExpr("A.id AS a", "B.id AS b"))


def _theta_of(on: str, make=tables) -> Callable[..., object]:
    return lambda spark, folder: dt.theta_join(make(spark, folder, "AB"), on=on)


def _published(algorithm: object) -> Case:
    def case(spark, folder: Path) -> list[str]:
        return texts(dt.theta_join(tables(spark, folder, "AB"), on="A.x < B.x", algorithm=algorithm))

    return case


PUBLIC: dict[str, Case] = {
    "CFS": _published(dt.CFS(p=4)),
    "FTJ": _published(dt.FTJ(w=20)),
    "OBT": _published(dt.OBT(p=2)),
    "RBM": _published(dt.RBM(p=4)),
    "ArgumentError": _refused(dt.ArgumentError, lambda spark, folder: dt.metrics(_sampled(spark, folder), timeout=0.5)),
    "CheckpointError": _other_checkpoint,
    "DovetailError": _refused(dt.DovetailError, lambda spark, folder: dt.explain(spark.range(3))),
    "Harvest": _joins("shedding, stream"),
    "JobError": _bad_jobs,
    "MemoryLimitError": _out_of_memory,
    "PredicateError": _refused(dt.PredicateError, _theta_of("A.x <")),
    "Prefap": _published(dt.Prefap(p=4, w=30, amalgamate=False)),
    "RandomDrop": _random_drop,
    "SetupError": _refused(dt.SetupError, _wrong_store),
    "StatementError": _refused(
        dt.StatementError, lambda spark, folder: dt.sql("SELECT A.nowhere FROM A", **tables(spark, folder, "A"))
    ),
    "UnboundedJoinError": _refused(dt.UnboundedJoinError, _theta_of("A.x < B.x", streams)),
    "UnknownNameError": _refused(dt.UnknownNameError, _theta_of("A.x < B.y")),
    "UnsupportedTypeError": _refused(
        dt.UnsupportedTypeError,
        lambda spark, folder: dt.asof_join(tables(spark, folder, "AB"), time="k", direction="nearest"),
    ),
    "after": _after,
    "aggregate_join": _aggregate,
    "nearest_join": _nearest,
    "approx_join": _joins("approx, batch", "approx, stream"),
    "asof_join": _joins("asof, batch", "asof, stream"),
    "bestmatch_join": _joins("bestmatch, batch", "bestmatch, stream"),
    "check_checkpoint": _check_checkpoint,
    "closest": _best(dt.closest("t", within="3 seconds"), dt.closest("x")),
    "estimates": _estimates,
    "explain": _explain,
    "least": _best(dt.least("A.x + B.x"), dt.closest("n", within=5)),
    "listen": _listen,
    "metrics": _metrics,
    "most": _best(dt.most("A.x * B.x"), dt.closest("n", within=5), how="inner"),
    "overlap": _best(dt.overlap("tags"), dt.closest("x", within=1), how="right"),
    "path": _joins("window, batch", "window, stream"),
    "plot": _plot,
    "prefer": _best(dt.prefer(larger()), dt.closest("n", within=3)),
    "quality": _quality,
    "register_order": _order,
    "resume": _resume,
    "session": _session,
    "sql": _sql,
    "state": _state,
    "theta_join": _joins("theta, batch", "theta, stream", "theta, a stream beside a table"),
    "watermarked": _watermarked,
    "window_join": _joins("window, batch", "window, stream"),
    "youngest": _best(dt.youngest("t"), dt.closest("x", within=1), how="full"),
}
"""A case for every public name."""
