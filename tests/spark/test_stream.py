"""The streaming driver without a query: what it stores, wakes and refuses, with Spark played by a few lines."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import TimerValues

from dovetail.checkpoints import FORMAT, CheckpointHeader
from dovetail.columns import memory
from dovetail.columns.layout import COUNTERS
from dovetail.columns.segments import pack, unpack
from dovetail.errors import CheckpointError, MemoryLimitError
from dovetail.family import Changes
from dovetail.spark.stream import CellProcessor, StoredSegments, opened_on_workers

MARK = CheckpointHeader.of({"join": "a theta join in windows", "window": "10 rows", "columns of A": "x bigint"})


class FakeMap:
    """Spark's map state, as far as a cell reads it."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self.held = held

    def exists(self):
        return bool(self.held)

    def keys(self):
        return iter([(name,) for name in self.held])

    def containsKey(self, name):  # noqa: N802
        return name[0] in self.held

    def getValue(self, name):  # noqa: N802
        return (self.held[name[0]],)

    def updateValue(self, name, value):  # noqa: N802
        self.held[name[0]] = value[0]

    def removeKey(self, name):  # noqa: N802
        del self.held[name[0]]


class FakeHandle:
    def __init__(self, held: dict[str, bytes]) -> None:
        self.map = FakeMap(held)
        self.timers: list[int] = []

    def registerTimer(self, at):  # noqa: N802
        self.timers.append(at)

    def getMapState(self, *_):  # noqa: N802
        return self.map


def loaded(held: dict[str, bytes]) -> dict[str, pa.RecordBatch]:
    return dict(StoredSegments(FakeMap(held), MARK))


def test_state_of_another_format_or_join_is_refused_unopened():
    segment = pa.RecordBatch.from_pydict({"x": [1, 2]})
    stored = {"0/0/0": pack(segment).to_pybytes()}
    assert loaded({}) == {}
    assert loaded({**stored, "format": MARK.stored()}) == {"0/0/0": segment}
    later = MARK.stored().replace(f'"format": {FORMAT}'.encode(), f'"format": {FORMAT + 1}'.encode())
    text = f"holds state of format {FORMAT + 1}; this version of Dovetail reads format {FORMAT}"
    with pytest.raises(CheckpointError, match=text):
        loaded({"0/0/0": b"not Arrow", "format": later})
    with pytest.raises(CheckpointError, match="holds state of format 0;"):
        loaded(stored)
    other = CheckpointHeader.of({**dict(MARK.parts), "window": "20 rows"})
    with pytest.raises(CheckpointError, match="the window was '20 rows' and is '10 rows'"):
        loaded({"0/0/0": b"never opened", "format": other.stored()})


class OneWindow:
    """A kernel that drops what it was given and keeps one segment."""

    def __init__(self, wake: int) -> None:
        self.wake = wake
        self.counters = {"rows": 0}
        self.old: list[str] = []
        self.watermark: int | None = None

    def restore(self, state, watermark):
        self.old, self.watermark = sorted(state), watermark

    def push(self, side, rows):
        self.counters["rows"] += rows.num_rows

    def results(self):
        yield pa.RecordBatch.from_pydict({"watermark": [self.watermark]})

    def changes(self):
        name = f"{len(self.old)}/0/{int(self.old[-1][-1]) + 1 if self.old else 0}"
        return Changes({name: pa.RecordBatch.from_pydict({"x": [1]})}, set(self.old))

    def wake_at(self):
        return self.wake


@pytest.mark.parametrize(("wake", "timer"), [(-5_000_000, 1), (0, 1), (1_000, 1), (1_001, 2), (10_000_000, 10_000)])
def test_a_cell_is_called_once_at_a_watermark_and_keeps_its_state(wake, timer):
    handle = FakeHandle({})
    cell = CellProcessor(lambda: OneWindow(wake), ("rows",), MARK)
    cell.init(handle)
    packed = pack(pa.RecordBatch.from_pydict({"x": [1, 2, 3]})).to_pybytes()
    arrived = [Row(cell=0, side=side, place=place, segment=packed) for side, place in ((1, 5), (0, 1))]
    out = list(cell.handleInputRows((0,), iter(arrived), TimerValues(-1, 0)))
    assert [row[COUNTERS] for row in out] == [None, [6]]
    # A watermark of 0 is Spark's way to say that there is none yet.
    assert unpack(out[0].segment).to_pydict() == {"watermark": [None]}
    assert handle.timers == [timer]
    assert set(handle.map.held) == {"0/0/0", "format"}
    # The timer of a cell that had rows fires in the same micro-batch; all was done then.
    assert list(cell.handleExpiredTimer((0,), TimerValues(-1, 7), None)) == []
    cell.init(handle)
    out = list(cell.handleExpiredTimer((0,), TimerValues(-1, 7), None))
    assert unpack(out[0].segment).to_pydict() == {"watermark": [7_000]}
    assert set(handle.map.held) == {"1/0/1", "format"}
    assert list(cell.handleExpiredTimer((0,), TimerValues(-1, 7), None)) == []


