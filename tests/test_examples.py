"""The programs in examples/ run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dovetail.datasets import meetings_and_repairs

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def overlaps(meetings: int) -> tuple[int, int]:
    """How many pairs overlap, and how many meetings have none, by comparing every pair."""
    planned, repairs = (
        table.to_pylist() for table in meetings_and_repairs(meetings, meetings // 20, rooms=meetings // 50)
    )
    pairs = alone = 0
    for m in planned:
        hits = sum(
            m["start"] is not None and m["room"] == r["room"] and m["start"] < r["end"] and r["start"] < m["end"]
            for r in repairs
        )
        pairs += hits
        alone += not hits
    return pairs, alone


@pytest.mark.spark
def test_theta_bookings(tmp_path):
    command = [sys.executable, str(EXAMPLES / "theta_bookings.py"), str(tmp_path), "--meetings", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    written = pq.read_table(tmp_path / "disturbed_meetings")
    pairs, alone = overlaps(200)
    assert pairs > 0
    assert alone > 0
    assert (written.num_rows, written["repair"].null_count) == (pairs + alone, alone)
    assert written["disturbed_from"].null_count == alone
    assert f"{pairs + alone} rows" in done.stdout
