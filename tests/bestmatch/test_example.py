"""The weather example runs as it is, and finds what the definition says."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dovetail import reference
from dovetail.datasets import weather_sensors
from dovetail.reference.bestmatch import nearest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "bestmatch_weather.py"


@pytest.mark.spark
def test_weather(tmp_path):
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--sensors", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    temperature, humidity = (table.to_pylist() for table in weather_sensors(6))
    near = [nearest("t", within=timedelta(minutes=10)), nearest("x", within=100.0), nearest("y", within=100.0)]
    found = reference.bestmatch_join({"R": temperature, "S": humidity}, near, "left")
    rain = pq.read_table(tmp_path / "rain")
    assert rain.num_rows == len(found) > 0
    assert f"{len(found)} pairs" in done.stdout
    assert 0 < pq.read_table(tmp_path / "live").num_rows <= len(found)