class Keyed(OneWindow):
    """A kernel that reads all its state and can name the keys of rows."""

    def restore(self, state, watermark):
        super().restore(state, watermark)
        self.rows = [state[name] for name in self.old]

    def keys_of(self, side, rows):
        return [rows.column("x")]


def test_a_cell_that_does_not_fit_is_refused_before_it_dies_and_names_its_key(monkeypatch):
    cell = CellProcessor(lambda: Keyed(7), ("rows",), MARK, "a cell of dovetail(A,B)")
    cell.init(FakeHandle({}))
    packed = pack(pa.RecordBatch.from_pydict({"x": [5] * 9 + [1]})).to_pybytes()
    arrived = [Row(cell=0, side=0, place=0, segment=packed)]
    monkeypatch.setattr(memory, "FLOOR", 0)
    monkeypatch.setattr(memory, "room", lambda alone=False: 80)
    list(cell.handleInputRows((0,), iter(arrived), TimerValues(-1, 0)))
    monkeypatch.setattr(memory, "room", lambda alone=False: 79)
    words = "a cell of dovetail\\(A,B\\) does not fit .* 10 rows, 80 bytes; 90 % of them have the key 5"
    with pytest.raises(MemoryLimitError, match=words) as caught:
        list(cell.handleInputRows((0,), iter(arrived), TimerValues(-1, 0)))
    assert "hint: a shorter window" in str(caught.value)
    assert "shed=" in str(caught.value)


class Exhausted(Keyed):
    """A kernel that finds no memory for what it computes."""

    def results(self):
        raise MemoryError("Unable to allocate 7 MiB")


def test_memory_that_ends_within_a_kernel_is_told_with_the_key():
    cell = CellProcessor(lambda: Exhausted(7), ("rows",), MARK, "a cell of dovetail(A,B)")
    cell.init(FakeHandle({}))
    packed = pack(pa.RecordBatch.from_pydict({"x": [5] * 9 + [1]})).to_pybytes()
    words = r"ran out of memory \(Unable to allocate 7 MiB\); as far as its new rows tell, 90 % of them have the key 5"
    with pytest.raises(MemoryLimitError, match=words) as caught:
        list(cell.handleInputRows((0,), iter([Row(cell=0, side=0, place=0, segment=packed)]), TimerValues(-1, 0)))
    assert "shed=" in str(caught.value)


def test_memory_that_ends_while_rows_arrive_is_told_with_the_key():
    def arriving():
        packed = pack(pa.RecordBatch.from_pydict({"x": [5] * 9 + [1]})).to_pybytes()
        yield Row(cell=0, side=0, place=0, segment=packed)
        raise MemoryError

    cell = CellProcessor(lambda: Keyed(7), ("rows",), MARK, "a cell of dovetail(A,B)")
    cell.init(FakeHandle({}))
    with pytest.raises(MemoryLimitError, match="ran out of memory; as far as its new rows tell, 90 % of them"):
        list(cell.handleInputRows((0,), arriving(), TimerValues(-1, 0)))


def test_stored_rows_that_do_not_fit_are_refused_while_they_are_read(monkeypatch):
    segment = pack(pa.RecordBatch.from_pydict({"x": list(range(1000))})).to_pybytes()
    cell = CellProcessor(lambda: Keyed(7), ("rows",), MARK, "a cell of dovetail(A,B)")
    cell.init(FakeHandle({"0/0/1": segment, "0/0/2": segment, "format": MARK.stored()}))
    monkeypatch.setattr(memory, "room", lambda alone=False: 12_000)
    monkeypatch.setattr(memory, "FLOOR", 0)
    with pytest.raises(MemoryLimitError, match=r"0 rows, 16.* KiB with 16.* KiB of earlier ones"):
        list(cell.handleExpiredTimer((0,), TimerValues(-1, 7), None))


def test_the_driver_opens_a_processor_without_the_package(tmp_path):
    """Spark does so in a process that nothing was shipped to."""
    (tmp_path / "processor").write_bytes(
        cloudpickle.dumps(opened_on_workers(CellProcessor(OneWindow, ("rows",), MARK)))
    )
    script = """
import sys
from pathlib import Path
sys.modules["dovetail"] = None
from pyspark import cloudpickle

class Handle:
    asked = []
    def getMapState(self, *arguments):
        self.asked.append(arguments)

processor = cloudpickle.loads(Path("processor").read_bytes())
processor.init(Handle())
processor.close()
print(Handle.asked)
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[('segments', 'name string', 'segment binary')]"


def test_a_cell_opened_on_a_worker_is_the_cell():
    handle = FakeHandle({})
    cell = cloudpickle.loads(cloudpickle.dumps(opened_on_workers(CellProcessor(lambda: OneWindow(7), ("rows",), MARK))))
    cell.init(handle)
    packed = pack(pa.RecordBatch.from_pydict({"x": [1, 2, 3]})).to_pybytes()
    rows = iter([Row(cell=0, side=0, place=0, segment=packed)])
    assert [row[COUNTERS] for row in cell.handleInputRows((0,), rows, TimerValues(-1, 0))] == [None, [3]]
    assert list(cell.handleExpiredTimer((0,), TimerValues(-1, 7), None)) == []
    cell.close()
    assert set(handle.map.held) == {"0/0/0", "format"}
