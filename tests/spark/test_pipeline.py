"""The declarative pipeline in examples/ runs with `spark-pipelines`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dovetail.datasets.files import write

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipeline"
COMMAND = Path(sys.executable).with_name("spark-pipelines")


@pytest.mark.since("4.1", "spark-pipelines")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("connect_port")
def test_the_example_makes_its_tables(tmp_path):
    place = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, place)
    write("cameras", place / "data", batches=2, objects=50)
    spec = place / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    assert "file:///tmp/dovetail-pipeline" in text
    spec.write_text(text.replace("file:///tmp/dovetail-pipeline", place.as_uri()), encoding="utf-8")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [str(COMMAND), "run"], cwd=place, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    seen = {name: pq.read_table(place / "data" / name).to_pylist() for name in "ABC"}
    at = {name: {row["obj"]: row for row in rows} for name, rows in seen.items()}
    passed = {obj for obj in at["A"] if obj in at["B"] and obj in at["C"]}
    passages = pq.read_table(place / "spark-warehouse" / "passages")
    assert set(passages["obj"].to_pylist()) == passed
    faster = {obj for obj in at["A"] if obj in at["B"] and 1 <= at["B"][obj]["speed"] - at["A"][obj]["speed"] <= 2}
    pairs = pq.read_table(place / "spark-warehouse" / "fast_pairs")
    assert set(pairs["obj"].to_pylist()) == faster
