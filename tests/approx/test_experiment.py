"""The experiments of the paper: verdicts that can fail, and that are the same in every run."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dovetail.reference.approx import divergence

FOLDER = Path(__file__).parents[2] / "experiments"
MODULES = ("reproduce", "data", "measure", "claims")


@pytest.fixture
def modules(monkeypatch):
    """The modules of the experiment, which find each other by their bare names."""
    for folder in (FOLDER, FOLDER / "approx"):
        monkeypatch.syspath_prepend(str(folder))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {name: importlib.import_module(name) for name in MODULES}
    yield found
    for name in MODULES:
        sys.modules.pop(name, None)


def test_a_claim_that_depends_on_the_reading_is_undecided(modules):
    claim = modules["reproduce"].Claim
    assert claim("F", "c", "o", True).verdict == "holds"
    assert claim("F", "c", "o", False, readings={"x": False}).verdict == "does not hold"
    assert claim("F", "c", "o", True, readings={"x": False, "y": True}).verdict == "undecided: holds, but not if x"
    assert claim("F", "c", "o", False, readings={"x": True}).verdict == "undecided: holds only if x"
    said = modules["reproduce"].summary([claim("F", "c", "o", held, readings={"x": True}) for held in (True, False)])
    assert said == "1 of 2 hold, 0 do not, 1 are undecided."


def test_the_divergence_is_that_of_the_definition(modules):
    random = np.random.default_rng(1)
    complete, found = random.integers(0, 9, (2, 20, 6))
    complete[0], found[1] = 0, 0
    got = modules["measure"]._divergences(complete, found)
    assert got[0] == 0.0 or np.isfinite(got[0])
    assert np.isnan(got[1])
    for at in range(2, 20):
        p, q = (dict(enumerate(part[at].tolist())) for part in (complete, found))
        assert got[at] == pytest.approx(divergence(p, q), abs=1e-12)


def _made(measure, courses):
    """Outcomes whose results of two values go as `courses` say, by label; the complete join has them half and half."""
    whole = np.full((100, 2), 50)
    return {
        label: measure.Outcome(np.stack([course, 100 - course], axis=1).astype(np.int64), whole, 0)
        for label, course in courses.items()
    }


def test_a_course_is_judged_from_the_first_row(modules):
    measure, claims = modules["measure"], modules["claims"]
    level, away, rise = np.full(100, 50), np.linspace(50, 90, 100), np.full(100, 50)
    rise[5:10], rise[10:15] = 95, 5
    courses = {
        label: (away if label.split(",")[0] in measure.QUANTITY else rise) for label in measure.SETUPS
    }  # fmt: skip
    grows, falls, higher = claims.over_time("F", _made(measure, courses), rises_first=True)
    assert (grows.holds, falls.holds, higher.holds) == (True, True, True)
    courses["RAJ"] = np.linspace(90, 50, 100)
    falls = claims.over_time("F", _made(measure, courses), rises_first=True)[1]
    assert not falls.holds, "its divergence never rises"
    assert falls.improved
    courses["Prob"] = level
    grows, _, higher = claims.over_time("F", _made(measure, courses), rises_first=False)
    assert (grows.holds, higher.holds) == (False, False)


def _verdicts(out: Path, figures: list[str], scale: float) -> str:
    chosen = [word for figure in figures for word in ("--figure", figure)]
    command = [sys.executable, str(FOLDER / "approx" / "run.py"), *chosen, "--scale", str(scale), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return (out / "claims.md").read_text()


@pytest.mark.slow
def test_two_runs_give_the_same_figures_and_verdicts(tmp_path):
    first, second = (_verdicts(tmp_path / name, ["4", "8", "9", "options"], 0.05) for name in ("a", "b"))
    assert first == second
    assert "undecided" in first, "Prob keeps the rare rows of Figure 8 only if it knows the chances"
    for figure in ("figure4", "figure8", "figure9", "options"):
        assert (tmp_path / "a" / f"{figure}.md").read_text() == (tmp_path / "b" / f"{figure}.md").read_text()
