"""Best matches where the rows of a cell are more than a worker may hold: pieces of one side with pieces of the other.

A pair that another one beats within two pieces is beaten, whatever else there is.  So the best of all pairs are among
the best of each two pieces, and these are compared once more: those of a row, or in an inner join those of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from dovetail.columns.segments import concat
from dovetail.families.bestmatch.compiled import Index
from dovetail.families.bestmatch.encode import encode
from dovetail.families.bestmatch.kernel import best, best_of_pairs
from dovetail.families.bestmatch.outputs import OUTPUT_ROWS, has_row_columns, output_names, payload_columns
from dovetail.families.bestmatch.router import COPY
from dovetail.families.bestmatch.spec import BestSpec, Counters

RowsOf = Callable[[int], Iterator[pa.RecordBatch]]
"""The rows that travel as a side, piece by piece, as often as somebody asks."""


def best_in_pieces(spec: BestSpec, rows_of: RowsOf, counters: Counters) -> Iterator[pa.RecordBatch]:
    """The rows of the join."""
    home = spec.home_side

    def others() -> Iterator[pa.RecordBatch]:
        return chain(rows_of(1 - home), rows_of(1 - home + COPY))

    if spec.global_best:
        pairs = None
        for mine in rows_of(home):
            for other in others():
                pairs = _of_keys(spec, mine, other, pairs, counters)
        if pairs is not None:
            yield from _rows(spec, *pairs)
        return
    for mine in rows_of(home):
        numbers, found = np.empty(0, dtype=np.int64), None
        for other in others():
            numbers, found = _of_rows(spec, mine, other, numbers, found, counters)
        if found is not None:
            chosen = mine.take(numbers)
            yield from _rows(spec, *((chosen, found) if home == 0 else (found, chosen)))
        if spec.keep:
            alone = mine.take(np.setdiff1d(np.arange(mine.num_rows), numbers))
            yield from _rows(spec, *((alone, None) if home == 0 else (None, alone)))


def _of_rows(
    spec: BestSpec,
    mine: pa.RecordBatch,
    other: pa.RecordBatch,
    numbers: Index,
    found: pa.RecordBatch | None,
    counters: Counters,
) -> tuple[Index, pa.RecordBatch | None]:
    """The best rows of the other side so far, each with the number of the row that it is best for."""
    home = spec.home_side
    pairs = best(spec, *((mine, other) if home == 0 else (other, mine)), counters)
    if not pairs[0].size:
        return numbers, found
    more = other.take(pairs[1 - home])
    if found is None:
        return pairs[home], more
    numbers, rows = np.concatenate([numbers, pairs[home]]), concat([found, more])
    asking = mine.take(numbers)
    kept = best_of_pairs(spec, *((asking, rows) if home == 0 else (rows, asking)), numbers, None, counters)
    return numbers[kept], rows.take(kept)


def _of_keys(
    spec: BestSpec,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    pairs: tuple[pa.RecordBatch, pa.RecordBatch] | None,
    counters: Counters,
) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
    """The best pairs of each key so far."""
    i, j = best(spec, left, right, counters)
    if not i.size:
        return pairs
    more = left.take(i), right.take(j)
    if pairs is None:
        return more
    lefts, rights = (concat([old, new]) for old, new in zip(pairs, more, strict=True))
    groups = encode(spec, lefts, rights)[0].groups
    kept = best_of_pairs(spec, lefts, rights, groups, None, counters)
    return lefts.take(kept), rights.take(kept)


def _rows(spec: BestSpec, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """Output rows of pairs; None for the side that has no row."""
    size = left.num_rows if left is not None else 0 if right is None else right.num_rows
    for begin in range(0, size, OUTPUT_ROWS):
        numbers = np.arange(begin, min(begin + OUTPUT_ROWS, size))
        columns = [*payload_columns(spec, 0, left, numbers), *payload_columns(spec, 1, right, numbers)]
        if spec.keep:
            columns += has_row_columns([numbers if rows is not None else numbers * 0 - 1 for rows in (left, right)])
        yield pa.RecordBatch.from_arrays(columns, names=output_names(spec))
