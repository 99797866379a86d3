"""The stages that give results: the nearest of what cells have found, or of the whole of a small side.

    merge       candidates of the rows of some homes, and those rows -> results
    broadcast   rows, and the whole of the other side -> results, without a shuffle

Output batches hold the payload of both sides, whether there is a neighbour, its distance and rank, and the counters on
a row of their own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.broadcast import broadcast_blocks
from dovetail.columns.encode import Keys
from dovetail.columns.layout import BOX_PAYLOAD, COUNTERS, HAS_MATCH, POINT_PAYLOAD, SEGMENT, TURN, columns_of
from dovetail.columns.segments import cast_columns, concat, nulls, take_unchecked, unpack
from dovetail.errors import ArgumentError
from dovetail.families.nearest.compiled import Index, Values
from dovetail.families.nearest.kernel import NearIndex, choose
from dovetail.families.nearest.spec import ANSWERING, ASKING, NearestSpec
from dovetail.families.nearest.stages import ASKED, FAR, ID, NEAR, NOTE, OWN, SURE, WHICH, Candidates, Stage

METRICS = ("rows_points", "rows_boxes", "candidates", "kernel_us", "cells", "results")
"""The counters of a task: rows that answered and asked, copies included, and the neighbours that cells have found."""

DISTANCE, RANK = "distance", "rank"
"""The columns of the result behind those of the inputs."""

_LARGEST = (1 << 63) - 1


def distances(spec: NearestSpec, far: Values) -> pa.Array[Any]:
    """Distances in the type in which they come out."""
    if not spec.whole:
        return pa.array(far, pa.float64())
    if far.size and int(far.max()) > _LARGEST // spec.unit:
        raise ArgumentError(
            f"a distance of {int(far.max()) * spec.unit:,} does not fit the type of the column distance",
            accepted=f"distances of at most {_LARGEST:,}",
            hint="cast the values to DOUBLE in on=, or give the largest distance with within=",
        )
    codes = far.astype(np.int64) * spec.unit
    if pa.types.is_decimal(spec.distance):
        wide = np.zeros((codes.size, 2), dtype=np.int64)
        wide[:, 0] = codes
        return pa.Array.from_buffers(spec.distance, codes.size, [None, pa.py_buffer(wide.tobytes())])
    return pa.array(codes).cast(spec.distance)


@dataclass(frozen=True)
class ResultStage(Stage):
    """What giving results has in common."""

    def rows_out(
        self, asking: Sequence[pa.Array[Any]], size: int, owner: Index, near: pa.RecordBatch, far: Values, rank: Index,
        *, unmatched: Index | None = None,
    ) -> pa.RecordBatch:  # fmt: skip
        """The rows of the result: asking rows with their neighbours and, if they are wanted, the `unmatched` ones."""
        spec = self.spec
        if unmatched is None:
            unmatched = np.empty(0, dtype=np.int64)
            if spec.keep:
                unmatched = np.flatnonzero(np.bincount(owner, minlength=size) == 0)
        matched = near.columns[: len(spec.payload[ANSWERING])]
        columns = list(asking)
        # Most often each row has one neighbour, and then its columns are as they came.
        if owner.size != size or unmatched.size or not np.array_equal(owner, np.arange(size)):
            picked = pa.array(np.concatenate([owner, unmatched]))
            columns = [pc.take(column, picked, boundscheck=False) for column in asking]
        columns = cast_columns(columns, spec.payload[ASKING])
        columns += self._padded(cast_columns(matched, spec.payload[ANSWERING]), unmatched.size)
        columns.append(pa.array(np.repeat([True, False], [owner.size, unmatched.size])))
        columns += self._padded([distances(spec, far), pa.array(rank, pa.int32())], unmatched.size)
        columns.append(nulls(owner.size + unmatched.size, pa.list_(pa.int64())))
        return pa.RecordBatch.from_arrays(columns, names=self._names())

    def found(self, index: NearIndex | None, rows: pa.RecordBatch | None, columns: Keys) -> Candidates:
        """The nearest rows of asking ones: none where nobody answers."""
        found = self.candidates(index, rows, columns)
        if found is not None:
            return found
        none = np.empty(0, dtype=np.int64)
        return none, none.astype(np.uint64 if self.spec.whole else np.float64), none, self.nothing()

    @staticmethod
    def ordered(found: Candidates) -> tuple[Index, pa.RecordBatch, Values, Index]:
        """What was found, in the order of :meth:`rows_out`."""
        owner, far, rank, near = found
        return owner, near, far, rank

    def check(self, sure: pa.Array[Any], owner: Index) -> None:
        """Rows that looked only as far as the sample had k rows must have found k."""
        must = sure.to_numpy(zero_copy_only=False)
        if must.any() and (np.bincount(owner, minlength=must.size)[must] < self.spec.k).any():
            raise RuntimeError(
                "an input gave other rows when it was read again: cache it, or write it to a table, and join that"
            )

    def _padded(self, columns: Sequence[pa.Array[Any]], more: int) -> list[pa.Array[Any]]:
        if not more:
            return list(columns)
        return [pa.concat_arrays([column, nulls(more, column.type)]) for column in columns]

    def nothing(self) -> pa.RecordBatch:
        """No answering rows."""
        kinds = self.spec.payload[ANSWERING]
        return pa.RecordBatch.from_arrays([nulls(0, kind) for kind in kinds], names=columns_of(BOX_PAYLOAD, len(kinds)))

    def counts(self, values: list[int]) -> pa.RecordBatch:
        """Counters as a row of their own."""
        kinds = [*self.spec.payload[ASKING], *self.spec.payload[ANSWERING], pa.bool_(), self.spec.distance, pa.int32()]
        columns = [*(nulls(1, kind) for kind in kinds), pa.array([values], pa.list_(pa.int64()))]
        return pa.RecordBatch.from_arrays(columns, names=self._names())

    def _names(self) -> list[str]:
        payload = [
            name
            for prefix, kinds in zip((POINT_PAYLOAD, BOX_PAYLOAD), self.spec.payload, strict=True)
            for name in columns_of(prefix, len(kinds))
        ]
        return [*payload, HAS_MATCH, DISTANCE, RANK, COUNTERS]


@dataclass
class _Merging:
    """A task of the merge at work."""

    home: int = -1
    near: pa.RecordBatch | None = None
    own: list[pa.RecordBatch] = field(default_factory=list)
    visited: list[pa.RecordBatch] = field(default_factory=list)
    counted: list[int] = field(default_factory=lambda: [0] * len(METRICS))


@dataclass(frozen=True)
class MergeStage(ResultStage):
    """Segments in their turns: for each home what its rows have found there and elsewhere, then its rows."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once for each part of the homes."""
        at_work = _Merging()
        for batch in batches:
            for at in range(batch.num_rows):
                segment = unpack(batch.column(SEGMENT)[at].as_buffer())
                home, turn = divmod(batch.column(TURN)[at].as_py(), 4)
                if home < 0:
                    self._note(at_work, segment)
                    continue
                if at_work.home != home:
                    at_work.home, at_work.near, at_work.own, at_work.visited = home, None, [], []
                if turn == ASKED:
                    yield from self._merged(at_work, segment)
                elif turn == NEAR:
                    at_work.near = segment
                else:
                    (at_work.own if turn == OWN else at_work.visited).append(segment)
        yield self.counts(at_work.counted)

    def _note(self, at_work: _Merging, segment: pa.RecordBatch) -> None:
        answering, asking, formed = json.loads(segment.schema.metadata[NOTE.encode()])
        for at, value in ((0, answering), (1, asking), (2, formed), (4, 1)):
            at_work.counted[at] += value

    def _merged(self, at_work: _Merging, residents: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The results of the rows that found something elsewhere, and then of all others, which are most."""
        began = time.perf_counter_ns()
        size, payload = residents.num_rows, len(self.spec.payload[ASKING])
        own = self._own(at_work)
        mixed: list[tuple[Index, pa.RecordBatch]] = []
        plain: list[tuple[Index, pa.RecordBatch]] = []
        owner = np.empty(0, dtype=np.int64) if own is None else own.column(ID).to_numpy()
        if at_work.visited:
            found = concat(at_work.visited)
            visitors = placed(residents.column(ID).to_numpy(), found.column(ID).to_numpy())
            mixed.append((visitors, found))
            if own is not None:
                elsewhere = np.zeros(size, dtype=np.bool_)
                elsewhere[visitors] = True
                both = elsewhere[owner]
                mixed.append((owner[both], own.filter(pa.array(both))))
                own, owner = own.filter(pa.array(~both)), owner[~both]
        if own is not None:
            plain.append((owner, own))
        chosen = [self._chosen(part) for part in (mixed, plain)]
        everybody = np.concatenate([part[0] for part in chosen])
        self.check(residents.column(SURE), everybody)
        for part, last in zip(chosen, (False, True), strict=True):
            # Rows without any neighbour come out with the last part.
            alone = np.bincount(everybody, minlength=size) == 0
            unmatched = np.flatnonzero(alone) if last and self.spec.keep else np.empty(0, dtype=np.int64)
            if part[0].size or unmatched.size:
                out = self.rows_out(residents.columns[:payload], size, *part, unmatched=unmatched)
                at_work.counted[5] += out.num_rows
                yield out
        at_work.counted[3] += (time.perf_counter_ns() - began) // 1000

    def _own(self, at_work: _Merging) -> pa.RecordBatch | None:
        """What the rows of this home have found in it: their positions, distances, and the rows themselves."""
        if not at_work.own or at_work.near is None:
            return None
        found = concat(at_work.own)
        near = take_unchecked(at_work.near, found.column(WHICH).to_numpy())
        owner = pa.array(found.column(ID).to_numpy().astype(np.int64))
        names = [ID, FAR, *columns_of(POINT_PAYLOAD, near.num_columns)]
        return pa.RecordBatch.from_arrays([owner, found.column(FAR), *near.columns], names=names)

    def _chosen(self, parts: Sequence[tuple[Index, pa.RecordBatch]]) -> tuple[Index, pa.RecordBatch, Values, Index]:
        """The nearest of some candidates: positions of the asking rows, rows, distances, ranks."""
        none = np.empty(0, dtype=np.int64)
        if not parts:
            return none, self.nothing(), none.astype(np.uint64 if self.spec.whole else np.float64), none
        owner = np.concatenate([part[0] for part in parts])
        found = parts[0][1] if len(parts) == 1 else concat([rows for _, rows in parts])
        far = found.column(FAR).to_numpy()
        rows = found.select(range(2, found.num_columns))
        chosen = choose(self.spec, owner, far, [rows.column(at) for at in self.spec.order])
        if chosen.everything:
            return owner, rows, far, chosen.rank
        return owner[chosen.at], rows.take(chosen.at), far[chosen.at], chosen.rank


def placed(numbers: Index, wanted: Index) -> Index:
    """Where each wanted number is among distinct ones."""
    order = np.argsort(numbers)
    found = order[np.minimum(np.searchsorted(numbers, wanted, sorter=order), numbers.size - 1)]
    if not np.array_equal(numbers[found], wanted):
        raise RuntimeError("a task that ran again read its rows in another order: run the join once more")
    return found


@dataclass(frozen=True)
class BroadcastStage(ResultStage):
    """Asking rows in, and with them the whole answering side packed into one value; results out.  No shuffle."""

    packed: bool = False
    """Whether rows come as segments, each with that value: those of a stream."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        rows: pa.RecordBatch | None = None
        index = None
        opened = False
        counted = [0] * len(METRICS)
        payload = len(self.spec.payload[ASKING])
        for block, value in broadcast_blocks(batches, packed=self.packed):
            began = time.perf_counter_ns()
            if not opened:
                # Spark may see that the small side is empty, and then nobody packs it.
                rows, opened = unpack(value.as_buffer()) if value.is_valid else None, True
                index = self.index(rows)
            found = self.found(index, rows, self.columns(ASKING, block))
            out = self.rows_out(block.columns[:payload], block.num_rows, *self.ordered(found))
            spent = (time.perf_counter_ns() - began) // 1000
            for at, more in ((1, block.num_rows), (2, found[0].size), (3, spent), (5, out.num_rows)):
                counted[at] += more
            yield out
        if opened:
            counted[0], counted[4] = 0 if rows is None else rows.num_rows, 1
            yield self.counts(counted)
