"""The comparison that `dovetail bench` runs by itself."""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest
from rich.console import Console

from dovetail.command import bench
from dovetail.errors import ArgumentError, DovetailError


def printed(action) -> str:
    console = Console(width=120, record=True, quiet=False)
    action(console)
    return console.export_text()


def test_compares_with_sparks_own_join(spark, monkeypatch, tmp_path):
    @contextmanager
    def session(app, log, *, conf=None):
        yield spark

    monkeypatch.setattr("dovetail.spark.runtime.quiet.quiet_session", session)
    text = printed(lambda console: bench.compare(console, 1000, tmp_path / "log"))
    # A tolerance of 1 gives about two matches a row.
    found = {
        int(rows.replace(",", "")): int(n.replace(",", ""))
        for rows, n in re.findall(r"([\d,]+) x [\d,]+ +([\d,]+)", text)
    }
    assert found.keys() == {1000}
    assert all(1.5 * rows < results < 2.5 * rows for rows, results in found.items())


def test_finds_the_benchmarks_of_the_checkout(monkeypatch, tmp_path):
    folder = bench.checkout()
    assert folder is not None
    assert (folder / "theta.py").is_file()
    with pytest.raises(ArgumentError, match=r"did you mean .theta."):
        bench.run(Console(quiet=True), ["thetaa"], 1000, tmp_path / "log")


def test_a_benchmark_that_fails(monkeypatch, tmp_path):
    (tmp_path / "good.py").write_text("print('fine')", encoding="utf-8")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.setattr(bench, "checkout", lambda: tmp_path)
    bench.run(Console(quiet=True), ["good"], 1000, tmp_path / "log")
    with pytest.raises(DovetailError, match=r"bad.py ended with exit code 3"):
        bench.run(Console(quiet=True), ["good", "bad"], 1000, tmp_path / "log")


def test_without_a_checkout_names_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "checkout", lambda: None)
    with pytest.raises(ArgumentError, match="clone the repository"):
        bench.run(Console(quiet=True), ["theta"], 1000, tmp_path / "log")
