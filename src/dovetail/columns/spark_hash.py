"""Cell numbers that Spark's hash partitioner sends where we want them.

Spark places a shuffled row by ``pmod(murmur3(key, seed 42), partitions)``.  Cells are few and their costs differ,
so leaving their places to chance would give one task twice the work of another.  Picking, for each cell, an
integer that hashes to the wanted partition keeps the balance without a custom partitioner.  Were Spark to change
its hash, only the balance would suffer, never a result.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(42)
_MOST_CANDIDATES = 1 << 22
"""Integers that are hashed at a time."""


def spark_partition(keys: npt.NDArray[np.int32], partitions: int) -> npt.NDArray[np.int64]:
    """The shuffle partition of each 32-bit integer key.

    Examples
    --------
    >>> spark_partition(np.arange(5, dtype=np.int32), 8).tolist()
    [7, 3, 6, 3, 6]
    """
    with np.errstate(over="ignore"):
        k = keys.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = _rotate(k, 15) * np.uint32(0x1B873593)
        h = _rotate(_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)  # the length of the key in bytes
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return np.mod(h.view(np.int32).astype(np.int64), partitions)


def _rotate(values: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def balance(costs: npt.NDArray[np.float64], partitions: int) -> npt.NDArray[np.int64]:
    """A partition for each cell, the dearest cell first to the least loaded partition.

    Examples
    --------
    >>> balance(np.array([5.0, 4.0, 3.0, 2.0]), 2).tolist()
    [0, 1, 1, 0]
    """
    loads = [(0.0, partition) for partition in range(partitions)]
    places = np.zeros(costs.size, dtype=np.int64)
    for cell in np.argsort(-costs, kind="stable"):
        load, partition = heapq.heappop(loads)
        places[cell] = partition
        heapq.heappush(loads, (load + float(costs[cell]), partition))
    return places


def cell_numbers(places: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]:
    """For each cell a distinct integer that Spark hashes to the cell's place.

    Examples
    --------
    >>> numbers = cell_numbers(np.array([0, 0, 1, 3]), 4)
    >>> spark_partition(numbers, 4).tolist()
    [0, 0, 1, 3]
    """
    wanted = np.bincount(places, minlength=partitions)
    step = min(64 * partitions * max(1, int(wanted.max(initial=1))), _MOST_CANDIDATES)
    candidates = np.empty(0, dtype=np.int32)
    homes = np.empty(0, dtype=np.int64)
    begin = 0
    while (np.bincount(homes, minlength=partitions) < wanted).any():
        more = np.arange(begin, begin + step, dtype=np.int32)
        candidates = np.concatenate([candidates, more])
        homes = np.concatenate([homes, spark_partition(more, partitions)])
        begin += step
    by_home = candidates[np.argsort(homes, kind="stable")]
    starts = np.searchsorted(np.sort(homes), np.arange(partitions))
    # The smallest candidates of a partition go to its cells, the last cell first: stored state is found by these.
    order = np.argsort(places, kind="stable")
    within = np.arange(places.size) - (np.cumsum(wanted) - wanted)[places[order]]
    numbers = np.empty(places.size, dtype=np.int32)
    numbers[order] = by_home[starts[places[order]] + wanted[places[order]] - 1 - within]
    return numbers


def placed(cells: int, partitions: int) -> tuple[int, ...]:
    """Numbers for so many cells that Spark's hash deals out evenly over its partitions."""
    places = balance(np.ones(cells), partitions)
    return tuple(cell_numbers(places, partitions).tolist())
