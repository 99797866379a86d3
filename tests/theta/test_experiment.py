"""The experiments of the paper: verdicts that can fail, readings named, and the products of the cluster's workers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dovetail.families.theta.paper.prefap import Values

FOLDER = Path(__file__).parents[2] / "experiments"
MODULES = ("reproduce", "data", "measure", "claims", "workers", "cluster", "distributed", "plots", "figures", "tables")


@pytest.fixture
def modules(monkeypatch):
    """The modules of the experiment, which find each other by their bare names."""
    for folder in (FOLDER, FOLDER / "prefap"):
        monkeypatch.syspath_prepend(str(folder))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


def _summary(modules, label, **columns):
    """A summary with these columns, run by run; all other metrics are 1."""
    runs = max(len(column) for column in columns.values())
    sample = modules["distributed"].Spread if "work_ms" in columns else modules["measure"].Sample
    blank = dict.fromkeys(sample.__dataclass_fields__, 1)
    made = [sample(**{**blank, **{name: column[run] for name, column in columns.items()}}) for run in range(runs)]
    return modules["measure"].Summary(label, tuple(made))


def _found(modules, prefap, ftj, ours=None):
    """Prefap and FTJ as printed with these columns, and a third that does more of everything."""
    more = {name: [value * 9 for value in column] for name, column in ftj.items()}
    printed = [_summary(modules, name, **of) for name, of in (("Prefap", prefap), ("FTJ", ftj), ("CFS", more))]
    own = [_summary(modules, f"{name}, ours", **of) for name, of in (("Prefap", ours or prefap), ("FTJ", ftj))]
    return modules["claims"].Found.of([*printed, *own])


def test_time_is_lower_only_beyond_chance_and_never_by_one_run(modules):
    claims = modules["claims"]
    slow, fast = np.array([10.0, 12.0, 11.0, 13.0, 12.0]), np.array([9.0, 11.2, 10.1, 11.9, 11.1])
    assert claims.significance(fast, slow) < 0.01
    assert claims.significance(slow, fast) > 0.99
    assert claims.significance(fast[:1], slow[:1]) == 1.0, "one run shows nothing"
    assert claims.significance(slow, slow) == 1.0
    assert claims.significance(slow - 1, slow) == 0.0
    noisy = slow + np.array([-3.0, 2.0, -2.0, 3.0, -1.0])
    assert noisy.mean() < slow.mean()
    assert claims.significance(noisy, slow) > 0.05


def test_an_interval_covers_the_differences_it_was_made_of(modules):
    ours = _summary(modules, "a", elapsed_ms=[90.0, 92.0, 88.0])
    other = _summary(modules, "b", elapsed_ms=[100.0, 100.0, 100.0])
    # Mean -10, deviation 2: 4.303 * 2 / sqrt(3) = 4.97 either way.
    assert modules["claims"].interval(ours, other, "elapsed_ms") == "-10.0 %, 95 % interval -15.0 to -5.0"


def test_an_interval_of_elapsed_time_forgets_a_minute_that_was_not_ours(modules):
    interval = modules["claims"].middle_interval
    other = _summary(modules, "b", elapsed_ms=[100.0] * 8)
    ours = _summary(modules, "a", elapsed_ms=[90.0, 91.0, 92.0, 93.0, 94.0, 95.0, 96.0, 60_000.0])
    # Of 8 differences the outermost enclose the median in 99 % of all cases, the next in 93 % only.
    assert interval(ours, other, "elapsed_ms") == "-6 %, 95 % interval -10 to +59900"
    nine = _summary(modules, "a", elapsed_ms=[89.0, 90.0, 91.0, 92.0, 93.0, 94.0, 95.0, 96.0, 60_000.0])
    assert interval(nine, _summary(modules, "b", elapsed_ms=[100.0] * 9), "elapsed_ms").endswith("-10 to -4")
    assert interval(ours, ours, "elapsed_ms").startswith("+0 %")
    few = [_summary(modules, name, elapsed_ms=[1.0, 2.0]) for name in "ab"]
    assert interval(*few, "elapsed_ms") == "+0 %", "two runs have no such interval"


def test_the_least_time_is_judged_in_the_workers_and_read_in_one_thread(modules):
    claims = modules["claims"]
    runs = [1.0, 1.1, 1.2, 1.05]
    more = [value * 1.5 for value in runs]
    quick, slow = {"elapsed_ms": runs}, {"elapsed_ms": more}

    def spread(ours, ftj):
        return [_summary(modules, name, work_ms=of) for name, of in (("Prefap", ours), ("FTJ", ftj), ("CFS", ftj))]

    def verdict(alone, workers):
        return claims.shortest_elapsed("F", _found(modules, *alone), spread(*workers)).verdict

    assert verdict((quick, slow), (runs, more)) == "holds"
    assert verdict((slow, quick), (more, runs)) == "does not hold"
    assert verdict((slow, quick), (runs, more)) == f"undecided: holds, but not if {claims.ONE_THREAD}"
    assert verdict((quick, slow), (runs, runs)) == f"undecided: holds only if {claims.ONE_THREAD}"


def test_the_full_version_is_judged_in_the_workers_too(modules):
    claims = modules["claims"]
    runs, more = [1.0, 1.1, 1.2, 1.05], [1.5, 1.7, 1.8, 1.6]
    alone = [_summary(modules, name, elapsed_ms=of) for name, of in (("full", more), ("less", runs))]
    spread = [_summary(modules, name, work_ms=of) for name, of in (("full", runs), ("less", more))]
    assert claims.ablation_elapsed("T", alone, spread).verdict == f"undecided: holds, but not if {claims.ONE_THREAD}"
    assert claims.ablation_elapsed("T", alone, spread[::-1]).verdict == "does not hold"
    assert claims.ablation_elapsed("T", alone[::-1], spread).verdict == "holds"


def test_balance_that_depends_on_who_gets_what_is_undecided(modules):
    claims = modules["claims"]
    good, bad = [1.1, 1.2, 1.15], [1.4, 1.6, 1.5]
    spread = [
        _summary(modules, name, work_ms=good, ratio_in=of, ratio_out=of) for name, of in (("P", good), ("F", bad))
    ]
    same = {"ratio_in": good, "dealt_in": good, "ratio_out": good, "dealt_out": bad}
    other = {"ratio_in": bad, "dealt_in": bad, "ratio_out": bad, "dealt_out": good}
    into, out = claims.better_balance("F", _found(modules, same, other), spread)
    assert into.verdict == "holds"
    assert out.verdict == f"undecided: holds, but not if {claims.IN_TURN}"
    into, _ = claims.better_balance("F", _found(modules, same, other), spread[::-1])
    assert into.verdict == f"undecided: holds, but not if {claims.BY_SPARK}"


def test_readings_against_the_text_decide_nothing_alone(modules):
    near = modules["claims"].near
    assert near("F", "c", 30.0, {"p = 10": 29.5, "p = 5": 3.0}, 1.0, 3.0).verdict == "holds"
    assert near("F", "c", 30.0, {"p = 10": 3.0, "p = 5": 29.5}, 1.0, 3.0).verdict == "undecided: holds only if p = 5"
    lost = near("F", "c", 30.0, {"p = 10": 3.0, "p = 5": 4.0}, 1.0, 30.5)
    assert lost.verdict == "does not hold"
    assert lost.improved, "with spans that are not rounded"


def test_what_holds_under_a_reading_sought_for_it_is_undecided(modules):
    ablation = modules["claims"].ablation
    printed, plain, sought = (100, 101, 117, 130), (100, 99, 104, 104), (1000, 1011, 1169, 1302)
    chosen = {"each partition has a join": sought}
    counts, rises, order = ablation("T", plain, printed, how="text", readings=chosen, ours=plain)
    assert counts.verdict == "does not hold"
    assert rises.verdict == order.verdict == "undecided: holds only if each partition has a join"
    counts, rises, order = ablation(
        "T", printed, printed, how="p = 5", readings={"p = 10": plain}, ours=printed, identified=True
    )
    assert (counts.verdict, rises.verdict) == ("holds", "holds"), "the counts say themselves what was run"
    assert order.verdict == "undecided: holds, but not if p = 10", "of other parameters they say nothing"


@pytest.mark.in_turns
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("algorithm", ["prefap", "ftj", "cfs", "obt", "rbm"])
def test_the_workers_find_the_pairs_of_the_definition(modules, op, algorithm):
    distributed, measure, workers = (modules[name] for name in ("distributed", "measure", "workers"))
    random = np.random.default_rng(3)
    r, s = Values.of(random.integers(0, 40, 60)), Values.of(random.integers(10, 50, 50))
    found = measure.Variant("", algorithm).layout(r, s, op, 4, 50)
    sent = distributed._pairs(r, s, found, 3)
    assert sent.table.num_rows == 3, "a row is a task"
    theta = workers.COMPARISONS[op]
    got, compared = [], 0
    for task in sent.table.to_pylist():
        for pair, left, right in zip(task["pair"], task["r"], task["s"], strict=True):
            compared += len(left) * len(right)
            matches = workers.compare([Decimal(x) for x in left], [Decimal(y) for y in right], theta)
            got.append({"pair": pair, "found": np.array(matches, np.int64).tobytes()})
    i, j, _ = distributed._matches(pa.Table.from_pylist(got), sent)
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[op]
    wanted = np.argwhere(compare(r.codes[:, None], s.codes[None, :])).tolist()
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == [tuple(pair) for pair in wanted]
    assert compared == found.products


@pytest.mark.parametrize("name", ["Prefap", "the full version"])
def test_the_table_of_the_workers_has_every_version(modules, name):
    runs, more = [1.0, 1.1, 1.2, 1.05], [1.5, 1.7, 1.8, 1.6]
    found = [_summary(modules, label, work_ms=of) for label, of in (("a", runs), ("b", more))]
    spreads = modules["figures"].Spreads(found, found[0], "2 x 2 rows")
    head, _, *rows = modules["figures"].spread_rows(spreads, name).splitlines()
    assert f"{name} against it |" in head
    assert [row.count("|") for row in (head, *rows[:2])] == [11, 11, 11]
    assert "(+50.0 %)" in modules["tables"]._ablation_rows(found, spreads, (1, 1), (2.0, 3.0))


def test_the_load_of_workers_without_a_task_counts(modules):
    ratio = modules["distributed"]._ratio
    assert ratio(np.array([7, 7, 9]), np.array([1, 1, 2])) == 2.0, "two of four did all"
    assert ratio(np.array([1, 2, 3, 4]), np.array([5, 5, 5, 5])) == 1.0
    assert ratio(np.array([], np.int64), np.array([], np.int64)) == 1.0


def test_printed_spans_are_not_ours(modules):
    measure = modules["measure"]
    r, s = Values.of(np.linspace(0, 1, 200)), Values.of(np.linspace(0, 1, 200))
    printed, ours = (variant.layout(r, s, "<", 2, 40).products for variant in (measure.RIVALS[0], measure.OURS[0]))
    assert printed > ours


@pytest.mark.cluster
def test_two_runs_give_the_same_verdicts_on_counts(tmp_path):
    """Through the cluster as well: the counts of Figure 5, and its verdicts, do not depend on the run."""
    made = []
    for name in ("a", "b"):
        command = [sys.executable, str(FOLDER / "prefap" / "run.py"), "--figure", "5", "--runs", "2"]
        subprocess.run([*command, "--out", str(tmp_path / name)], check=True, capture_output=True, timeout=900)
        made.append(json.loads((tmp_path / name / "5.json").read_text()))
    on_counts = [[claim for claim in report["claims"] if "products" in claim["claim"].lower()] for report in made]
    assert len(on_counts[0]) == 2
    assert on_counts[0] == on_counts[1]
    workers = [report["tables"][1].splitlines() for report in made]
    assert [line.split("|")[1:3] for line in workers[0][2:7]] == [line.split("|")[1:3] for line in workers[1][2:7]]
    assert "four workers" in made[0]["claims"][2]["ours"]
