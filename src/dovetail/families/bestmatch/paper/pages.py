"""Windows on local disk, in pages in epsilon-grid order (section 3.3), and the join between two of them.

The grid has cells one maximum distance wide on every constrained axis; the grid order compares cells axis by axis.
Rows that may match lie in the same or in adjoining cells, so a page of one window can match one run of pages of the
other.

standard
    rows are sorted in runs that fit into memory; the runs are merged into pages that are full.
grid
    every cell has a list of pages of its own; new rows go to the last page of their cell.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns.segments import concat, pack, unpack
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode
from dovetail.families.bestmatch.kernel import Pairs, best, best_of_pairs, distinct_pairs
from dovetail.families.bestmatch.paper.schedule import crabstep
from dovetail.families.bestmatch.spec import BestSpec, Counters

BUFFERS = 8
"""Pages that are in memory at a time: one of the left window, the others of the right one."""

Cells = npt.NDArray[np.int64]
"""Grid cells, one row of coordinates each."""

_FAR = 2**40
_NUMBER = "row_number"
"""The column of a page that holds the numbers of its rows."""


class Pages:
    """Pages of rows in a folder, with a count of every access."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.reads = 0
        self.writes = 0

    def write(self, rows: pa.RecordBatch, page: int | None = None) -> int:
        """Write a page, a new one or one that is there; its number."""
        if page is None:
            page, self._count = self._count, self._count + 1
        self.writes += 1
        (self._folder / f"{page}.arrow").write_bytes(pack(rows))
        return page

    def read(self, page: int) -> pa.RecordBatch:
        """The rows of a page."""
        self.reads += 1
        return unpack((self._folder / f"{page}.arrow").read_bytes())


class Materialised:
    """A window on disk: its pages in grid order, and the first and last cell of each."""

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.firsts: list[tuple[int, ...]] = []
        self.lasts: list[tuple[int, ...]] = []

    def add(self, page: int, first: Cells, last: Cells) -> None:
        """One more page, behind the others."""
        self.pages.append(page)
        self.firsts.append(tuple(first.tolist()))
        self.lasts.append(tuple(last.tolist()))


