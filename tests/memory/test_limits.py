"""Joins of more rows than their workers may hold: they finish with the right answer, or refuse in words."""

from __future__ import annotations

import json
import os
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


def is_refused_in_words(report: dict[str, Any]) -> bool:
    """Whether the join says that it lacks memory; of a worker that crashed, that memory is the likely cause."""
    said = report.get("failed", "")
    refused = said.startswith("a cell of dovetail(a,b) ") and "accepted:" in said and "hint:" in said
    return refused or ("Python worker exited unexpectedly" in said and "hint: a Python worker died, often" in said)


@pytest.mark.slow
def test_a_key_with_most_rows_is_joined_in_pieces_within_the_limit(tmp_path, spark):
    """`spark` only says that a JVM is needed: the joins run in a session of their own."""
    inputs.write(tmp_path, 250_000, 0.9, text=150)
    theta, asof = run(tmp_path, '{"join": "theta", "sample": false}', "asof", memory="800m")
    assert theta["digest"] == inputs.of_bands(tmp_path, 0.5, keyed=True)
    assert asof["digest"] == inputs.of_last(tmp_path)
    for report in (theta, asof):
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
        ('{"join": "bestmatch"}', inputs.of_nearest),
    ],
    ids=["theta", "theta without a sample", "as-of", "window", "best match"],
)
@pytest.mark.parametrize("limit", ["400", "600"])
def test_a_key_with_nine_tenths_of_ten_million_rows(millions, join, oracle, limit, spark):
    """The libraries take half of 400 MiB: there a join may refuse, and a best match may anywhere."""
    (report,) = run(millions, join, data_limit=limit)
    may_refuse = limit == "400" or "bestmatch" in join
    assert (may_refuse and is_refused_in_words(report)) or report["digest"] == oracle(millions)


@pytest.mark.slow
def test_twenty_million_rows(tmp_path, spark):
    inputs.write(tmp_path, 10_000_000, 0.0)
    (report,) = run(tmp_path, "band", data_limit="400")
    assert is_refused_in_words(report) or report["digest"] == inputs.of_bands(tmp_path, 0.5, keyed=False)
