"""The pictures, by what is drawn in them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import dovetail as dt
from dovetail.command.report import Report
from dovetail.errors import ArgumentError, SetupError
from dovetail.families.theta.paper.layouts import Values, layout
from dovetail.watch.records import record_of

BATCHES = [
    {"kind": "batch", "batch": at, "rows": 100, "results": at, "seconds": 0.5, "held_rows": 7} for at in range(5)
]


def test_importing_does_not_import_matplotlib():
    code = "import sys, dovetail; dovetail.plot.rates; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_matplotlib_the_message_has_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "dovetail.plots.picture", raising=False)
    with pytest.raises(SetupError, match=r'pip install "dovetail-spark\[plots\]"'):
        dt.plot.rates(BATCHES)


class TestRates:
    def test_are_rows_over_seconds(self):
        left, right = dt.plot.rates(BATCHES).axes
        rows, results = (line.get_ydata().tolist() for line in left.get_lines())
        assert rows == [200.0] * 5
        assert results == [0.0, 2.0, 4.0, 6.0, 8.0]
        assert right.get_ylabel() == "rows held"

    def test_show_the_throttle_of_a_shedding_join(self):
        records = [{**one, "throttle": 0.5, "recall": 0.8} for one in BATCHES]
        (throttle, recall) = dt.plot.rates(records).axes[1].get_lines()
        assert (throttle.get_ydata()[0], recall.get_ydata()[0]) == (0.5, 0.8)

    def test_take_what_a_query_reports(self):
        report = {"batchId": 2, "numInputRows": 10, "durationMs": {"triggerExecution": 1000}}
        line = dt.plot.rates([report]).axes[0].get_lines()[0]
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (2, 10.0)
        assert record_of(report)["rows"] == 10

    def test_of_nothing_are_refused(self):
        with pytest.raises(ArgumentError, match="no micro-batch"):
            dt.plot.rates([{"kind": "start"}])


class TestHarvested:
    def test_is_the_grid(self):
        picture = dt.plot.harvested({"A -> B": [1, 0.5, 0], "B -> A": [0, 0, 0]})
        assert picture.axes[0].get_images()[0].get_array().tolist() == [[1, 0.5, 0], [0, 0, 0]]
        assert picture.axes[0].get_title() == "25% of the windows looked at"

    def test_takes_the_progress_of_a_join_that_sheds(self):
        counters = {"results": 3, "harvest_A_B": [1.0, 0.5], "harvest_B_A": [0.0]}
        reports = [{"batchId": 1, "observedMetrics": {"join": counters}}, {"batchId": 2, "observedMetrics": {}}]
        axis = dt.plot.harvested(reports).axes[0]
        assert [label.get_text() for label in axis.get_yticklabels()] == ["A -> B", "B -> A"]
        grid = axis.get_images()[0].get_array()
        # The second window has one slice only.
        assert grid[0].tolist() == [1.0, 0.5]
        assert np.isnan(grid[1, 1]) or grid.mask[1, 1]
        assert dt.plot.harvested(reports[0]).axes[0].get_title() == "50% of the windows looked at"

    @pytest.mark.parametrize("slices", [{}, {"a": []}, {"a": [1], "b": []}, {"a": [1.5]}, {"a": [-0.1]}])
    def test_refuses_what_is_no_grid(self, slices):
        with pytest.raises(ArgumentError):
            dt.plot.harvested(slices)


class TestHistograms:
    def test_have_the_order_and_the_shares_of_the_complete_join(self):
        sample, complete = {"b": 3, "a": 1}, {"a": 60, "b": 30, "c": 10}
        bars = [[bar.get_height() for bar in axis.patches] for axis in dt.plot.histograms(sample, complete).axes]
        assert np.allclose(bars, [[0.25, 0.75, 0], [0.6, 0.3, 0.1]])

    def test_show_the_most_frequent(self):
        complete = {number: 100 - number for number in range(50)}
        assert len(dt.plot.histograms(complete, complete, most=7).axes[0].patches) == 7

    def test_of_an_empty_sample(self):
        assert len(dt.plot.histograms({}, {"a": 1}).axes[0].patches) == 1


class TestPartitions:
    @pytest.mark.parametrize("algorithm", ["prefap", "ftj", "cfs", "obt", "rbm"])
    def test_cover_as_many_pairs_as_are_compared(self, algorithm):
        random = np.random.default_rng(1)
        r, s = random.normal(50, 10, 200), random.normal(60, 10, 150)
        (axis,) = dt.plot.partitions(r, s, op=">", algorithms=[algorithm], number=6).axes
        area = sum(patch.get_width() * patch.get_height() for patch in axis.patches)
        assert area == layout(algorithm, Values.of(r), Values.of(s), op=">", partitions=6).products
        # Rectangles lie within the matrix and do not overlap.
        cells = np.zeros((200, 150), dtype=int)
        for patch in axis.patches:
            left, top, width, height = (round(x) for x in (*patch.get_xy(), patch.get_width(), patch.get_height()))
            cells[top : top + height, left : left + width] += 1
        assert cells.sum() == area
        assert cells.max() == 1

    def test_leave_room_for_what_a_filter_removed(self):
        # Of R only 9 exceeds anything in S, which has 8 alone below it.
        (axis,) = dt.plot.partitions([1, 2, 3, 9], [8, 20, 30], op=">", algorithms=["prefap"], number=2).axes
        (cell,) = axis.patches
        assert (cell.get_xy(), cell.get_width(), cell.get_height()) == ((0, 3), 1, 1)

    @pytest.mark.parametrize(("r", "s"), [([], [1]), ([1], []), ([["x"]], [1]), (["x"], [1])])
    def test_refuse_what_is_no_column(self, r, s):
        with pytest.raises(ArgumentError):
            dt.plot.partitions(r, s)


def test_a_picture_shows_itself_in_a_notebook_and_in_a_report(tmp_path):
    picture = dt.plot.rates(BATCHES)
    assert picture._repr_png_().startswith(b"\x89PNG")
    report = Report("A <run>")
    report.heading("one")
    report.table(("a", "b"), [("1", "<2>")])
    report.code("x < y")
    report.picture(picture, "caption")
    report.write(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<title>A &lt;run&gt;</title>" in page
    assert "&lt;2&gt;" in page
    assert page.count("data:image/png;base64,") == 1
