"""Progress files and what `dovetail top` shows of them."""

from __future__ import annotations

import json
import os
import stat
from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dovetail.command.cli import app
from dovetail.command.view import batch_line, run_view
from dovetail.watch.files import ProgressFile, files, follow, is_running, read_records
from dovetail.watch.records import record_of

run = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}).invoke

# As Spark reported it for a window join of two streams; a field that nothing reads is left out.
RECORDED = {
    "batchId": 7,
    "timestamp": "2026-03-02T00:01:00.000Z",
    "numInputRows": 1200,
    "inputRowsPerSecond": 400.0,
    "processedRowsPerSecond": 2400.0,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "eventTime": {"max": "2026-03-02T00:00:59.000Z", "watermark": "2026-03-02T00:00:54.000Z"},
    "sources": [{"description": "FileStreamSource", "metrics": {}}],
    "observedMetrics": {
        "dovetail(A,B)": {
            "rows": 1200, "results": 321, "held_rows_A": 40, "held_rows_B": 2, "state_bytes_A": 4096,
            "state_bytes_B": 64, "late_A": 1, "late_B": 3, "evicted_A": 500, "evicted_B": 600,
        }
    },
}  # fmt: skip
SHED = {**RECORDED, "observedMetrics": {"j": {"results": 5, "throttle": 0.25, "recall": 0.5}}}


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def shown(records, **options) -> str:
    console = Console(width=160, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    console.print(run_view(records, **options))
    console.file.close()
    return console.export_text()


class TestRecord:
    def test_adds_up_what_inputs_count(self):
        record = record_of(RECORDED)
        assert (record["batch"], record["rows"], record["results"]) == (7, 1200, 321)
        assert (record["held_rows"], record["held_bytes"], record["late"], record["evicted"]) == (42, 4160, 4, 1100)
        assert (record["lag"], record["seconds"]) == (5.0, 0.5)
        assert "throttle" not in record

    def test_of_spark_connect_is_the_same(self):
        """As Spark 4.3 spells it there: values apart from their names, and no totals over the sources."""
        (counters,) = RECORDED["observedMetrics"].values()
        fields = [{"name": name, "type": "long", "nullable": False, "metadata": {}} for name in counters]
        sources = [{"numInputRows": rows, "inputRowsPerSecond": 200.0, "metrics": {}} for rows in (1000, 200)]
        totals = ("numInputRows", "inputRowsPerSecond")
        connect = {
            **{key: value for key, value in RECORDED.items() if key not in totals},
            "sources": sources,
            "observedMetrics": {
                "dovetail(A,B)": {"values": list(counters.values()), "schema": {"type": "struct", "fields": fields}}
            },
        }
        assert record_of(connect) == record_of(RECORDED)

    def test_has_what_a_shedding_join_reports(self):
        record = record_of(SHED)
        assert (record["throttle"], record["recall"]) == (0.25, 0.5)

    @pytest.mark.parametrize("spell", [lambda offsets: offsets, json.dumps], ids=["parsed", "text"])
    def test_of_kafka_knows_how_many_rows_are_unread(self, spell):
        """Kafka's source reports the average of its partitions."""
        kafka = {"metrics": {"avgOffsetsBehindLatest": "12.5"}, "latestOffset": spell({"a": {"0": 40, "1": 10}})}
        other = {"metrics": {"avgOffsetsBehindLatest": "4.0"}, "latestOffset": spell({"b": {"0": 7}})}
        report = {**RECORDED, "sources": [kafka, other, {"metrics": None, "endOffset": 5}]}
        assert record_of(report)["behind"] == 2 * 12.5 + 4

    @pytest.mark.parametrize("said", ["NaN", "many", None])
    def test_of_kafka_may_not_know_it(self, said):
        report = {**RECORDED, "sources": [{"metrics": {"avgOffsetsBehindLatest": said}, "latestOffset": "{"}]}
        assert record_of(report)["behind"] is None

    @pytest.mark.parametrize(
        "report",
        [
            {},
            {"batchId": 0, "observedMetrics": None, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}},
            {"inputRowsPerSecond": float("inf"), "processedRowsPerSecond": "NaN"},
        ],
    )
    def test_of_a_first_or_empty_report(self, report):
        record = record_of(report)
        assert (record["lag"], record["results"], record["arrived_per_second"]) == (None, None, None)
        json.dumps(record)


class TestFile:
    def test_is_private(self, state):
        with ProgressFile("a job/with: signs", "stream") as file:
            assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
            assert stat.S_IMODE(state.stat().st_mode) == 0o700
            assert file.path.parent == state

    def test_runs_until_its_end(self, state):
        with ProgressFile("cameras", "stream") as file:
            file.write(record_of(RECORDED))
            assert is_running(read_records(file.path))
            file.status = "finished"
        records = read_records(file.path)
        assert [record["kind"] for record in records] == ["start", "batch", "end"]
        assert records[-1]["status"] == "finished"
        assert not is_running(records)
        assert list(follow(file.path, 0.01)) == [records]

    def test_of_a_run_that_broke_off_says_failed(self, state):
        with pytest.raises(RuntimeError), ProgressFile("cameras", "stream") as file:
            raise RuntimeError
        assert read_records(file.path)[-1]["status"] == "failed"

    def test_of_an_interrupted_run_says_stopped(self, state):
        with pytest.raises(KeyboardInterrupt), ProgressFile("cameras", "batch") as file:
            raise KeyboardInterrupt
        assert read_records(file.path)[-1]["status"] == "stopped"

    def test_of_a_killed_process_does_not_run(self):
        assert not is_running([{"kind": "start", "pid": 2**22 + 1}])

    def test_half_a_line_is_left_out(self, tmp_path):
        file = tmp_path / "x.jsonl"
        file.write_text('{"kind": "start"}\n{"kind": "ba', encoding="utf-8")
        assert read_records(file) == [{"kind": "start"}]

    def test_old_ones_go(self, state):
        state.mkdir()
        for number in range(210):
            path = state / f"old-{number}.jsonl"
            path.write_text("", encoding="utf-8")
            os.utime(path, (number, number))
        with ProgressFile("new", "batch"):
            assert len(files()) == 201
            assert not (state / "old-3.jsonl").exists()


