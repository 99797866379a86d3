"""The generated tables: the same for the same seed, and as their descriptions say."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import datasets
from dovetail.errors import ArgumentError

MAKERS = {
    "phones": datasets.phones_and_laptops,
    "meetings": datasets.meetings_and_repairs,
    "sensors": datasets.sensor_readings,
    "prices": lambda seed=7: [table for pair in datasets.price_streams(3, 20, seed=seed) for table in pair],
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_seed_decides(name):
    make = MAKERS[name]
    assert list(make()) == list(make())
    assert list(make(seed=1)) != list(make(seed=2))


@given(meetings=st.integers(1, 300), repairs=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_intervals_start_before_they_end(meetings, repairs, seed):
    for table in datasets.meetings_and_repairs(meetings, repairs, seed=seed):
        assert pc.all(pc.less(table["start"], table["end"])).as_py() is not False
        assert table["start"].is_null().equals(table["end"].is_null())


def test_offers_follow_each_other_in_time():
    latest = None
    for pair in datasets.price_streams(4, 50):
        first = min(pc.min(table["ts"]).as_py() for table in pair)
        assert latest is None or first >= latest
        latest = max(pc.max(table["ts"]).as_py() for table in pair)
    assert latest is not None
    assert latest > datasets.START


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, "10"])
def test_a_size_that_is_none(rows):
    with pytest.raises(ArgumentError, match=r"rows="):
        datasets.sensor_readings(rows)


def test_needs_no_spark():
    code = "import sys, dovetail.datasets; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
