"""What differs between versions of Spark: the older ways give the same rows, and what a version lacks it says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain, groupby, pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import Row

import dovetail as dt
from dovetail import spark as package
from dovetail.errors import SetupError
from dovetail.spark.runtime import versions

ROOT = Path(__file__).resolve().parents[3]
OTHERS = ("4.0", "4.1", "4.2")
"""The versions of Spark besides the one of requirements.txt."""


@pytest.fixture(params=["as installed", "as in 4.0"])
def groups(request, monkeypatch):
    """Both ways to hand over groups, on any version that has both."""
    if request.param == "as in 4.0":
        monkeypatch.setattr(versions, "_ITERATES_GROUPS", False)


@pytest.mark.parametrize("found", ["3.5.6", "2.4.0", "3.0.0.dev1"])
def test_an_old_version_is_refused_by_name(found, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", found)
    with pytest.raises(SetupError, match=f"^PySpark {re.escape(found)} is too old"):
        package.check_pyspark()


@pytest.mark.parametrize("found", ["4.0.0", "4.1.0.dev3", "4.3.9", "4.4.0", "5.0.0rc1"])
def test_newer_versions_are_not_refused(found, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", found)
    package.check_pyspark()


@given(
    rows=st.lists(st.integers(0, 4), max_size=30).map(sorted),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    taken=st.integers(0, 3),
)
def test_groups_one_by_one(rows, cuts, taken):
    """Groups cut anywhere, empty batches among them, and a function that reads a part of its group only."""
    numbered = list(enumerate(rows))
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    schema = pa.schema([("at", pa.int64()), ("cell", pa.int32())])
    batches = [
        pa.RecordBatch.from_pylist([{"at": at, "cell": cell} for at, cell in numbered[begin:end]], schema)
        for begin, end in pairwise(bounds)
    ]
    calls = []

    def whole(group):
        calls.append([at for batch in group for at in batch.column("at").to_pylist()])
        yield from ()

    assert list(versions.one_by_one(whole, "cell")(iter(batches))) == []
    assert calls == [[at for at, _ in group] for _, group in groupby(numbered, key=lambda row: row[1])]

    def first(group):
        for _ in range(taken):
            if (batch := next(group, None)) is not None:
                yield batch

    cells = [set(batch.column("cell").to_pylist()) for batch in versions.one_by_one(first, "cell")(iter(batches))]
    assert all(len(cell) == 1 for cell in cells)
    assert set().union(*cells) == (set(rows) if taken else set())


def test_batch_joins_either_way(spark, groups):
    r, s = spark.range(300).repartition(3), spark.range(0, 200, 3)
    pairs = dt.theta_join({"R": r, "S": s}, on="R.id - S.id BETWEEN -1 AND 2")
    meant = {(a, b) for a in range(300) for b in range(0, 200, 3) if -1 <= a - b <= 2}
    got = [(row.R.id, row.S.id) for row in pairs.collect()]
    assert len(got) == len(meant)
    assert set(got) == meant
    # A join whose kernel is that of a stream, in as many partitions as the session says.
    times = "timestamp_seconds(id) AS ts"
    near = dt.window_join(
        {"A": r.selectExpr("id", times), "B": s.selectExpr("id", times)}, on="true", time="ts", within="1 second"
    )
    assert near.count() == sum(abs(a - b) <= 1 for a in range(300) for b in range(0, 200, 3))


@pytest.fixture
def frames_only(monkeypatch):
    """Stateful streams as 4.0 has them; there they are so anyway."""
    monkeypatch.setattr(versions, "_ROW_STATE", "not in this version")


@pytest.mark.in_turns(group="several seconds")
def test_a_stream_by_frames(spark, tmp_path, frames_only):
    """Three micro-batches on one checkpoint: state, counters and timers go through Pandas frames."""

    def put(at: int) -> None:
        rows = spark.range(at * 20, at * 20 + 20, numPartitions=1).selectExpr("id", "timestamp_seconds(id) AS ts")
        rows.write.mode("append").parquet(str(tmp_path / "in"))

    def arrived():
        files = spark.readStream.schema("id long, ts timestamp").parquet(str(tmp_path / "in"))
        return files.withWatermark("ts", "1 second")

    held = []
    for at in range(3):
        put(at)
        near = dt.window_join(
            {"A": arrived(), "B": arrived()}, on="A.id <= B.id", time="ts", within="2 seconds", how="left"
        )
        query = (
            near.select("A.id", "B.id").toDF("a", "b").writeStream.format("parquet")
            .option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        held.append(dt.metrics(query)["held_rows_A"])
    got = sorted((row.a, row.b) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert got == [(a, b) for a in range(60) for b in range(a, min(a + 3, 60))]
    # The timers have evicted what is older than the window.
    assert max(held) < 20


def test_a_processor_by_frames_travels_by_value(tmp_path):
    """Spark opens it on the driver in a process that nothing was shipped to."""

    def by_value():
        class Doubling:
            def init(self, handle):
                self.handle = handle

            def handleInputRows(self, key, rows, timerValues):  # noqa: N802
                for row in rows:
                    yield Row(a=row["x"] * 2, b=[1, 2] if row["x"] else None)

            def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802
                yield Row(a=key[0], b=None)

            def close(self):
                print("closed", self.handle)

        return Doubling()

    processor = versions.by_frames(by_value(), ["a", "b"])
    (tmp_path / "processor").write_bytes(cloudpickle.dumps(processor))
    script = """