class TestView:
    def test_shows_rates_state_and_results(self):
        text = shown(
            [{"kind": "start", "job": "cameras", "mode": "stream", "pid": 1}, record_of(RECORDED)], running=True
        )
        for words in ("cameras", "running", "2,400", "1,200", "321", "42", "4,160", "lag"):
            assert words in text
        # This run sheds nothing, so nothing is said of it.
        assert "throttle" not in text

    def test_shows_throttle_and_recall_of_a_shedding_join(self):
        text = shown([record_of(SHED)], running=False)
        assert "throttle" in text
        assert "0.25" in text
        assert "recall" in text

    def test_before_the_first_micro_batch(self):
        assert "no micro-batch" in shown([{"kind": "start", "job": "x"}], running=True)

    def test_markup_in_a_name_is_text(self):
        assert "[bold]x" in shown([{"kind": "start", "job": "[bold]x"}], running=True)

    @pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (72, 20)])
    @pytest.mark.parametrize("counters", [{}, {"throttle": 0.25, "recall": 0.5}])
    def test_fits_the_terminal_and_cuts_no_figure(self, width, height, counters):
        observed = {"j": {**RECORDED["observedMetrics"]["dovetail(A,B)"], **counters}}
        batches = [record_of({**RECORDED, "batchId": at, "observedMetrics": observed}) for at in range(40)]
        console = Console(width=width, height=height, file=StringIO())
        view = run_view([{"kind": "start", "job": "cameras"}, *batches], running=True, height=height)
        console.print(view)
        lines = console.file.getvalue().splitlines()
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        for words in ("rows a second", "2,400", "4,160", "evicted", "1,100", "seconds", "\n    39 ", *counters):
            assert words in text

    def test_says_that_it_stops(self):
        assert "stopping" in shown([record_of(RECORDED)], running=True, status="stopping")

    def test_one_line(self):
        line = batch_line(record_of(RECORDED))
        assert line == "batch 7, 1,200 rows in, 321 results, 42 held, 4 late, 1,100 evicted, 0.50 s"


class TestTop:
    def test_takes_the_run_that_goes_on(self, state):
        with ProgressFile("runs", "stream") as going:
            going.write(record_of(RECORDED))
            with ProgressFile("over", "stream"):
                pass
            done = run(app, ["top", "--once"])
        assert done.exit_code == 0
        assert "runs" in done.output
        assert "321" in done.output

    def test_takes_a_job_or_a_file(self, state):
        for name in ("one", "two"):
            with ProgressFile(name, "stream") as file:
                pass
        assert "one" in run(app, ["top", "one"]).output
        assert "two" in run(app, ["top", str(file.path)]).output

    def test_without_any_run(self, state):
        done = run(app, ["top"])
        assert done.exit_code == 2
        assert "dovetail run" in done.output

    def test_a_name_that_is_none(self, state):
        with ProgressFile("cameras", "stream"):
            pass
        done = run(app, ["top", "camera"])
        assert done.exit_code == 2
        assert "did you mean 'cameras'?" in done.output

    @pytest.mark.parametrize(
        "content",
        [
            b"name: cameras\nmode: stream\n", b"\x7fELF\xff\xfe\x00\n", b"", b"\n\n", b"[1, 2]\n", b'"text"\n', b"{}\n",
            b'{"kind": "batch", "batch": 1}\n', b"[" * 100_000 + b"\n",
        ],
        ids=lambda content: content[:8],
    )  # fmt: skip
    def test_a_file_that_is_no_progress_file(self, content, state, tmp_path):
        file = tmp_path / "job.yaml"
        file.write_bytes(content)
        done = run(app, ["top", str(file)])
        assert done.exit_code == 2
        assert f"{file} is not a progress file" in done.output
        assert isinstance(done.exception, SystemExit), done.exception

    def test_records_of_somebody_else(self, tmp_path):
        """Odd values are shown or left out; no one of them ends the view."""
        file = tmp_path / "x.jsonl"
        odd = '{"kind": "batch", "rows": "many", "lag": NaN, "results": [1], "seconds": {}, "held_rows": 1e999}'
        file.write_text(f'{{"kind": "start", "pid": "me", "job": 5}}\n{odd}\n', encoding="utf-8")
        done = run(app, ["top", str(file)])
        assert (done.exit_code, done.exception) == (0, None)
        assert "many" in done.output

    def test_a_strange_file_among_the_runs_is_passed_over(self, state):
        with ProgressFile("cameras", "stream"):
            pass
        (state / "notes.jsonl").write_text("not JSON\n", encoding="utf-8")
        done = run(app, ["top"])
        assert (done.exit_code, "cameras" in done.output) == (0, True)
