"""Metrics for Prometheus: what they say, and that the examples use no others."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from tests.watch import made

from dovetail.watch.collect import Collector
from dovetail.watch.exposition import exposition
from dovetail.watch.store import Store, reading

pytest.importorskip("prometheus_client", reason="needs prometheus-client, of the extra watch")
from prometheus_client.parser import text_string_to_metric_families

MONITORING = Path(__file__).resolve().parents[2] / "examples" / "monitoring"
METRIC = re.compile(r"\bdovetail_[a-z_]+")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("state")
    made.steady(folder, "steady", throttle=0.5, recall=0.8, recall_low=0.7, recall_high=0.9)
    made.steady(folder, 'odd "name"\\ with\nlines'.replace("\n", " "))
    made.write(folder / "failed.jsonl", [made.start("failed", began=time.time())])
    made.write(
        folder / "failed.jsonl", [{"kind": "end", "status": "failed", "error": "x", "time": made.iso(time.time())}]
    )
    store = Store(folder / "history.sqlite3")
    Collector(store, folder).poll()
    with reading(store.path) as sql:
        body, kind = exposition(sql, time.time())
    store.close()
    assert kind.startswith("text/plain")
    return body.decode()


@pytest.fixture(scope="module")
def samples(text):
    return {
        (sample.name, sample.labels["query"], *(sample.labels.get(name) for name in ("input", "le"))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_totals_are_those_of_the_records(samples):
    assert samples["dovetail_batches_total", "steady", None, None] == 60
    rows = sum(round(1000 + 200 * math.sin(at / 9)) for at in range(60))
    assert samples["dovetail_input_rows_total", "steady", None, None] == rows
    assert samples["dovetail_kernel_seconds_total", "steady", None, None] == pytest.approx(6.0)
    assert samples["dovetail_batch_duration_seconds_sum", "steady", None, None] == pytest.approx(24.0)


def test_gauges_and_states(samples):
    assert samples["dovetail_state_rows", "steady", "A", None] == 20_000
    assert samples["dovetail_throttle_ratio", "steady", None, None] == pytest.approx(0.5)
    assert samples["dovetail_event_lag_seconds", "steady", None, None] == pytest.approx(5.0)
    assert samples["dovetail_query_running", "steady", None, None] == 1
    assert samples["dovetail_query_failed", "failed", None, None] == 1
    assert samples["dovetail_query_running", "failed", None, None] == 0


def test_a_query_that_fails_again_and_again_has_few_series(tmp_path):
    now = time.time()
    for at in range(30):
        end = {"kind": "end", "status": "failed", "error": "x", "time": made.iso(now - 300 + 10 * at)}
        made.write(tmp_path / f"loops-{at}.jsonl", [made.start("loops", began=now - 305 + 10 * at), end])
    store = Store(tmp_path / "history.sqlite3")
    Collector(store, tmp_path).poll()
    with reading(store.path) as sql:
        body, _ = exposition(sql, now)
    store.close()
    failed = [line for line in body.decode().splitlines() if line.startswith("dovetail_query_failed{")]
    assert len(failed) == 5
    assert all(line.endswith(" 1.0") for line in failed)


def test_histograms_only_rise(text):
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            counts: dict[str, list[float]] = {}
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    counts.setdefault(sample.labels["query"], []).append(sample.value)
            assert counts
            assert all(values == sorted(values) for values in counts.values())


def test_names_follow_the_conventions(text):
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("dovetail_")
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples)
        assert not re.search(r"_(ms|millis|percent|mb)\b", family.name)


def exposed(text):
    names = set()
    for family in text_string_to_metric_families(text):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def test_the_alerts_use_metrics_that_exist(text):
    rules = [
        rule
        for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    assert len(rules) >= 6
    used = {name for rule in rules for name in METRIC.findall(rule["expr"])}
    assert used
    assert used <= exposed(text)
    for rule in rules:
        assert set(rule) >= {"alert", "expr", "labels", "annotations"}
        assert METRIC.search(rule["expr"]), rule["alert"]


def test_the_dashboard_uses_metrics_that_exist(text):
    dashboard = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert len(asked) > 10
    for expression in asked:
        used = set(METRIC.findall(expression))
        assert used, expression
        assert used <= exposed(text), expression
    # Nothing is left to the place where it was made.
    assert dashboard["id"] is None
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_without_the_package_it_says_what_to_install(tmp_path):
    code = (
        "import sys, time\nsys.modules['prometheus_client'] = None\n"
        "from pathlib import Path\nfrom dovetail.watch.store import Store, reading\n"
        "from dovetail.watch.exposition import exposition\n"
        f"store = Store(Path({str(tmp_path / 'h')!r}))\n"
        "with reading(store.path) as sql:\n    exposition(sql, time.time())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "dovetail-spark[watch]"' in done.stderr
