"""Segments out of a checkpoint, for which nobody vouches: a disk may have changed them, or a stranger made them.

A segment is Arrow IPC, which constructs nothing but columns.  What it says of itself is checked before anything reads
the columns, and what they are taken for is refused in words where they are something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from dovetail.columns.segments import one_batch
from dovetail.errors import CheckpointError, DovetailError

_NOT_OURS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, pa.ArrowException)
"""What it raises to read as state what is none: names, numbers, columns that are not there or of another type."""


@contextmanager
def read_as_state(what: str) -> Iterator[None]:
    """Refuse what is read within if it is not what Dovetail stores: damaged, or made by a stranger.

    Examples
    --------
    >>> with read_as_state("cell 3"):
    ...     {}["head"]
    Traceback (most recent call last):
    dovetail.errors.CheckpointError: cell 3 does not hold what Dovetail stores (KeyError: 'head')
      accepted: state that Dovetail has written
      hint: put the checkpoint back from a copy, or begin with an empty one
    """
    try:
        yield
    except (DovetailError, MemoryError):
        raise
    except _NOT_OURS as error:
        first = next(iter(str(error).splitlines()), "")
        raise CheckpointError(
            f"{what} does not hold what Dovetail stores ({type(error).__name__}: {first[:100]})",
            accepted="state that Dovetail has written",
            hint="put the checkpoint back from a copy, or begin with an empty one",
        ) from error


def opened(segment: pa.Buffer | bytes) -> pa.RecordBatch:
    """The rows of a stored segment, once all lengths and offsets in it are right: Arrow takes them on trust.

    Examples
    --------
    >>> from dovetail.columns.segments import pack
    >>> opened(pack(pa.RecordBatch.from_pydict({"x": ["a", "b"]}))).num_rows
    2
    """
    found: list[pa.RecordBatch] = []
    try:
        with pa.ipc.open_stream(segment) as reader:
            for rows in reader:
                rows.validate(full=True)
                found.append(rows)
            return one_batch(pa.Table.from_batches(found, reader.schema))
    except OSError as error:
        # Arrow's word for a message that is none; no file is read here.
        raise pa.ArrowInvalid(str(error)) from error