import sys
from pathlib import Path
sys.modules["dovetail"] = None
import pandas as pd
from pyspark import cloudpickle

processor = cloudpickle.loads(Path("processor").read_bytes())
processor.init("handle")
rows = iter([pd.DataFrame({"x": [0, 1]}), pd.DataFrame({"x": [5]})])
for frame in [*processor.handleInputRows((7,), rows, None), *processor.handleExpiredTimer((7,), None, None)]:
    print(frame.to_dict("list"))
processor.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "{'a': [0], 'b': [None]}",
        "{'a': [2], 'b': [[1, 2]]}",
        "{'a': [10], 'b': [[1, 2]]}",
        "{'a': [7], 'b': [None]}",
        "closed handle",
    ]


def test_a_session_without_stateful_streams_says_so(spark, frames_only, monkeypatch):
    """Spark Connect of 4.0 has none."""
    monkeypatch.setattr(versions, "_FRAME_STATE", "not in this version either")
    rate = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.raises(
        SetupError, match=rf"^PySpark {re.escape(pyspark.__version__)} has no stateful streams"
    ) as error:
        dt.window_join({"A": rate, "B": rate}, on="A.value = B.value", time="timestamp", within="5 seconds")
    assert str(error.value).startswith(f"PySpark {pyspark.__version__} has no stateful streams")


def test_every_version_is_pinned_and_in_the_readme():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = [*project["dependencies"], *chain(*project.get("optional-dependencies", {}).values())]
    asked = [line.partition(">=")[2] for line in every if re.match(r"pyspark\b.*>=", line)]
    assert asked
    assert set(asked) == {f"{'.'.join(map(str, package.OLDEST))},<{package.NEWEST[0]}.{package.NEWEST[1] + 1}"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"OTHER_VERSIONS := {' '.join(OTHERS)}\n" in makefile
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pins = {"requirements.txt": "4.3", **{f"requirements/spark-{version}.txt": version for version in OTHERS}}
    for name, version in pins.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"^pyspark=={re.escape(version)}\.\d+$", text, re.MULTILINE), name
        assert "://" not in text
        assert f"| {version} |" in readme


def the_conftest(request):
    return next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "_in_part"))


def test_every_test_is_in_one_part(request):
    conftest = the_conftest(request)
    items = [SimpleNamespace(nodeid=f"tests/test_{n % 7}.py::test_{n}") for n in range(400)]
    parts = [sum(conftest._in_part(item, 4, part) for item in items) for part in range(4)]
    assert sum(parts) == 400
    assert min(parts) > 60
    assert all(sum(conftest._in_part(item, 4, part) for part in range(4)) == 1 for item in items)


@pytest.mark.parametrize(("since", "reason"), [("99.1", "lacks the moon, which came with Spark 99.1"), ("4.0", None)])
def test_what_a_version_lacks_is_the_reason_of_a_skip(request, since, reason):
    item = SimpleNamespace(iter_markers=lambda name: [SimpleNamespace(args=(since, "the moon"))])
    lacking = the_conftest(request)._lacking(item)
    assert lacking == (None if reason is None else f"PySpark {pyspark.__version__} {reason}")


@pytest.mark.parametrize(
    ("version", "uv_says", "said"),
    [
        ("4.0", "error: dns error", "versions: the package index cannot be reached, so Spark 4.0 cannot be installed"),
        ("4.0", "no solution found", "versions: the packages of requirements/spark-4.0.txt could not be installed"),
        ("4.9", "", "versions: there is no requirements/spark-4.9.txt; pinned are: 4.0 4.1 4.2"),
    ],
)
def test_an_environment_that_cannot_be_made_says_why(tmp_path, version, uv_says, said):
    for name in ("scripts/versions.sh", "pyproject.toml", *(f"requirements/spark-{other}.txt" for other in OTHERS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$2" = uv ] || exit 0\necho "{uv_says}" >&2\nexit 1\n', encoding="utf-8")
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(tmp_path / "scripts" / "versions.sh"), version], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith(said)
    # Only where the cause is unknown, the message of uv stands before it.
    assert before == ([uv_says] if "solution" in uv_says else [])
    assert not (tmp_path / "build" / f"spark-{version}" / "dovetail-stamp").exists()
