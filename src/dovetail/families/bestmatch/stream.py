"""MatWin: the best-match join of streams that are ordered on an axis with a maximum distance.

A row's candidates are within the maximum distance of it.  Once the other stream has passed them all, the row's best
pairs are final and leave; then the row is evicted, with all rows that no waiting or future row can reach.  So the state
is a window of either stream, and no pair that has left is ever retracted.

Where the paper keeps an intermediate result O and updates it as the windows move, this kernel waits until a row is
final and finds its best pairs once: the windows are up to twice as long, and O is not needed.  The result of an inner
join never becomes final.  It does keep O, the best pairs so far, and reports what is inserted and retracted.

The same kernel serves batch joins: a static input is a stream whose rows all arrive at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.codes import Mask
from dovetail.families.bestmatch.bounds import Progress
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode, usable
from dovetail.families.bestmatch.kernel import Pairs, best, best_of_pairs, candidates
from dovetail.families.bestmatch.outputs import (
    METRICS,
    OUTPUT_ROWS,
    change_rows,
    has_row_columns,
    output_names,
    payload_columns,
    split_pairs,
    wide_columns,
    wide_names,
)
from dovetail.families.bestmatch.paper.pages import join_pages
from dovetail.families.bestmatch.pieces import RowsOf, best_in_pieces
from dovetail.families.bestmatch.router import COPY
from dovetail.families.bestmatch.spec import BestSpec, Counters
from dovetail.families.bestmatch.windows import Window
from dovetail.family import Changes

_HEAD, _SENT, _BEST = "head", "sent", "best"
_groups = itertools.count(1)


class BestKernel:
    """The windows of one cell, and the join between them."""

    def __init__(self, spec: BestSpec) -> None:
        self.spec = spec
        self.counters = dict.fromkeys(METRICS, 0)
        self._progress = Progress(spec) if spec.order is not None else None
        # Only a full join has to recognise pairs that have left, by the numbers of their rows.
        self._windows = [Window(side, numbered=spec.both_answer) for side in (0, 1)]
        self._sent: Pairs = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        self._best: pa.RecordBatch | None = None
        self._over = False
        self._changed: set[str] = set()
        self._counters = Counters()

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

    def keys_of(self, side: int, rows: pa.RecordBatch) -> list[pa.Array[Any]]:
        """The equality keys of rows."""
        first = self.spec.payload[side % COPY]
        return rows.columns[first : first + len(self.spec.by)]

    def push(self, side: int, rows: pa.RecordBatch) -> None:
        """Take in new rows; drop late ones, and rows that can match nothing and are not to be kept."""
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
                kept &= self._progress.ordered(side, rows)
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        if rows.num_rows:
            self._windows[side].add(rows, own=own)

    def end(self) -> None:
        """Promise that no more rows come: all results are final."""
        self._over = True

    def results(self) -> Iterator[pa.RecordBatch]:
        """Pairs that are now final; for an inner join of streams, what changed."""
        started = time.perf_counter_ns()
        changing = self._progress is not None and self.spec.global_best
        for rows in self._changes_of_best() if changing else self._final():
            self.counters["results"] += rows.num_rows
            yield rows
        self._evict()
        self.counters["kernel_us"] += (time.perf_counter_ns() - started) // 1000
        for name in ("comparisons", "candidates", "judged", "page_reads", "page_writes"):
            self.counters[name] += getattr(self._counters, name)
        for window in self._windows:
            self.counters["held_rows"] += window.rows.num_rows if window.rows is not None else 0
            self.counters["held_bytes"] += window.rows.nbytes if window.rows is not None else 0

    @property
    def divides(self) -> bool:
        """Whether static rows may come in pieces."""
        return self.spec.divisible

    def join_pieces(self, rows_of: RowsOf) -> Iterator[pa.RecordBatch]:
        """The results of static rows that come in pieces."""
        started = time.perf_counter_ns()
        for rows in best_in_pieces(self.spec, rows_of, self._counters):
            self.counters["results"] += rows.num_rows
            yield rows
        self.counters["kernel_us"] += (time.perf_counter_ns() - started) // 1000
        for name in ("comparisons", "candidates"):
            self.counters[name] += getattr(self._counters, name)

    def changes(self) -> Changes:
        """Segments to store and names to forget."""
        changes = Changes()
        if self._progress is None:
            return changes
        for window in self._windows:
            window.changes(changes)
        head = self._progress.head()
        for side, window in enumerate(self._windows):
            head[f"count{side}"] = [window.count]
        flat = [(name, value) for name, values in head.items() for value in values]
        changes.stored[_HEAD] = pa.RecordBatch.from_arrays(
            [pa.array([name for name, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.int64())],
            names=["name", "value"],
        )
        if _SENT in self._changed:
            sent = [pa.array(part) for part in self._sent]
            changes.stored[_SENT] = pa.RecordBatch.from_arrays(sent, names=["i", "j"])
        if _BEST in self._changed and self._best is not None:
            changes.stored[_BEST] = self._best
        return changes

    def wake_at(self) -> int | None:
        """The watermark that makes the first waiting row final."""
        if self._progress is None or self.spec.disorder != "watermark" or self.spec.global_best:
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
        if all(rows is None or rows.size == 0 for rows in asked) and not self.spec.global_best:
            return
        if left is None or right is None:
            yield from self._unmatched(asked, (np.empty(0, dtype=np.int64),) * 2)
            return
        if self.spec.candidates:
            yield from self._candidates(left, right, asked)
            return
        pairs = self._pairs(left, right, asked)
        if self.spec.both_answer:
            pairs = self._owned(pairs)
            pairs = self._unsent(pairs) if self._progress is not None else pairs
        for begin in range(0, pairs[0].size, OUTPUT_ROWS):
            yield self._rows((pairs[0][begin : begin + OUTPUT_ROWS], pairs[1][begin : begin + OUTPUT_ROWS]))
        yield from self._unmatched(asked, pairs)

    def _asked(self, side: int) -> Index | None:
        """Rows of a side that have become final; None where the side has no answers."""
        window = self._windows[side]
        if side not in self.spec.answers:
            return None
        if window.rows is None:
            return np.empty(0, dtype=np.int64)
        # A pair of a full join leaves from the cell of its left row, even where it is the best of a right row from
        # elsewhere.
        copies_too = self.spec.both_answer and side == 1
        wanted = np.ones(window.rows.num_rows, dtype=np.bool_) if copies_too else window.own()
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
        bounded = any(axis.within is not None for axis in spec.compiled)
        if spec.memory is not None and bounded and not spec.global_best:
            rows = left.num_rows + right.num_rows
            in_memory = spec.memory.rows(rows, left.nbytes + right.nbytes)
            if rows > in_memory:
                return join_pages(spec, left, right, asked, self._counters, memory=in_memory)
        return best(spec, left, right, self._counters, asked=asked)

    def _owned(self, pairs: Pairs) -> Pairs:
        """Pairs whose left row belongs to this cell and is no copy."""
        owned = self._windows[0].own()[pairs[0]]
        return pairs[0][owned], pairs[1][owned]

    def _unsent(self, pairs: Pairs) -> Pairs:
        """Pairs that have not left before; a pair may be final for one of its rows long before it is for the other."""
        assert self._progress is not None
        numbers = [window.numbers() for window in self._windows]
        final = [self._passed(side, self._windows[side], self._progress.now[1 - side]) for side in (0, 1)]
        i, j = numbers[0][pairs[0]], numbers[1][pairs[1]]
        rows = self._windows[1].count
        unsent = ~np.isin(i * rows + j, self._sent[0] * rows + self._sent[1])
        sent = np.concatenate([self._sent[0], i[unsent]]), np.concatenate([self._sent[1], j[unsent]])
        # Once both its rows are final, a pair cannot come up again.
        open_pairs = np.isin(sent[0], numbers[0][~final[0]]) | np.isin(sent[1], numbers[1][~final[1]])
        self._sent = sent[0][open_pairs], sent[1][open_pairs]
        self._changed.add(_SENT)
        return pairs[0][unsent], pairs[1][unsent]

    def _unmatched(self, asked: tuple[Index | None, Index | None], pairs: Pairs) -> Iterator[pa.RecordBatch]:
        """Rows that are final and have no candidate, where they are to be kept."""
        if not self.spec.keep:
            return
        for side in self.spec.answers:
            chosen, window = asked[side], self._windows[side]
            if chosen is None or window.rows is None or chosen.size == 0:
                continue
            chosen = chosen[window.own()[chosen]]
            unmatched = np.setdiff1d(chosen, self._matched(side, pairs, chosen))
            if unmatched.size:
                none = np.full(unmatched.size, -1)
                yield self._rows((unmatched, none) if side == 0 else (none, unmatched))

    def _matched(self, side: int, pairs: Pairs, chosen: Index) -> Index:
        """Chosen rows that have a candidate; pairs of a full join may have left before, or leave from another cell."""
        left, right = (window.rows for window in self._windows)
        if not self.spec.both_answer or left is None or right is None:
            return pairs[side]
        spec = self.spec.without_stream().of_side(side)
        return best(spec, left, right, self._counters, asked=(chosen, None) if side == 0 else (None, chosen))[side]

    def _candidates(
        self, left: pa.RecordBatch, right: pa.RecordBatch, asked: tuple[Index | None, Index | None]
    ) -> Iterator[pa.RecordBatch]:
        """All candidate pairs, with their keys and the group they compete in."""
        spec, side = self.spec, self.spec.home_side
        group = next(_groups) << 40
        for i, j in candidates(spec, left, right, self._counters, None if spec.both_answer else asked[side]):
            if i.size == 0:
                continue
            columns = [*wide_columns(spec, 0, left, i), *wide_columns(spec, 1, right, j)]
            rows = i if side == 0 else j
            columns.append(pa.array(np.full(i.size, group) + (rows if len(spec.answers) == 1 else 0)))
            if spec.both_answer:
                columns += [pa.array(i), pa.array(j), pa.array(self._windows[0].own()[i])]
            yield pa.RecordBatch.from_arrays(columns, names=output_names(spec))

    def _rows(self, pairs: Pairs) -> pa.RecordBatch:
        """Output rows; -1 stands for no row."""
        columns: list[pa.Array[Any]] = []
        for side, window in enumerate(self._windows):
            if self.spec.wide:
                assert window.rows is not None
                columns += wide_columns(self.spec, side, window.rows, pairs[side])
            else:
                missing = bool(pairs[side].size) and pairs[side][0] < 0
                columns += payload_columns(self.spec, side, None if missing else window.rows, pairs[side])
        if self.spec.keep:
            columns += has_row_columns(pairs)
        return pa.RecordBatch.from_arrays(columns, names=output_names(self.spec))

    # --- inner joins of streams ---------------------------------------------------------------------------------------

    def _changes_of_best(self) -> Iterator[pa.RecordBatch]:
        """Compare new pairs with the best so far: insert those that belong to the best, retract those they beat."""
        left, right = self._windows
        if left.rows is None or right.rows is None:
            return
        spec = self.spec.without_stream()
        old_left, new_left = left.rows.slice(0, left.held), left.rows.slice(left.held)
        parts = [] if self._best is None else [self._best]
        known = parts[0].num_rows if parts else 0
        for left_rows, right_rows in ((new_left, right.rows), (old_left, right.rows.slice(right.held))):
            if left_rows.num_rows and right_rows.num_rows:
                i, j = best(spec, left_rows, right_rows, self._counters)
                columns = [*wide_columns(spec, 0, left_rows, i), *wide_columns(spec, 1, right_rows, j)]
                parts.append(pa.RecordBatch.from_arrays(columns, names=wide_names(spec)))
        if not parts or sum(part.num_rows for part in parts) == known:
            return
        rows = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        sides = split_pairs(spec, rows)
        groups = encode(spec, *sides)[0].groups
        kept = best_of_pairs(spec, *sides, groups, None, self._counters)
        gone = np.setdiff1d(np.arange(known), kept)
        new = kept[kept >= known]
        self._best = rows.take(kept)
        if gone.size or new.size:
            self._changed.add(_BEST)
        for word, chosen in (("retract", gone), ("insert", new)):
            if chosen.size:
                yield change_rows(self.spec, rows, chosen, word)

    # --- eviction -----------------------------------------------------------------------------------------------------

    def _evict(self) -> None:
        if self._progress is None:
            return
        needed = [self._needed(side) for side in (0, 1)]
        for window, mask in zip(self._windows, needed, strict=True):
            if mask is not None:
                self.counters["evicted"] += window.evict(mask)

    def _needed(self, side: int) -> Mask | None:
        """Rows that wait for their best pairs, or that a waiting or future row of the other side may need."""
        window, other = self._windows[side], self._windows[1 - side]
        assert self._progress is not None
        if window.rows is None:
            return None
        needed = np.zeros(window.rows.num_rows, dtype=np.bool_)
        if side in self.spec.answers:
            needed |= ~self._passed(side, window, self._progress.now[1 - side])
        if 1 - side in self.spec.answers or self.spec.global_best:
            bound = self._progress.now[1 - side]
            if other.rows is not None and 1 - side in self.spec.answers:
                waiting = ~self._passed(1 - side, other, self._progress.now[side])
                first = self._progress.lowest(1 - side, other.rows, waiting)
                if bound is not None and first is not None:
                    bound = min(bound, first)
            needed |= ~self._passed(side, window, bound)
        return needed
