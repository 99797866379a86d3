"""MatWin: the best-match join of streams that are ordered on an axis with a maximum distance.

A row's candidates lie within the maximum distance of it.  Once the other stream has passed them all, the row's best
pairs are final, and leave; then the row goes, and with it whatever no waiting or future row can reach.  So the state
is a window of either stream, and no pair that has left is ever taken back.

Where the paper keeps an intermediate result O and updates it as the windows move, this kernel waits until a row is
final and finds its best pairs once: the windows are up to twice as high, and O is not needed.  The inner form never
becomes final.  It does keep O, the best pairs so far, and tells what enters and what leaves it.

The same kernel serves batch, as the stream whose input came at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.families.bestmatch.bounds import Progress
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode, usable
from dovetail.families.bestmatch.kernel import Pairs, Work, best, best_of_pairs, candidates
from dovetail.families.bestmatch.paper.pages import join_pages
from dovetail.families.bestmatch.router import COPY
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.windows import Window
from dovetail.family import Changes

METRICS = (
    "rows", "late", "evicted", "held_rows", "held_bytes", "comparisons", "candidates", "judged", "page_reads",
    "page_writes", "results", "kernel_us",
)  # fmt: skip
"""What a call counts, in the order in which it leaves the operator."""

OUTPUT_ROWS = 1 << 17
"""Rows of a result segment: a few large values travel well, a single huge one does not."""

_HEAD, _SENT, _BEST = "head", "sent", "best"
_groups = itertools.count(1)


def output_names(spec: BestSpec) -> list[str]:
    """Columns that leave the kernel: i0_0, i0_1 ... of the left input, i1_0 ... of the right one, and what `spec`
    adds.
    """
    names = [f"i{side}_{at}" for side in (0, 1) for at in range(spec.payload[side])]
    if spec.candidates:
        return [*_wide_names(spec), "g", *(["i", "j", "o"] if spec.how == "full" else [])]
    if spec.wide:
        return _wide_names(spec)
    if spec.keep:
        names += ["p0", "p1"]
    if spec.order is not None and spec.how == "inner":
        names.append("_change")
    if spec.max_age is not None:
        names.append("_time")
    return names


def _wide_names(spec: BestSpec) -> list[str]:
    parts = []
    for side in (0, 1):
        parts += [f"i{side}_{at}" for at in range(spec.payload[side])] + [f"k{side}_{at}" for at in range(spec.keys)]
    return parts


class BestKernel:
    """The windows of one cell, and the join between them."""

    def __init__(self, spec: BestSpec) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        self._progress = Progress(spec) if spec.order is not None else None
        # Only a full join tells pairs that have left from others, by the numbers of their rows.
        self._windows = [Window(side, numbered=spec.how == "full") for side in (0, 1)]
        self._sent: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        self._best: pa.RecordBatch | None = None
        self._over = False
        self._changed: set[str] = set()
        self._work = Work()

    # --- the contract of a stream kernel ---------------------------------------------------------------------------

    def restore(self, state: Mapping[str, pa.RecordBatch], watermark: int | None) -> None:
        """Take up the state of the last call."""
        head: dict[str, list[int]] = {}
        if _HEAD in state:
            stored = state[_HEAD].to_pydict()
            for name, value in zip(stored["name"], stored["value"], strict=True):
                head.setdefault(name, []).append(value)
        if self._progress is not None:
            self._progress.restore(head, watermark)
        for side, window in enumerate(self._windows):
            window.restore(state, head.get(f"count{side}", [0])[0])
        if _SENT in state:
            i, j = (np.asarray(column.to_numpy(), dtype=np.int64) for column in state[_SENT].columns)
            self._sent = i, j
        if _BEST in state:
            self._best = state[_BEST]

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; late ones are dropped, and so are rows that can match nothing and are not to be kept."""
        own, side = side < COPY, side % COPY
        if own:
            self.counters["rows"] += rows.num_rows
        kept = np.ones(rows.num_rows, dtype=np.bool_)
        if self._progress is not None:
            late = self._progress.arrived(side, rows)
            if own:
                self.counters["late"] += int(late.sum())
            kept = ~late
        if not (self.spec.keep and side in self.spec.answers):
            first = self.spec.payload[side]
            kept &= usable(rows.columns[first : first + self.spec.keys], rows.num_rows)
            if self._progress is not None:
                kept &= self._progress.placed(side, rows)
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        if rows.num_rows:
            self._windows[side].add(rows, own=own)

    def end(self) -> None:
        """Promise that no more rows come: all is final."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Pairs that are now certain; of an inner join over streams, what changed."""
        began = time.perf_counter_ns()
        inner = self._progress is not None and self.spec.how == "inner"
        for rows in self._moved() if inner else self._final():
            self.counters["results"] += rows.num_rows
            yield rows
        self._evict()
        self.counters["kernel_us"] += (time.perf_counter_ns() - began) // 1000
        for name in ("comparisons", "candidates", "judged", "page_reads", "page_writes"):
            self.counters[name] += getattr(self._work, name)
        for window in self._windows:
            self.counters["held_rows"] += window.rows.num_rows if window.rows is not None else 0
            self.counters["held_bytes"] += window.rows.nbytes if window.rows is not None else 0

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        found = Changes()
        if self._progress is None:
            return found
        for window in self._windows:
            window.changes(found)
        head = self._progress.head()
        for side, window in enumerate(self._windows):
            head[f"count{side}"] = [window.count]
        flat = [(name, value) for name, values in head.items() for value in values]
        found.stored[_HEAD] = pa.RecordBatch.from_arrays(
            [pa.array([name for name, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.int64())],
            names=["name", "value"],
        )
        if _SENT in self._changed:
            found.stored[_SENT] = pa.RecordBatch.from_arrays([pa.array(part) for part in self._sent], names=["i", "j"])
        if _BEST in self._changed and self._best is not None:
            found.stored[_BEST] = self._best
        return found

    def wake_at(self) -> int | None:
        """The watermark that makes the first waiting row final."""
        if self._progress is None or self.spec.disorder != "watermark" or self.spec.how == "inner":
            return None
        waiting = []
        for side in self.spec.answers:
            window = self._windows[side]
            if window.rows is not None:
                open_rows = ~self._progress.passed(side, window.rows, self._progress.now[1 - side])
                waiting.append(self._progress.lowest(side, window.rows, open_rows & window.own()))
        first = min((value for value in waiting if value is not None), default=None)
        within = self._progress.axis.within
        return None if first is None or within is None else first + int(within) + 1

    # --- left, right, full, and anything in batch --------------------------------------------------------------------

    def _final(self) -> Iterator[pa.RecordBatch]:
        left, right = (window.rows for window in self._windows)
        asked = (self._asked(0), self._asked(1))
        if all(rows is None or rows.size == 0 for rows in asked) and self.spec.how != "inner":
            return
        if left is None or right is None:
            yield from self._lonely(asked, (np.empty(0, dtype=np.int64),) * 2)
            return
        if self.spec.candidates:
            yield from self._candidates(left, right, asked)
            return
        pairs = self._pairs(left, right, asked)
        if self.spec.how == "full":
            pairs = self._owned(pairs)
            pairs = self._unsent(pairs) if self._progress is not None else pairs
        for begin in range(0, pairs[0].size, OUTPUT_ROWS):
            yield self._rows((pairs[0][begin : begin + OUTPUT_ROWS], pairs[1][begin : begin + OUTPUT_ROWS]))
        yield from self._lonely(asked, pairs)

    def _asked(self, side: int) -> Index | None:
        """Rows of a side that are final now, and were not before; None where the side has no answers."""
        window = self._windows[side]
        if side not in self.spec.answers:
            return None
        if window.rows is None:
            return np.empty(0, dtype=np.int64)
        # A pair of a full join leaves from the cell of its left row, even where it is the best of a right row from
        # elsewhere.
        elsewhere = self.spec.how == "full" and side == 1
        wanted = np.ones(window.rows.num_rows, dtype=np.bool_) if elsewhere else window.own()
        if self._progress is not None:
            wanted &= self._passed(side, window, self._progress.now[1 - side]) & ~self._answered(side)
        return np.flatnonzero(wanted)

    def _passed(self, side: int, window: Window, bound: int | None) -> Mask:
        assert self._progress is not None
        assert window.rows is not None
        if self._over:
            return np.ones(window.rows.num_rows, dtype=np.bool_)
        return self._progress.passed(side, window.rows, bound)

    def _answered(self, side: int) -> Mask:
        """Rows that were final in an earlier call: they were there, and the other stream had passed them."""
        window = self._windows[side]
        assert self._progress is not None
        assert window.rows is not None
        done = self._progress.passed(side, window.rows, self._progress.before[1 - side])
        done[window.held :] = False
        return done

    def _pairs(self, left: pa.RecordBatch, right: pa.RecordBatch, asked: tuple[Index | None, Index | None]) -> Pairs:
        spec = self.spec.without_stream()
        many = spec.memory is not None and left.num_rows + right.num_rows > spec.memory
        bounded = any(axis.within is not None for axis in spec.compiled)
        if many and bounded and spec.how != "inner":
            return join_pages(spec, left, right, asked, self._work)
        return best(spec, left, right, self._work, asked=asked)

    def _owned(self, pairs: Pairs) -> Pairs:
        """Pairs whose left row is at home in this cell."""
        here = self._windows[0].own()[pairs[0]]
        return pairs[0][here], pairs[1][here]

    def _unsent(self, pairs: Pairs) -> Pairs:
        """Pairs that have not left before; a pair may be best for one of its rows long before it is for the other."""
        assert self._progress is not None
        numbers = [window.numbers() for window in self._windows]
        final = [self._passed(side, self._windows[side], self._progress.now[1 - side]) for side in (0, 1)]
        i, j = numbers[0][pairs[0]], numbers[1][pairs[1]]
        rows = self._windows[1].count
        fresh = ~np.isin(i * rows + j, self._sent[0] * rows + self._sent[1])
        sent = np.concatenate([self._sent[0], i[fresh]]), np.concatenate([self._sent[1], j[fresh]])
        # Once both its rows are final, a pair cannot come up again.
        again = np.isin(sent[0], numbers[0][~final[0]]) | np.isin(sent[1], numbers[1][~final[1]])
        self._sent = sent[0][again], sent[1][again]
        self._changed.add(_SENT)
        return pairs[0][fresh], pairs[1][fresh]

    def _lonely(self, asked: tuple[Index | None, Index | None], pairs: Pairs) -> Iterator[pa.RecordBatch]:
        """Rows that are final and have no candidate, where they are to be kept."""
        if not self.spec.keep:
            return
        for side in self.spec.answers:
            chosen, window = asked[side], self._windows[side]
            if chosen is None or window.rows is None or chosen.size == 0:
                continue
            chosen = chosen[window.own()[chosen]]
            alone = np.setdiff1d(chosen, self._met(side, pairs, chosen))
            if alone.size:
                none = np.full(alone.size, -1)
                yield self._rows((alone, none) if side == 0 else (none, alone))

    def _met(self, side: int, pairs: Pairs, chosen: Index) -> Index:
        """Chosen rows that have a candidate: in a full join a pair of theirs may have left, or belong elsewhere."""
        left, right = (window.rows for window in self._windows)
        if self.spec.how != "full" or left is None or right is None:
            return pairs[side]
        one = best(self._half(side), left, right, self._work, asked=(chosen, None) if side == 0 else (None, chosen))
        return one[side]

    def _half(self, side: int) -> BestSpec:
        return replace(self.spec.without_stream(), how="left" if side == 0 else "right")

    def _candidates(
        self, left: pa.RecordBatch, right: pa.RecordBatch, asked: tuple[Index | None, Index | None]
    ) -> Iterator[pa.RecordBatch]:
        """All candidate pairs, with their keys and the group they compete in."""
        side = 1 if self.spec.how == "right" else 0
        group = next(_groups) << 40
        for i, j in candidates(self.spec, left, right, self._work, asked[side] if self.spec.how != "full" else None):
            if i.size == 0:
                continue
            columns = [*self._wide(0, left, i), *self._wide(1, right, j)]
            rows = i if side == 0 else j
            columns.append(pa.array(np.full(i.size, group) + (rows if self.spec.how in ("left", "right") else 0)))
            if self.spec.how == "full":
                columns += [pa.array(i), pa.array(j), pa.array(self._windows[0].own()[i])]
            yield pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    def _wide(self, side: int, rows: pa.RecordBatch, at: Index) -> list[pa.Array[Any]]:
        columns: list[pa.Array[Any]] = rows.select(range(self.spec.payload[side] + self.spec.keys)).take(at).columns
        return columns

    def _rows(self, pairs: Pairs) -> pa.RecordBatch:
        """Output rows; -1 stands for no row."""
        columns: list[pa.Array[Any]] = []
        if self.spec.wide:
            for side, window in enumerate(self._windows):
                assert window.rows is not None
                columns += self._wide(side, window.rows, pairs[side])
            return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))
        for side, window in enumerate(self._windows):
            if window.rows is None or (pairs[side].size and pairs[side][0] < 0):
                columns += [pa.nulls(pairs[side].size, kind) for kind in self.spec.types[side]]  # type: ignore[call-overload]
            else:
                columns += window.rows.select(range(self.spec.payload[side])).take(pairs[side]).columns
        if self.spec.keep:
            columns += [pa.array(at >= 0) for at in pairs]
        return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    # --- the inner form over streams ----------------------------------------------------------------------------------

    def _moved(self) -> Iterator[pa.RecordBatch]:
        """New pairs against the best so far: what enters is inserted, what it beats is retracted."""
        left, right = self._windows
        if left.rows is None or right.rows is None:
            return
        spec = self.spec.without_stream()
        fresh = [left.rows.slice(left.held), right.rows.slice(right.held)]
        old = left.rows.slice(0, left.held)
        parts = [] if self._best is None else [self._best]
        known = parts[0].num_rows if parts else 0
        for one, other in ((fresh[0], right.rows), (old, fresh[1])):
            if one.num_rows and other.num_rows:
                i, j = best(spec, one, other, self._work)
                columns = [*self._wide(0, one, i), *self._wide(1, other, j)]
                parts.append(pa.RecordBatch.from_arrays(columns, names=_wide_names(spec)))
        if not parts or sum(part.num_rows for part in parts) == known:
            return
        rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        first = spec.payload[0] + spec.keys
        sides = rows.select(range(first)), rows.select(range(first, rows.num_columns))
        groups = encode(spec, *sides)[0].groups
        kept = best_of_pairs(spec, *sides, groups, None, self._work)
        gone = np.setdiff1d(np.arange(known), kept)
        new = kept[kept >= known]
        self._best = rows.take(kept)
        if gone.size or new.size:
            self._changed.add(_BEST)
        for word, chosen in (("retract", gone), ("insert", new)):
            if chosen.size:
                yield self._change(rows, chosen, word)

    def _change(self, rows: pa.RecordBatch, chosen: Index, word: str) -> pa.RecordBatch:
        first = self.spec.payload[0] + self.spec.keys
        wanted = [*range(self.spec.payload[0]), *range(first, first + self.spec.payload[1])]
        columns = [*rows.select(wanted).take(chosen).columns, pa.array([word] * chosen.size, pa.string())]
        return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    # --- what can be forgotten
    # ------------------------------------------------------------------------------------------

    def _evict(self) -> None:
        if self._progress is None:
            return
        needed = [self._needed(side) for side in (0, 1)]
        for window, mask in zip(self._windows, needed, strict=True):
            if mask is not None:
                self.counters["evicted"] += window.evict(mask)

    def _needed(self, side: int) -> Mask | None:
        """Rows that wait for their best pairs, or that a waiting or future row of the other side may want."""
        window, other = self._windows[side], self._windows[1 - side]
        assert self._progress is not None
        if window.rows is None:
            return None
        needed = np.zeros(window.rows.num_rows, dtype=np.bool_)
        if side in self.spec.answers:
            needed |= ~self._passed(side, window, self._progress.now[1 - side])
        if 1 - side in self.spec.answers or self.spec.how == "inner":
            bound = self._progress.now[1 - side]
            if other.rows is not None and 1 - side in self.spec.answers:
                waiting = ~self._passed(1 - side, other, self._progress.now[side])
                first = self._progress.lowest(1 - side, other.rows, waiting)
                if bound is not None and first is not None:
                    bound = min(bound, first)
            needed |= ~self._passed(side, window, bound)
        return needed
