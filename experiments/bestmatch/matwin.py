"""The paper's algorithms as printed, nested loops and MatWin with its windows on disk, and improved ones beside them.

All read their rows from pages and count every access.  Dominance is that of Dovetail: equally good pairs all stay.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numba import njit

ROOM = 512
"""Best pairs that a row may have at a time."""


@njit(cache=True)
def update(R, S, eps, rows, others, count, ids, costs):
    """Compare the current best pairs of some rows with their pairs with some others."""
    axes = R.shape[1]
    cost = np.empty(axes)
    compared = 0
    for r in rows:
        for s in others:
            near = True
            for c in range(axes):
                cost[c] = abs(R[r, c] - S[s, c])
                if cost[c] > eps:
                    near = False
                    break
            compared += 1
            if not near:
                continue
            at, beaten = 0, False
            while at < count[r]:
                better, worse = False, False
                for c in range(axes):
                    if costs[r, at, c] < cost[c]:
                        worse = True
                    elif costs[r, at, c] > cost[c]:
                        better = True
                if worse and not better:
                    beaten = True
                    break
                if better and not worse:
                    count[r] -= 1
                    ids[r, at] = ids[r, count[r]]
                    costs[r, at] = costs[r, count[r]]
                else:
                    at += 1
            if not beaten:
                assert count[r] < ROOM
                ids[r, count[r]] = s
                costs[r, count[r]] = cost
                count[r] += 1
    return compared


@njit(cache=True)
def beaten_by_all(R, S, eps, rows, others, rivals, dominated):
    """Lines 4 to 8 of Algorithm 1 for pages, as printed: every pair meets every rival, whatever is known of it."""
    axes = R.shape[1]
    for a in range(rows.size):
        for b in range(others.size):
            for rival in rivals:
                worse, near = False, True
                for c in range(axes):
                    mine = abs(R[rows[a], c] - S[others[b], c])
                    theirs = abs(R[rows[a], c] - S[rival, c])
                    if theirs > eps or theirs > mine:
                        near = False
                        break
                    if theirs < mine:
                        worse = True
                if near and worse:
                    dominated[a, b] = True
    return rows.size * others.size * rivals.size


@njit(cache=True)
def beaten_in(R, S, eps, rows, others, rivals, dominated):
    """The same, improved: a pair that is beaten, or too far apart, meets no further rival."""
    axes = R.shape[1]
    compared = 0
    for a in range(rows.size):
        for b in range(others.size):
            if dominated[a, b]:
                continue
            for rival in rivals:
                worse, near = False, True
                for c in range(axes):
                    mine = abs(R[rows[a], c] - S[others[b], c])
                    theirs = abs(R[rows[a], c] - S[rival, c])
                    if theirs > eps or mine > eps or theirs > mine:
                        near = False
                        break
                    if theirs < mine:
                        worse = True
                compared += 1
                if near and worse:
                    dominated[a, b] = True
                    break
    return compared


class Disk:
    """Pages of row numbers and values in a folder; every access is counted, and happens."""

    def __init__(self, axes: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dovetail-paper-"))
        self._axes = axes
        self._next = 0
        self.accesses = 0

    def write(self, ids: np.ndarray, values: np.ndarray, page: int | None = None) -> int:
        """Write a page."""
        if page is None:
            page, self._next = self._next, self._next + 1
        self.accesses += 1
        (self._folder / str(page)).write_bytes(ids.tobytes() + values[ids].tobytes())
        return page

    def read(self, page: int) -> np.ndarray:
        """The row numbers of a page; its values are read with them."""
        self.accesses += 1
        raw = (self._folder / str(page)).read_bytes()
        return np.frombuffer(raw, dtype=np.int64, count=len(raw) // (8 * (1 + self._axes)))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass
class Run:
    """What a run cost, and when its results came out."""

    seconds: float = 0.0
    accesses: int = 0
    comparisons: int = 0
    results: int = 0
    rows_on_pages: int = 0
    pages: int = 0
    """Both added up over all moves: how full pages are."""
    propagated: list[tuple[float, int, int]] = field(default_factory=list)
    pairs: set[tuple[int, int]] = field(default_factory=set)


def nested_loops(R: np.ndarray, S: np.ndarray, eps: float, *, improved: bool = False, page_rows: int = 50) -> Run:
    """Algorithm 1 with the maximum distances, over pages: for each page of R and of S, every page of S again."""
    disk, run = Disk(R.shape[1]), Run()
    compare = beaten_in if improved else beaten_by_all
    began = time.process_time()
    pages = [
        [disk.write(np.arange(a, min(a + page_rows, len(side))), side) for a in range(0, len(side), page_rows)]
        for side in (R, S)
    ]
    for left in pages[0]:
        rows = disk.read(left)
        for right in pages[1]:
            others = disk.read(right)
            distance = np.abs(R[rows][:, None, :] - S[others][None, :, :])
            dominated = (distance > eps).any(axis=2)
            for rival in pages[1]:
                run.comparisons += compare(R, S, eps, rows, others, disk.read(rival), dominated)
            a, b = np.nonzero(~dominated)
            run.pairs.update(zip(rows[a].tolist(), others[b].tolist(), strict=True))
    run.seconds, run.accesses, run.results = time.process_time() - began, disk.accesses, len(run.pairs)
    disk.close()
    return run


class Window:
    """A data window on disk, in the order of arrival or in epsilon-grid order, by either materialisation."""

    def __init__(
        self, values: np.ndarray, eps: float, disk: Disk, *, grid: bool, ego: bool, runs: int, page_rows: int
    ) -> None:
        """`runs` is the number of pages of a run of the standard materialisation, 0 to keep new rows in memory."""
        self._runs = runs
        self._values, self._disk, self._page_rows = values, disk, page_rows
        self._grid, self._ego = grid, ego
        self._cells = np.floor(values / eps).astype(np.int64)
        self._rank = np.zeros(len(values), dtype=np.int64)
        self._rank[np.lexsort(self._cells.T[::-1])] = np.arange(len(values))
        self.pages: list[tuple[int, np.ndarray, np.ndarray, bool]] = []
        """Each page with its first and last cell, and whether it holds new rows."""
        self._lists: dict[tuple[int, ...], list[list[int]]] = {}
        self.ids = np.empty(0, dtype=np.int64)

    def move(self, low: float, new: np.ndarray) -> None:
        """Let go of what lies below the window, and take in what is new."""
        values = self._values
        if self._grid:
            self._into_cells(new, low)
        elif new.size:
            self._merged(new, low)
        else:
            # Without a run there is nothing to merge; rows below the window go with the next one.
            self.pages = [(page, first, last, False) for page, first, last, _ in self.pages]
        self.ids = np.concatenate([self.ids, new])
        self.ids = self.ids[values[self.ids, 0] >= low]

    def _merged(self, new: np.ndarray, low: float) -> None:
        """Standard materialisation (3.3.3): sorted runs are written, and merged with the window into a new one."""
        values, size = self._values, self._page_rows
        parts = [self._disk.read(page) for page, *_ in self.pages]
        for begin in range(0, new.size, max(self._runs, 1) * size):
            run = self._sorted(new[begin : begin + max(self._runs, 1) * size])
            if self._runs:
                pages = [self._disk.write(run[at : at + size], values) for at in range(0, run.size, size)]
                parts += [self._disk.read(page) for page in pages]
            else:
                parts.append(run)
        kept = np.concatenate(parts)
        kept = self._sorted(kept[values[kept, 0] >= low])
        self.pages = []
        for begin in range(0, kept.size, size):
            some = kept[begin : begin + size]
            page = self._disk.write(some, values)
            self.pages.append((page, self._cells[some[0]], self._cells[some[-1]], bool((some >= new[0]).any())))

    def _sorted(self, ids: np.ndarray) -> np.ndarray:
        return ids[np.argsort(self._rank[ids], kind="stable")] if self._ego else ids

    def _into_cells(self, new: np.ndarray, low: float) -> None:
        """Grid materialisation: the last page of each cell that has new rows is read and written, once for a move."""
        touched = set()
        size = self._page_rows
        cells: dict[tuple[int, ...], list[int]] = {}
        for row in new.tolist():
            cells.setdefault(tuple(self._cells[row].tolist()), []).append(row)
        for cell, rows in cells.items():
            listed = self._lists.setdefault(cell, [])
            if listed and listed[-1][1] < size:
                page, held, _ = listed.pop()
                some, rows = rows[: size - held], rows[size - held :]
                self._disk.write(np.concatenate([self._disk.read(page), some]), self._values, page)
                listed.append([page, held + len(some), some[-1]])
                touched.add(page)
            for begin in range(0, len(rows), size):
                some = rows[begin : begin + size]
                page = self._disk.write(np.array(some), self._values)
                listed.append([page, len(some), some[-1]])
                touched.add(page)
        for cell in list(self._lists):
            # The last row of a page is its youngest: once it is below the window, all are.
            self._lists[cell] = [entry for entry in self._lists[cell] if self._values[entry[2], 0] >= low]
            if not self._lists[cell]:
                del self._lists[cell]
        self.pages = [
            (entry[0], np.array(cell), np.array(cell), entry[0] in touched)
            for cell in sorted(self._lists)
            for entry in self._lists[cell]
        ]


def matwin(
    R: np.ndarray,
    S: np.ndarray,
    eps: float,
    *,
    grid: bool,
    ego: bool,
    improved: bool = False,
    page_rows: int = 50,
    buffers: int = 8,
) -> Run:
    """Algorithm 2 over two inputs in the order of their first column.

    Each input has half of the buffers, and one of these is left free for the merge (Algorithm 3).  `improved` writes no
    runs.
    """
    disk, run = Disk(R.shape[1]), Run()
    runs = 0 if improved else buffers // 2 - 1
    windows = [Window(side, eps, disk, grid=grid, ego=ego, runs=runs, page_rows=page_rows) for side in (R, S)]
    count = np.zeros(len(R), dtype=np.int64)
    ids, costs = np.zeros((len(R), ROOM), dtype=np.int64), np.zeros((len(R), ROOM, R.shape[1]))
    began = time.process_time()
    next_r = next_s = out = 0
    low = max(0.0, R[0, 0] - eps)
    while next_r < len(R) or windows[0].ids.size:
        high = low + eps
        if next_r < len(R) and R[next_r, 0] - eps <= low:
            # The windows moved for this row; less and plus the distance is not always the same number.
            high = max(high, R[next_r, 0])
        more_r, more_s = int(np.searchsorted(R[:, 0], high, "right")), int(np.searchsorted(S[:, 0], high, "right"))
        more_r = max(more_r, next_r)
        new_r = np.arange(next_r, more_r)
        first = int(np.searchsorted(S[:, 0], low, "left"))
        new_s = np.arange(max(next_s, first), max(more_s, next_s))
        next_r, next_s = more_r, max(next_s, more_s)
        windows[0].move(low, new_r)
        windows[1].move(low, new_s)
        for window in windows:
            run.pages += len(window.pages)
            run.rows_on_pages += window.ids.size
        if new_r.size or new_s.size:
            for left, right in _page_pairs(windows[0], windows[1], disk, ego=ego, buffers=buffers):
                # Rows are numbered in the order of their arrival, so the new ones are the last.
                old, fresh = left[left < next_r - new_r.size], left[left >= next_r - new_r.size]
                live = right[S[right, 0] >= low]
                delta = live[live >= next_s - new_s.size]
                old = old[R[old, 0] >= low]
                run.comparisons += update(R, S, eps, old, delta, count, ids, costs)
                run.comparisons += update(R, S, eps, fresh, live, count, ids, costs)
        waiting = windows[0].ids[windows[0].ids >= out]
        waiting = waiting[R[waiting, 0] > low]
        bounds = [R[waiting[0], 0]] if waiting.size else []
        if next_r < len(R):
            bounds.append(R[next_r, 0] - eps)
        new_low = min(bounds) if bounds else np.inf
        done = int(np.searchsorted(R[:, 0], new_low, "left"))
        done = min(max(done, out), next_r)
        for row in range(out, done):
            run.pairs.update((row, int(other)) for other in ids[row, : count[row]])
        if done > out:
            run.propagated.append((time.process_time() - began, disk.accesses, len(run.pairs)))
            out = done
        if not bounds:
            break
        windows[0].ids = windows[0].ids[windows[0].ids >= out]
        low = max(new_low, low)
    run.seconds, run.accesses, run.results = time.process_time() - began, disk.accesses, len(run.pairs)
    disk.close()
    return run


def _page_pairs(
    left: Window, right: Window, disk: Disk, *, ego: bool, buffers: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of pages of which one at least holds new rows: columns in gallop order, and pages of S as long as they fit.

    Without grid order every page may match every other.
    """
    held: dict[int, np.ndarray] = {}
    begin = end = 0
    lasts, firsts = [tuple(page[2]) for page in right.pages], [tuple(page[1]) for page in right.pages]
    for page, first, last, fresh in left.pages:
        if ego:
            low, high = tuple(first - 1), tuple(last + 1)
            while begin < len(lasts) and lasts[begin] < low:
                begin += 1
            end = max(end, begin)
            while end < len(firsts) and firsts[end] <= high:
                end += 1
        else:
            begin, end = 0, len(right.pages)
        wanted = [at for at in range(begin, end) if fresh or right.pages[at][3]]
        if not wanted:
            continue
        current = disk.read(page)
        for at in wanted:
            rows = held.pop(at, None)
            if rows is None:
                while len(held) >= buffers - 1:
                    held.pop(next(iter(held)))
                rows = disk.read(right.pages[at][0])
            held[at] = rows
            yield current, rows
