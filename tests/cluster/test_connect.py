"""Spark Connect: the same joins over a session that has no JVM of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cluster.public import PUBLIC, job_answer
from tests.cluster.standalone import Cluster, bare_python, warm

import dovetail

# A classic session and one of Spark Connect cannot live in one process.
SCRIPT = """
import sys
from pathlib import Path
import pyspark.sql.connect.session
import dovetail as dt

place = Path(sys.argv[1])
# The session that the environment prescribes comes back with its own settings.
spark = dt.session()
assert isinstance(spark, pyspark.sql.connect.session.SparkSession)
assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
spark.conf.set("spark.sql.shuffle.partitions", "1")
store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)

small = spark.range(0, 20, 1, 1)
pairs = dt.theta_join({"R": small, "S": small}, on="R.id < S.id", sample=False)
assert sorted((r.id, s.id) for r, s in pairs.collect()) == [(i, j) for i in range(20) for j in range(i + 1, 20)]
assert dt.metrics(pairs)["results"] == 190
dt.explain(pairs)

sample = dt.approx_join({"A": small, "B": small}, on="A.id = B.id", memory=40)
assert sorted(row.A.id for row in sample.collect()) == list(range(20))

both, agg = {"A": small, "B": small}, {"n": "count(*)", "total": "sum(B.id)"}
gathered, pairs = ({"agg": {**agg, "v": f"{name}(B.id)"}} for name in ("median", "mode"))
for more in ({"broadcast": False}, {"broadcast": "B"}, gathered, pairs):
    counted = dt.aggregate_join(both, **{"on": "B.id < A.id", "by": "A", "agg": agg, **more})
    found = {row.A.id: (row.n, row.total) for row in counted.collect()}
    assert found == {i: (i, sum(range(i)) if i else None) for i in range(20)}, (more, found)
    assert dt.metrics(counted)["results"] in (20, 190)
dt.explain(counted)

near = dt.nearest_join(both, on="ABS(A.id - B.id)", time="id", window={("A", "B"): (1, 3)}, broadcast=False)
assert sorted((a.id, b.id) for a, b, _, _ in near.collect()) == [(i, i + 1) for i in range(19)]

small.write.parquet(str(place / "in"))
stream = lambda: spark.readStream.schema("id long").parquet(str(place / "in"))

def run(joined, name):
    query = joined.writeStream.format("memory").queryName(name).option("checkpointLocation", str(place / name))
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    assert "dovetail(A,B)" in query.recentProgress[0]["observedMetrics"]
    found = sorted((a.id, b.id) for a, b in spark.table(name).collect())
    assert dt.metrics(query)["results"] == len(found)
    return found

beside = run(dt.theta_join({"A": stream(), "B": small}, on="A.id < B.id"), "beside")
assert beside == [(i, j) for i in range(20) for j in range(i + 1, 20)]
def streams_with_state():
    windows = run(dt.theta_join({"A": stream(), "B": stream()}, on="A.id < B.id", window=5), "windows")
    assert windows == [(i, j) for i, j in beside if i // 5 == j // 5]
    counted_windows = lambda rows: dt.theta_join({"A": stream(), "B": stream()}, on="A.id < B.id", window=rows)
    dt.check_checkpoint(counted_windows(5), place / "windows")
    dt.check_checkpoint(counted_windows(9), place / "nowhere")
    try:
        dt.check_checkpoint(counted_windows(9), place / "windows")
    except dt.CheckpointError as error:
        assert "the window was '5 rows' and is '9 rows'" in str(error)
    else:
        raise AssertionError("another join was not noticed")
    at = lambda: stream().selectExpr("id", "timestamp_seconds(id) AS ts").withWatermark("ts", "0 seconds")
    within = {("A", "B"): ("-3 seconds", "0 seconds")}
    counted = dt.aggregate_join({"A": at(), "B": at()}, time="ts", within=within, by="A", agg={"n": "count(*)"})
    query = counted.select("A.id", "n").writeStream.format("memory").queryName("counted")
    query = query.option("checkpointLocation", str(place / "counted")).trigger(availableNow=True).start()
    assert query.awaitTermination(900)
    assert {row.id: row.n for row in spark.table("counted").collect()} == {i: min(i, 3) + 1 for i in range(19)}

try:
    streams_with_state()
except dt.SetupError as error:
    assert pyspark.__version__ < "4.1" and "no stateful streams of Python on Spark Connect" in str(error), error
else:
    assert pyspark.__version__ >= "4.1"

text = "SELECT A.id, count(*) AS n FROM A, B WHERE A.id < B.id AND '{}' <> '' GROUP BY A.id"
assert {row.id: row.n for row in dt.sql(text, A=small, B=small).collect()} == {i: 19 - i for i in range(19)}
assert dt.sql(text, A=stream(), B=small).isStreaming
print("all good")
spark.stop()
"""


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
@pytest.mark.usefixtures("connect_port")
def test_joins_run_on_spark_connect(tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    chosen = {"SPARK_REMOTE": "local[2]", "SPARK_LOCAL_IP": "127.0.0.1"}
    # Into files, not pipes: the server's workers hold on to what they inherit for a while.
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={**kept, **chosen},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "err").read_text()[-4000:]
    said = (tmp_path / "out").read_text()
    assert said.endswith("all good\n")
    assert "theta join, batch" in said


def test_every_public_name_has_a_case():
    assert sorted(PUBLIC) == sorted(dovetail.__all__)


@pytest.fixture
def report(tmp_path, data, shipped, locally, connect_port) -> dict:
    """What a client of Spark Connect found whose server has the package as one file, and gets it from the client."""
    for case in (*PUBLIC.values(), job_answer):
        locally(case)
    client = Cluster("", tmp_path, bare_python(tmp_path / "python"))
    warm(shipped, client.home)
    command = [Path(__file__).with_name("connect_driver.py"), shipped, data, tmp_path]
    with (tmp_path / "log").open("w") as log:
        done = subprocess.run(
            [str(client.python), *map(str, command)],
            env=client.environment() | {"PYTHONPATH": str(shipped)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "log").read_text()[-5000:]
    return json.loads((tmp_path / "report.json").read_text())


@pytest.mark.spark
@pytest.mark.cluster
def test_the_whole_api_gives_the_local_answers(report, locally, shipped, broadcasts):
    assert report["driver"] == str(shipped / "dovetail" / "__init__.py")
    assert report["workers"]
    for file in report["workers"]:
        # From the client: what was sent comes before what was there.
        assert Path(file).parts[-3:] == (shipped.name, "dovetail", "__init__.py")
        assert file != report["driver"]
    truth = {name: locally(case) for name, case in PUBLIC.items()}
    assert all(truth.values())
    wrong = {
        name: (report["found"][name][:3], rows[:3]) for name, rows in truth.items() if report["found"][name] != rows
    }
    assert not wrong
    assert report["job"] == locally(job_answer)
