"""Joins of more rows than their workers may hold: they finish with the right answer, or refuse in words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import inputs

ROOT = Path(__file__).parents[2]


def run(folder: Path, *joins: str, **limits: str) -> list[dict[str, Any]]:
    """How joins end in a session of their own whose workers are limited."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in limits.items()]
    paths = [str(ROOT / "src"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.limited", str(folder), *joins, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"join"')]


def answer(report: dict[str, Any]) -> list[int]:
    """The digest of the results of a join that finished."""
    assert "digest" in report, report.get("failed", report)
    found: list[int] = report["digest"]
    return found


def is_refused_in_words(report: dict[str, Any]) -> bool:
    """Whether the join says that it lacks memory; of a worker that crashed, that memory is the likely cause."""
    said = report.get("failed", "")
    refused = said.startswith("a cell of dovetail(a,b) ") and "accepted:" in said and "hint:" in said
    return refused or ("Python worker exited unexpectedly" in said and "hint: a Python worker died, often" in said)


@pytest.mark.slow
def test_a_key_with_most_rows_is_joined_in_pieces_within_the_limit(tmp_path, spark):
    """One join after the other in the same workers: what one has freed, the next can take.

    `spark` only says that a JVM is needed: the joins run in a session of their own.
    """
    inputs.write(tmp_path, 250_000, 0.9, text=150)
    bands = '{"join": "theta", "sample": false}'
    reports = run(tmp_path, bands, "asof", bands, "asof", memory="800m")
    for theta, asof in (reports[:2], reports[2:]):
        assert answer(theta) == inputs.of_bands(tmp_path, 0.5, keyed=True)
        assert answer(asof) == inputs.of_last(tmp_path)
    for report in reports:
        assert report["metrics"]["split_cells"] == 1
        assert report["metrics"]["spilled_bytes"] > 250_000 * 150
        assert report["address_mib"] <= 800


@pytest.fixture(scope="module")
def millions(tmp_path_factory):
    """Ten million rows, of which one key has nine tenths."""
    folder = tmp_path_factory.mktemp("millions")
    inputs.write(folder, 5_000_000, 0.9)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("join", "oracle"),
    [
        ('{"join": "theta"}', lambda folder: inputs.of_bands(folder, 0.5, keyed=True)),
        ('{"join": "theta", "sample": false}', lambda folder: inputs.of_bands(folder, 0.5, keyed=True)),
        ('{"join": "asof"}', inputs.of_last),
        ('{"join": "window", "within": 1}', lambda folder: inputs.of_bands(folder, 0.5, keyed=True, window=1)),
    ],
    ids=["theta", "theta without a sample", "as-of", "window"],
)
@pytest.mark.parametrize("limit", ["400", "600"])
def test_a_key_with_nine_tenths_of_ten_million_rows(millions, join, oracle, limit, spark):
    """The libraries take half of 400 MiB: there a join may refuse."""
    (report,) = run(millions, join, data_limit=limit)
    assert (limit == "400" and is_refused_in_words(report)) or answer(report) == oracle(millions)


@pytest.mark.slow
def test_best_matches_in_little_memory(millions, tmp_path, spark):
    """Where memory is enough for pieces, every piece meets every other, and 10M rows take an hour."""
    (report,) = run(millions, '{"join": "bestmatch"}', data_limit="400")
    assert is_refused_in_words(report) or answer(report) == inputs.of_nearest(millions)
    inputs.write(tmp_path, 1_000_000, 0.9)
    (report,) = run(tmp_path, '{"join": "bestmatch"}', data_limit="600")
    assert answer(report) == inputs.of_nearest(tmp_path)
    assert report["metrics"]["split_cells"] == 1


@pytest.mark.slow
def test_twenty_million_rows(tmp_path, spark):
    inputs.write(tmp_path, 10_000_000, 0.0)
    (report,) = run(tmp_path, "band", data_limit="400")
    assert is_refused_in_words(report) or answer(report) == inputs.of_bands(tmp_path, 0.5, keyed=False)


@pytest.mark.slow
@pytest.mark.parametrize("join", ['{"join": "theta", "sample": false}', '{"join": "asof"}'], ids=["theta", "as-of"])
def test_a_key_with_nine_tenths_of_twenty_million_rows(tmp_path, join, spark):
    """Here no worker may crash, not even with a hint."""
    inputs.write(tmp_path, 10_000_000, 0.9)
    (report,) = run(tmp_path, join, data_limit="400")
    if "failed" in report:
        assert report["failed"].startswith("a cell of dovetail(a,b) "), report["failed"]
        assert "dovetail.errors.MemoryLimitError" in report["said"]
    else:
        oracle = inputs.of_last(tmp_path) if "asof" in join else inputs.of_bands(tmp_path, 0.5, keyed=True)
        assert answer(report) == oracle


@pytest.mark.slow
def test_a_stream_whose_state_outgrows_its_worker_names_the_key(tmp_path, spark):
    """With such a lateness all rows of a key stay, until they no longer fit beside those that arrive."""
    inputs.write(tmp_path, 8_000_000, 0.9, files=8)
    late = '{"join": "window", "stream": true, "within": "1 second", "lateness": "9000000 seconds"}'
    (report,) = run(tmp_path, late, data_limit="700")
    said = report["failed"]
    assert said.startswith("a cell of dovetail(a,b) "), said
    assert re.search(r"9\d % of them have the key 0", said), said
    assert "hint: a shorter window" in said
    assert "dovetail.errors.MemoryLimitError" in report["said"]
