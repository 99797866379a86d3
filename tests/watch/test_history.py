"""From progress files to the figures of the page: nothing lost, nothing twice, nothing trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.watch import made

from dovetail.watch import files as progress_files
from dovetail.watch.collect import Collector
from dovetail.watch.figures import FIGURES, point_of, together
from dovetail.watch.files import CONTINUED, ProgressFile, files, read_records
from dovetail.watch.histogram import add_spread, merge, packed, quantile, unpacked
from dovetail.watch.history import MOST_POINTS, overview, run_details
from dovetail.watch.records import record_of, tasks_record
from dovetail.watch.store import DAY, HOUR, Store, read_points, reading


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "history.sqlite3")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "state"
    place.mkdir()
    return place


def collected(store, folder):
    collector = Collector(store, folder)
    collector.poll()
    return collector


def seen(store, now=None):
    with reading(store.path) as sql:
        return {run["job"]: run for run in overview(sql, now or time.time())["runs"]}


def details(store, job, seconds=900):
    now = time.time()
    with reading(store.path) as sql:
        return run_details(sql, seen(store)[job]["id"], seconds, now)


class TestReading:
    def test_every_level_adds_up_to_the_records(self, store, folder):
        file = made.steady(folder, batches=200)
        collected(store, folder)
        batches = [record for record in read_records(file) if record["kind"] == "batch"]
        run = seen(store)["steady"]["id"]
        with reading(store.path) as sql:
            for level in (0, 60, 900):
                points = read_points(sql, level, run, 0)
                assert sum(point["rows"] for point in points) == sum(record["rows"] for record in batches)
                assert sum(point["batches"] for point in points) == 200
                # Each has the latencies of as many rows.
                rows = sum(sum(point["latency"].values()) for point in points)
                assert rows == pytest.approx(sum(record["rows"] for record in batches), rel=1e-3)

    def test_a_file_is_read_as_it_grows_and_nothing_twice(self, store, folder):
        now = time.time()
        records = [made.start("grows", began=now - 30)]
        records += [record_of(made.report(at, now - 30 + at, rows=100)) for at in range(30)]
        text = "".join(json.dumps(record) + "\n" for record in records).encode()
        file = folder / "grows.jsonl"
        collector = Collector(store, folder)
        for at in range(0, len(text), 997):
            # Anywhere: in the middle of a line as well.
            with file.open("ab") as opened:
                opened.write(text[at : at + 997])
            collector.poll()
        # Another console on the same history, and this one again.
        collected(store, folder)
        collector.poll()
        assert details(store, "grows")["total"]["rows"] == 3000

    def test_a_run_goes_on_in_a_second_file(self, store, folder, monkeypatch):
        monkeypatch.setattr(progress_files, "PART", 4000)
        now = time.time()
        with ProgressFile("long", "stream", folder=folder, run="0123-abc") as run:
            collector = collected(store, folder)
            for at in range(40):
                run.write(record_of(made.report(at, now - 40 + at, rows=10)))
                collector.poll()
            assert seen(store)["long"]["status"] == "running"
            run.status = "finished"
        collector.poll()
        assert len(files(folder)) == 2
        assert read_records(min(files(folder), key=lambda file: file.stat().st_mtime))[-1]["status"] == CONTINUED
        assert seen(store)["long"]["status"] == "finished"
        assert details(store, "long")["total"]["rows"] == 400

    def test_how_a_run_ended(self, store, folder):
        made.steady(folder, "fails")
        made.write(folder / "fails.jsonl", [{"kind": "end", "status": "failed", "error": "no such table\nat x"}])
        with pytest.raises(ValueError), ProgressFile("raises", "batch", folder=folder):
            raise ValueError("the disk\nis full")
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        made.write(folder / "killed.jsonl", [made.start("killed", began=time.time(), pid=dead.pid)])
        far = {**made.start("elsewhere", began=time.time(), pid=dead.pid), "host": "another"}
        made.write(folder / "elsewhere.jsonl", [far])
        collected(store, folder)
        runs = seen(store)
        assert (runs["fails"]["status"], runs["fails"]["error"]) == ("failed", "no such table")
        assert (runs["raises"]["status"], runs["raises"]["error"]) == ("failed", "the disk")
        assert runs["killed"]["status"] == "gone"
        assert runs["elsewhere"]["status"] == "running"

    def test_a_query_that_fails_again_and_again_hides_no_other(self, store, folder):
        now = time.time()
        for at in range(250):
            began = now - 3000 + 10 * at
            end = {"kind": "end", "status": "failed", "error": f"no disk, {at}", "time": made.iso(began + 5)}
            made.write(folder / f"loops-{at}.jsonl", [made.start("loops", began=began), end])
        made.write(folder / "loops-now.jsonl", [made.start("loops", began=now - 1)])
        # Two of one name may run at once: both are there.
        made.write(folder / "loops-other.jsonl", [made.start("loops", began=now - 2)])
        made.steady(folder, "steady")
        collected(store, folder)
        with reading(store.path) as sql:
            runs = overview(sql, now)["runs"]
        assert sorted((run["job"], run["status"]) for run in runs) == [
            ("loops", "running"), ("loops", "running"), ("steady", "running"),
        ]  # fmt: skip
        newest = max((run for run in runs if run["job"] == "loops"), key=lambda run: run["started"])
        assert (newest["earlier"], newest["earlier_failed"]) == (250, 250)
        others = details(store, "steady")["others"], details(store, "loops")["others"]
        assert others[0] == []
        assert (len(others[1]), others[1][1]["error"]) == (10, "no disk, 249")

    def test_how_far_a_batch_job_is(self, store, folder):
        with ProgressFile("prices", "batch", folder=folder) as run:
            run.write(tasks_record(3, 40))
            collector = collected(store, folder)
            assert seen(store)["prices"]["tasks"] == [3, 40]
            assert details(store, "prices")["run"]["last"] == {"tasks": [3, 40]}
            run.write({"kind": "batch", "batch": 0, "seconds": 2.0, "counters": {"results": 7}})
            run.status = "finished"
        collector.poll()
        found = seen(store)["prices"]
        assert (found["tasks"], found["results"]) == (None, 7)

    def test_a_batch_job_is_there_while_it_runs(self, store, folder):
        with ProgressFile("prices", "batch", folder=folder, plan="theta join") as run:
            collector = collected(store, folder)
            assert seen(store)["prices"]["status"] == "running"
            run.write({"kind": "batch", "batch": 0, "seconds": 2.0, "results": 7, "counters": {"results": 7}})
            run.status = "finished"
        collector.poll()
        found = details(store, "prices")["run"]
        assert (found["status"], found["plan"], found["last"]["counters"]) == ("finished", "theta join", {"results": 7})

    @pytest.mark.parametrize(
        "line",
        [
            "nonsense", "[1, 2]", '"start"', "{}", '{"kind": "batch"}', "[" * 100_000,
            '{"kind": "batch", "seconds": "long", "rows": 1e400, "counters": [], "event": 7, "parts": {"a": "x"}}',
            '{"kind": "batch", "seconds": -1e300, "time": "9999-99-99", "event": {"max": "0001-01-01T00:00:00Z"}}',
            '{"kind": "start", "job": ["x"], "pid": -1, "time": 7, "target": {}}',
            '{"kind": "end", "status": {"a": 1}, "error": ["x"]}',
            '{"kind": "tasks", "done": "x", "total": [1], "time": 5}',
            "\x00\xff" * 50,
        ],
    )  # fmt: skip
    def test_whatever_stands_in_a_file_does_no_harm(self, line, store, folder):
        made.steady(folder, "good")
        (folder / "bad.jsonl").write_bytes(
            json.dumps(made.start("bad", began=time.time())).encode() + b"\n" + line.encode("utf-8", "replace") + b"\n"
        )
        (folder / "worse.jsonl").write_bytes(line.encode("utf-8", "replace") + b"\n")
        collected(store, folder)
        assert details(store, "good")["total"]["batches"] == 60
        for run in seen(store).values():
            with reading(store.path) as sql:
                # It must reach the page as JSON.
                json.dumps(run_details(sql, run["id"], 900, time.time()), allow_nan=False)


class TestKeeping:
    def test_old_points_go_level_by_level(self, store, folder):
        now = time.time()
        made.steady(folder, "yesterday", now=now - DAY, batches=120)
        collected(store, folder)
        run = seen(store, now)["yesterday"]["id"]

        def left():
            with reading(store.path) as sql:
                return [len(read_points(sql, level, run, 0)) for level in (0, 60, 900)]

        assert left()[0] == 0
        assert left()[1] >= 2
        store.forget(now + 2 * DAY)
        assert left()[1] == 0
        assert left()[2] >= 1
        store.forget(now + 31 * DAY)
        assert left() == [0, 0, 0]
        assert seen(store, now) == {}

    def test_yesterday_is_there(self, store, folder):
        now = time.time()
        made.steady(folder, "yesterday", now=now - 20 * HOUR, batches=120)
        collected(store, folder)
        found = details(store, "yesterday", 86400)
        assert found["level"] == 60
        assert found["total"]["batches"] == 120

    def test_only_its_owner_reads_it(self, store):
        assert store.path.stat().st_mode & 0o077 == 0

    def test_a_reader_cannot_write(self, store):
        with reading(store.path) as sql, pytest.raises(Exception, match="readonly"):
            sql.execute("DELETE FROM runs")

    def test_a_history_of_another_version_begins_again(self, tmp_path, folder):
        first = Store(tmp_path / "old.sqlite3")
        first._sql.execute("PRAGMA user_version = 99")
        first._sql.execute("DROP TABLE points")
        first.close()
        again = Store(tmp_path / "old.sqlite3")
        made.steady(folder)
        collected(again, folder)
        assert details(again, "steady")["total"]["batches"] == 60
        again.close()


class TestFigures:
    def test_charts_have_few_points_and_the_right_rates(self, store, folder):
        made.steady(folder, batches=880)
        collected(store, folder)
        series = details(store, "steady")["series"]
        assert len(series["time"]) <= MOST_POINTS
        assert all(len(values) == len(series["time"]) for name, values in series.items() if name != "inputs")
        assert min(series["input_rate"][1:]) > 750
        assert max(series["input_rate"][1:]) < 1250
        assert series["inputs"]["held_rows"] == {
            "A": [20_000] * len(series["time"]),
            "B": [12_000] * len(series["time"]),
        }

    def test_a_chart_has_no_peak_where_it_begins_or_ends(self, store, folder):
        """The first point has no predecessor, and the last one may be of fewer micro-batches than the others."""
        now, every = time.time(), 2.0
        began = [now - 601 * every + every * at for at in range(601)]
        records = [record_of(made.report(at, one, rows=1000, took=0.1, late_A=10)) for at, one in enumerate(began)]
        made.write(folder / "even.jsonl", [made.start("even", began=began[0]), *records])
        collected(store, folder)
        for seconds in (900, 3600):
            series = details(store, "even", seconds)["series"]
            whole = slice(None) if seconds == 900 else slice(1, -1)
            for name, wanted in (("input_rate", 500.0), ("late", 5.0), ("evicted", 500.0)):
                assert series[name][whole] == pytest.approx([wanted] * len(series[name][whole]), rel=0.05)

    def test_where_the_time_goes_adds_up(self, store, folder):
        made.steady(folder, took=2.0)
        collected(store, folder)
        series = details(store, "steady")["series"]
        parts = [series[name][-1] for name in series if name.startswith("part_")]
        assert sum(parts) == pytest.approx(2.0, rel=1e-3)
        assert series["seconds"][-1] == pytest.approx(2.0)

    def test_latency_is_from_the_event_to_the_end(self, store, folder):
        # The rows of a micro-batch are 0 to 1 s old when it begins, and it takes 2 s.
        made.steady(folder, took=2.0)
        collected(store, folder)
        total = details(store, "steady")["total"]
        assert total["latency_p50"] == pytest.approx(2.5, rel=0.1)
        assert total["latency_p99"] == pytest.approx(3.0, rel=0.1)

    def test_a_throttle_without_rows_means_nothing(self):
        assert point_of({"rows": 0, "throttle": 1.0, "recall": 1.0}, now=1.0)["throttle"] is None
        assert point_of({"rows": 5, "throttle": 0.5, "recall": 0.9}, now=1.0)["throttle"] == 0.5

    @given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(1, 11))
    def test_any_cut_into_parts_gives_the_same_point(self, rows, cut):
        points = [
            point_of(record_of(made.report(at, 1e9 + at, rows=count, throttle=1 / (1 + at), recall=0.5)), now=0)
            for at, count in enumerate(rows)
        ]
        whole = together(list(points))
        parts = [part for part in (points[:cut], points[cut:]) if part]
        again = together([together(part) for part in parts])
        for name in FIGURES:
            assert again[name] == pytest.approx(whole[name]) if whole[name] is not None else again[name] is None
        assert again["inputs"] == whole["inputs"]
        assert set(again["latency"]) == set(whole["latency"])


class TestHistogram:
    @given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0, 1))
    def test_rows_and_mean_are_kept(self, low, width, part):
        mean = low + part * width
        histogram = {}
        add_spread(histogram, 100, low, mean, low + width)
        assert sum(histogram.values()) == pytest.approx(100)
        assert 0.8 * low <= quantile(histogram, 0.0) <= quantile(histogram, 1.0) <= 1.21 * (low + width)
        assert unpacked(packed(histogram)).keys() == histogram.keys()

    def test_many_of_them_are_close_to_the_rows_themselves(self):
        latencies = sorted(1000 + 37 * at % 4000 for at in range(4000))
        batches = [latencies[at : at + 100] for at in range(0, 4000, 100)]
        several = []
        for batch in batches:
            several.append({})
            add_spread(several[-1], len(batch), batch[0], sum(batch) / len(batch), batch[-1])
        total = merge(several)
        for part in (0.5, 0.95, 0.99):
            assert quantile(total, part) == pytest.approx(latencies[int(part * 4000)], rel=0.1)


def test_live_files_stay(folder, monkeypatch):
    monkeypatch.setattr(progress_files, "_KEPT", 2)
    for number, pid in enumerate([os.getpid(), 2**30, 2**30, 2**30, 2**30]):
        made.write(folder / f"{number}.jsonl", [made.start(str(number), began=1.0, pid=pid)])
        os.utime(folder / f"{number}.jsonl", (number, number))
    with ProgressFile("new", "batch", folder=folder):
        assert sorted(file.stem[0] for file in files(folder)) == ["0", "3", "4", "n"]
