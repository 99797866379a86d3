"""Checkpoints that another version of Spark, or of Dovetail, has written: gone on from, or refused by name."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.checkpoints.joins import JOINS, LAST, pairs, run, streams, tables, write_file
from tests.spark.test_checkpoints import restored

import dovetail as dt
from dovetail.checkpoints import FORMAT
from dovetail.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import json, sys
from pathlib import Path
from tests.checkpoints.joins import JOINS, pairs, run, streams, write_file
import dovetail as dt

place = Path(sys.argv[1])
spark = dt.session(master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
for name in "AB":
    write_file(place, name, 0)
for name in JOINS:
    written = run(JOINS[name](streams(spark, place)), place / name, place / name / "out")
    (place / name / "first.json").write_text(json.dumps(pairs(written)))
print(spark.version)
spark.stop()
"""
"""What the other version runs: every join, over the first file of each input."""


def net(rows: list[list[object]]) -> Counter:
    found: Counter = Counter()
    for a, b, change in rows:
        if all(number is None or number < LAST for number in (a, b)):
            found[a, b] += 1 if change == "insert" else -1
    return +found


@pytest.fixture
def _one_partition(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.slow
@pytest.mark.usefixtures("_one_partition")
@pytest.mark.since("4.1", "transformWithState on rows")
@pytest.mark.parametrize("version", ["4.1", "4.2"])
def test_every_join_goes_on_from_the_checkpoint_of_an_older_spark(spark, tmp_path, version):
    """Environments of other versions are those of make versions."""
    python = Path(os.environ.get("DOVETAIL_VERSIONS", ROOT / "build")) / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {python}; make versions SPARK={version} makes it")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    environment.pop("SPARK_HOME", None)
    made = subprocess.run(
        [str(python), "-c", BEGIN, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    assert made.stdout.strip().splitlines()[-1].startswith(version)
    for alias in "AB":
        for number in range(1, 4):
            write_file(tmp_path, alias, number)
    for name, join in JOINS.items():
        dt.check_checkpoint(join(streams(spark, tmp_path)), tmp_path / name / "checkpoint")
        first = json.loads((tmp_path / name / "first.json").read_text())
        second = pairs(run(join(streams(spark, tmp_path)), tmp_path / name, tmp_path / name / "later"))
        assert net([*first, *second]) == net(pairs(join(tables(spark, tmp_path)))), name


@pytest.mark.usefixtures("_one_partition")
@pytest.mark.since("4.1", "transformWithState on rows, whose state is in the kept checkpoints")
def test_the_state_of_a_newer_version_is_refused_by_name(spark, tmp_path, monkeypatch):
    """A version that knows only an older format than that of a kept checkpoint."""
    restored(tmp_path, "theta-rows")
    for alias in "AB":
        write_file(tmp_path, alias, 0)
    frame = JOINS["theta-rows"](streams(spark, tmp_path))
    monkeypatch.setattr("dovetail.checkpoints.FORMAT", FORMAT - 1)
    newer = f"holds state of format {FORMAT}; this version of Dovetail reads format {FORMAT - 1}"
    with pytest.raises(CheckpointError, match=newer):
        dt.check_checkpoint(frame, tmp_path / "theta-rows" / "checkpoint")
    with pytest.raises(CheckpointError, match=newer):
        dt.resume(frame, tmp_path / "theta-rows" / "checkpoint", tmp_path / "resumed")
    assert not (tmp_path / "resumed").exists()