def grid_cells(spec: BestSpec, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[list[Index], list[Cells]]:
    """The rows of both sides that can match, and the grid cells they lie in; equal keys have equal first
    coordinates.
    """
    rows = encode(spec, left, right)
    cells = []
    for side in rows:
        columns = [side.groups]
        for at, axis in enumerate(spec.compiled):
            if axis.within is None:
                continue
            values = side.values[:, at]
            if axis.is_float:
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    # Slightly wider than the distance, so that rounding moves no row two cells away.
                    scaled = values.view(np.float64) / (float(axis.within) * (1 + 1e-9) or 5e-324)
                columns.append(np.floor(np.clip(np.nan_to_num(scaled), -_FAR, _FAR)).astype(np.int64))
            else:
                columns.append(values // max(1, int(axis.within)))
        cells.append(np.stack(columns, axis=1))
    return [side.positions for side in rows], cells


def materialise(
    pages: Pages, rows: pa.RecordBatch, positions: Index, cells: Cells, *, page_rows: int, memory: int, grid: bool
) -> Materialised:
    """Write the rows at `positions` to pages in grid order, holding `memory` of them at a time."""
    runs = []
    for begin in range(0, positions.size, memory):
        run_cells = cells[begin : begin + memory]
        order = np.lexsort(run_cells.T[::-1])
        runs.append((positions[begin : begin + memory][order], run_cells[order]))
    return _in_cells(pages, rows, runs, page_rows) if grid else _merged(pages, rows, runs, page_rows)


def _merged(pages: Pages, rows: pa.RecordBatch, runs: list[tuple[Index, Cells]], page_rows: int) -> Materialised:
    """Runs written as they are, then merged: every page of a run is written and read once more."""
    window = Materialised()
    written: list[list[int]] = []
    for run, _ in runs:
        written.append([pages.write(_numbered(rows, run[a : a + page_rows])) for a in range(0, run.size, page_rows)])
    if not runs:
        return window
    cells = np.concatenate([cell for _, cell in runs])
    source = np.concatenate([np.full(run.size, at) for at, (run, _) in enumerate(runs)])
    within = np.concatenate([np.arange(run.size) for run, _ in runs])
    order = np.lexsort((within, source, *cells.T[::-1]))
    # A run is read in its own order, so one page of each is in memory at a time.
    current: dict[int, tuple[int, pa.RecordBatch]] = {}
    for begin in range(0, order.size, page_rows):
        chosen = order[begin : begin + page_rows]
        parts, targets = [], np.empty(0, dtype=np.int64)
        for run in np.unique(source[chosen]):
            mine = np.flatnonzero(source[chosen] == run)
            for number in np.unique(within[chosen[mine]] // page_rows):
                if current.get(int(run), (-1, None))[0] != number:
                    current[int(run)] = int(number), pages.read(written[int(run)][int(number)])
                of_page = mine[within[chosen[mine]] // page_rows == number]
                parts.append(current[int(run)][1].take(within[chosen[of_page]] % page_rows))
                targets = np.concatenate([targets, of_page])
        batch = concat(parts).take(np.argsort(targets, kind="stable"))
        window.add(pages.write(batch), cells[chosen[0]], cells[chosen[-1]])
    return window


def _in_cells(pages: Pages, rows: pa.RecordBatch, runs: list[tuple[Index, Cells]], page_rows: int) -> Materialised:
    """Rows appended to the pages of their cells; only the last page of a cell is read and written again."""
    grid: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for run, cells in runs:
        cuts = np.flatnonzero((np.diff(cells, axis=0) != 0).any(axis=1)) + 1
        for part in np.split(np.arange(run.size), cuts):
            if part.size:
                cell = tuple(cells[part[0]].tolist())
                _append(pages, grid.setdefault(cell, []), _numbered(rows, run[part]), page_rows)
    window = Materialised()
    for cell in sorted(grid):
        for page, _ in grid[cell]:
            window.add(page, np.array(cell), np.array(cell))
    return window


def _append(pages: Pages, listed: list[tuple[int, int]], rows: pa.RecordBatch, page_rows: int) -> None:
    if listed and listed[-1][1] < page_rows:
        page, size = listed.pop()
        free = page_rows - size
        listed.append(
            (pages.write(concat([pages.read(page), rows.slice(0, free)]), page), min(page_rows, size + rows.num_rows))
        )
        rows = rows.slice(min(free, rows.num_rows))
    for begin in range(0, rows.num_rows, page_rows):
        part = rows.slice(begin, page_rows)
        listed.append((pages.write(part), part.num_rows))


def _numbered(rows: pa.RecordBatch, positions: Index) -> pa.RecordBatch:
    """Rows with their numbers as the last column."""
    return rows.take(positions).append_column(_NUMBER, pa.array(positions))


def spans(left: Materialised, right: Materialised) -> list[tuple[int, int]]:
    """For each page of the left window, the run of pages of the right one that may hold a match."""
    runs = []
    reach = 1 if max((abs(x) for cell in left.lasts + right.lasts for x in cell[1:]), default=0) < 10**6 else 2
    for first, last in zip(left.firsts, left.lasts, strict=True):
        # The first coordinate is the key, and matches only itself.
        low = (first[0], *(x - reach for x in first[1:]))
        high = (last[0], *(x + reach for x in last[1:]))
        begin = next((at for at, cell in enumerate(right.lasts) if cell >= low), len(right.lasts))
        end = next((at for at in range(begin, len(right.firsts)) if right.firsts[at] > high), len(right.firsts))
        runs.append((begin, end))
    return runs


def join_pages(
    spec: BestSpec,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    asked: tuple[Index | None, Index | None],
    counters: Counters,
    *,
    memory: int,
) -> Pairs:
    """The best pairs of rows, a pair of pages at a time, with `memory` rows in buffers; best pairs come on top."""
    positions, cells = grid_cells(spec, left, right)
    page_rows = max(1, memory // BUFFERS)
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        pages = Pages(Path(folder))
        windows = [
            materialise(pages, side, positions[at], cells[at], page_rows=page_rows, memory=memory,
                        grid=spec.materialise == "grid")
            for at, side in enumerate((left, right))
        ]  # fmt: skip
        parts = [_joined_side(spec, side, windows, pages, asked[side], counters) for side in spec.answers]
        counters.page_reads += pages.reads
        counters.page_writes += pages.writes
    return parts[0] if len(parts) == 1 else distinct_pairs(parts)


def _joined_side(
    spec: BestSpec, side: int, windows: list[Materialised], pages: Pages, asked: Index | None, counters: Counters
) -> Pairs:
    """The best pairs of the rows of one side."""
    one_sided = spec.of_side(side)
    best_pairs: list[tuple[pa.RecordBatch, pa.RecordBatch]] = []
    for page, other in _scheduled(windows[side], windows[1 - side], pages):
        batches = (page, other) if side == 0 else (other, page)
        numbers = page.column(_NUMBER).to_numpy()
        wanted = None if asked is None else np.flatnonzero(np.isin(numbers, asked))
        if wanted is not None and wanted.size == 0:
            continue
        i, j = best(one_sided, *batches, counters, asked=(wanted, None) if side == 0 else (None, wanted))
        if i.size:
            best_pairs.append((batches[0].take(i), batches[1].take(j)))
    if not best_pairs:
        none = np.empty(0, dtype=np.int64)
        return none, none
    sides = [concat([pair[at] for pair in best_pairs]) for at in (0, 1)]
    rows = [batch.column(batch.num_columns - 1).to_numpy() for batch in sides]
    kept = best_of_pairs(one_sided, sides[0], sides[1], rows[side], None, counters)
    return rows[0][kept], rows[1][kept]


def _scheduled(
    window: Materialised, other: Materialised, pages: Pages
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Pairs of pages in the order of the schedule; only the pages it loads are read."""
    current: pa.RecordBatch | None = None
    held: OrderedDict[int, pa.RecordBatch] = OrderedDict()
    for kind, column, page in crabstep(spans(window, other), BUFFERS):
        if kind == "load R":
            current = pages.read(window.pages[column])
        elif kind == "load S":
            # Pages of S are needed in ascending order, so the one loaded first is dropped first.
            held.pop(page, None)
            while len(held) >= BUFFERS - 1:
                held.popitem(last=False)
            held[page] = pages.read(other.pages[page])
        else:
            assert current is not None
            yield current, held[page]
