"""How much memory a worker may still take, how much rows take of it, and the words for what does not fit.

A worker may be limited itself (``spark.executor.pyspark.memory`` limits its address space), and it shares its container
and its machine with the other workers.  What is left is asked for only where many rows are in hand: cells of the usual
size never ask.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.errors import MemoryLimitError

if sys.platform != "win32":
    import resource

FLOOR = 16 << 20
"""Rows that take less than this are never too many, and nobody asks how much memory there is."""

LEAST = 4 << 20
"""Pieces are not smaller than this, however little memory there is."""

_PART = 8
"""One side of a join may take this part of what is left: the other side, the search and its results need theirs."""

_EACH = 64
"""What the search computes for each row: codes, their order, and where the matches of a row begin and end."""

_SEEN = 4096
"""Rows that are looked at to say which key is the most frequent."""


def cost(rows: pa.RecordBatch) -> int:
    """About what rows take while they are joined: themselves, one copy, and what is computed for each.

    Examples
    --------
    >>> cost(pa.RecordBatch.from_pydict({"x": [1, 2, 3]}))
    240
    """
    return 2 * rows.nbytes + _EACH * rows.num_rows


def width(types: Sequence[pa.DataType]) -> int:
    """About how many bytes a row takes; strings and nested values are guessed, since only rows could tell.

    Examples
    --------
    >>> width([pa.int64(), pa.int32(), pa.string()])
    76
    """
    return sum(kind.bit_width // 8 if pa.types.is_primitive(kind) else 64 for kind in types)


def share() -> int:
    """How much the rows of one side may take, of what this process may still take."""
    return max(LEAST, room() // _PART)


def room(*, alone: bool = False) -> int:
    """How many bytes this process may still take: by its own limits, and of what it shares with other processes.

    Of that it gets its part, or all of it if it is taken to be `alone`.
    """
    _give_back()
    together = [left for left in (_container(), _machine()) if left is not None]
    found = [*_own(), *(left if alone else left // _cores() for left in together)]
    return max(0, min(found)) if found else sys.maxsize


def _give_back() -> None:
    """Give back what has been freed and kept for later: it would count as taken."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only the C library of GNU can
        ctypes.CDLL(None).malloc_trim(0)


def is_short(size: int) -> bool:
    """Whether rows of so many bytes, which are in memory, leave too little of it to be joined.

    To put them in order takes at least as much again.  No other worker counts: only what has no chance is refused.
    """
    return size > FLOOR and size > room(alone=True)


def limit() -> int | None:
    """How many bytes of address space this process may have at all; None where nothing limits it alone."""
    if sys.platform == "win32":
        return None
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _own() -> Iterator[int]:
    """What the limits of the process leave, of address space and of memory that it alone can write."""
    if sys.platform == "win32":
        return
    limits = (resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)
    soft = [(resource.getrlimit(kind)[0], column) for kind, column in limits]
    if all(most == resource.RLIM_INFINITY for most, _ in soft):
        return
    taken = _read("/proc/self/statm").split()
    if not taken and sys.platform == "linux":
        yield 0  # not even enough to read that
    for most, column in soft:
        if most != resource.RLIM_INFINITY and len(taken) > column:
            yield most - int(taken[column]) * os.sysconf("SC_PAGE_SIZE")


_CONTAINERS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _container() -> int | None:
    """What the container has left for all its processes; files in its cache make room by themselves."""
    for folder, most, used, cached in _CONTAINERS:
        bounds = _read(f"{folder}/{most}").strip(), _read(f"{folder}/{used}").strip()
        if all(bound.isdigit() for bound in bounds):
            cache = _named(_read(f"{folder}/memory.stat"), f"{cached} ")
            return int(bounds[0]) - int(bounds[1]) + (cache or 0)
    return None


def _machine() -> int | None:
    """What the machine has left for all its processes."""
    kilobytes = _named(_read("/proc/meminfo"), "MemAvailable:")
    return None if kilobytes is None else kilobytes << 10


def _named(text: str, name: str) -> int | None:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line[len(name) :].split()[0])
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, MemoryError):
        return ""


def _cores() -> int:
    """How many workers may be at work beside each other."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_once(count: int, *sides: pa.RecordBatch) -> list[slice]:
    """So many joined rows in parts that may be in memory at once, by the width of the rows that are joined.

    Examples
    --------
    >>> at_once(5, pa.RecordBatch.from_pydict({"x": [1]}), pa.RecordBatch.from_pydict({"x": [1]}))
    [slice(0, 5, None)]
    """
    width = sum(side.nbytes / max(side.num_rows, 1) for side in sides)
    if count * width <= FLOOR:
        return [slice(0, count)]
    step = max(1, int(share() / max(width, 1)))
    return [slice(at, min(at + step, count)) for at in range(0, count, step)]


def in_words(size: int) -> str:
    """A number of bytes as a person reads it.

    Examples
    --------
    >>> in_words(300), in_words(3 << 19), in_words(5 << 30)
    ('300 bytes', '1.5 MiB', '5 GiB')
    """
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >> bits:
            return f"{round(size / (1 << bits), 1):g} {unit}"
    return f"{size} bytes"


def most_frequent(columns: Sequence[pa.Array[Any]]) -> str | None:
    """The key that most rows have and their share, as far as some of the rows tell; None where there are no keys.

    Examples
    --------
    >>> most_frequent([pa.array(["a", "b", "a", "a"]), pa.array([1, 2, 1, 1])])
    "75 % of them have the key ('a', 1)"
    """
    if not columns or not len(columns[0]):
        return None
    size = len(columns[0])
    some = np.unique(np.linspace(0, size - 1, min(size, _SEEN)).astype(np.int64))
    values = Counter(zip(*(column.take(some).to_pylist() for column in columns), strict=True))
    (key, count), *_ = values.most_common(1)
    shown = ", ".join(text if len(text) <= 60 else f"{text[:57]}..." for text in map(repr, key))
    return f"{100 * count / len(some):.0f} % of them have the key {shown if len(key) == 1 else f'({shown})'}"


def too_large(what: str, held: str, key: str | None, hint: str) -> MemoryLimitError:
    """The error for rows that must be in memory together and cannot be.

    Parameters
    ----------
    what
        The join, and what of it is too large.
    held
        How many rows are in hand, and their bytes.
    key
        What :func:`most_frequent` says of them.
    hint
        What helps.
    """
    given = f"{what} does not fit into the memory of its worker: {held}"
    if key is not None:
        given += f"; {key}"
    return MemoryLimitError(given, accepted=_accepted(), hint=hint)


def _accepted() -> str:
    """What a worker may have, in words."""
    most = limit()
    whole = "" if most is None else f" of {in_words(most)} (spark.executor.pyspark.memory)"
    return f"rows that fit into what the worker may still take, {in_words(room(alone=True))}{whole}"


WHAT_HELPS = (
    "more memory for each worker (spark.executor.pyspark.memory, spark.executor.memoryOverhead, fewer cores for each "
    "executor), more partitions=, fewer columns (select=), or a smaller spark.sql.execution.arrow.maxBytesPerBatch"
)


def used_up(what: str, said: str, key: str | None = None, hint: str = WHAT_HELPS) -> MemoryLimitError:
    """The error for an allocation that failed: what was at work, what is known of its keys, and what helps."""
    given = f"{what} ran out of memory"
    if said.strip():
        given += f" ({said.strip().splitlines()[0][:200]})"
    if key is not None:
        given += f"; as far as its new rows tell, {key}"
    return MemoryLimitError(given, accepted=_accepted(), hint=hint)
