"""The small side of a broadcast join: packed into one value that travels with the rows of the other.

Where both sides are small, one task reads them, and packs that value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from dovetail.columns.layout import ROUTING, SEGMENT
from dovetail.columns.segments import binary_column, blocks, carried_value, concat, pack, unpack


def broadcast_blocks(
    batches: Iterable[pa.RecordBatch], *, packed: bool
) -> Iterator[tuple[pa.RecordBatch, pa.BinaryScalar]]:
    """Blocks of rows, each with the value that holds the small side.

    Static rows carry that value on the first row of a task.  A stream has no such first row, so its rows come `packed`:
    each is a segment of rows, with the small side in the column behind it.
    """
    if packed:
        for batch in batches:
            for at in range(batch.num_rows):
                yield unpack(batch.column(0)[at].as_buffer()), batch.column(1)[at]
        return
    value, rest = carried_value(batches)
    if value is not None:
        for block in blocks(rest):
            yield block, value


def broadcast_parts(
    batches: Iterable[pa.RecordBatch], *, packed: bool
) -> Iterator[tuple[pa.RecordBatch, list[pa.Buffer]]]:
    """Blocks of rows, each with the parts of the small side.

    The first row of a task carries them in its last column; where rows come `packed`, a task begins with rows that are
    no segments and have a part each.

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"x": [1, 2], "g": [[b"some", b"more"], []]})
    >>> [(rows, parts)] = broadcast_parts([batch], packed=False)
    >>> rows.num_rows, [part.to_pybytes() for part in parts]
    (2, [b'some', b'more'])
    >>> segment = pack(pa.RecordBatch.from_pydict({"x": [1, 2]})).to_pybytes()
    >>> batch = pa.RecordBatch.from_pydict({"segment": [None, None, segment], "g": [b"some", b"more", None]})
    >>> [(rows, parts)] = broadcast_parts([batch], packed=True)
    >>> rows.num_rows, [part.to_pybytes() for part in parts]
    (2, [b'some', b'more'])
    """
    parts: list[pa.Buffer] = []
    if packed:
        for batch in batches:
            for segment, part in zip(*batch.columns, strict=True):
                if part.is_valid:
                    parts.append(part.as_buffer())
                if segment.is_valid:
                    yield unpack(segment.as_buffer()), parts
        return
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is not None:
        others = range(first.num_columns - 1)
        carried: Any = first.column(len(others))[0]
        parts = [part.as_buffer() for part in carried.values if part.is_valid]
        for block in blocks(batch.select(others) for batch in chain([first], filled)):
            yield block, parts


@dataclass(frozen=True)
class PackStage:
    """Rows in, segments out: one of all rows for the small side of a broadcast join, blocks for a stream."""

    whole: bool = True
    opens: bool = False
    """Whether a row without a segment comes before the first block, for the small side to be joined to."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once a task."""
        if not self.whole:
            for number, block in enumerate(blocks(batches)):
                if self.opens and number == 0:
                    yield pa.RecordBatch.from_arrays([pa.nulls(1, pa.binary())], names=[SEGMENT])
                yield pa.RecordBatch.from_arrays([binary_column([pack(block)])], names=[SEGMENT])
            return
        held = list(batches)
        if held:
            yield pa.RecordBatch.from_arrays([binary_column([pack(concat(held))])], names=[SEGMENT])


@dataclass(frozen=True)
class TogetherStage:
    """Rows of both sides in, in any order; what a broadcast join makes of them out.

    The first column says which side a row belongs to: the `large` one (0) or the `small` one (1).  Sides may share the
    others.

    Examples
    --------
    >>> def join(batches):
    ...     for rows, small in broadcast_blocks(batches, packed=False):
    ...         yield rows, unpack(small.as_buffer())
    >>> both = pa.RecordBatch.from_pydict({"side": [1, 0, 0], "number": [3, 1, 2], "text": ["a", None, None]})
    >>> [(rows, small)] = TogetherStage(join, PackStage(), {"x": 1}, {"y": 1, "name": 2})([both])
    >>> rows.to_pydict(), small.to_pydict()
    ({'x': [1, 2]}, {'y': [3], 'name': ['a']})
    """

    join: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    """A stage that reads the rows of the large side, of which the first carries the small one."""
    pack: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    large: Mapping[str, int]
    """The columns of a side, as the stages name them, and where they are."""
    small: Mapping[str, int]
    listed: bool = False
    """Whether `join` reads the small side as a list of parts; otherwise it is packed into one."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Called by Spark once, in a single task."""
        large: list[pa.RecordBatch] = []
        small: list[pa.RecordBatch] = []
        for batch in batches:
            side = batch.column(0).to_numpy()
            for number, held, places in ((0, large, self.large), (1, small, self.small)):
                of_side = side == number
                if of_side.any():
                    rows = batch if of_side.all() else batch.filter(pa.array(of_side))
                    columns = [rows.column(at) for at in places.values()]
                    held.append(pa.RecordBatch.from_arrays(columns, names=list(places)))
        if large:
            parts = [packed.column(0) for packed in self.pack(small)] or [pa.nulls(1, pa.binary())]
            values: pa.Array[Any] = pa.concat_arrays(parts)
            if self.listed:
                values = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
            others = pa.nulls(large[0].num_rows - 1, values.type)
            # Whoever reads that value drops the last column of the first batch from all others.
            first_rows = large[0].append_column(ROUTING, pa.concat_arrays([values, others]))
            yield from self.join(chain([first_rows], large[1:]))
