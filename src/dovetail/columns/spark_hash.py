"""Cell numbers that Spark's hash partitioner sends to the partition we want.

Spark sends a shuffled row to partition ``pmod(murmur3(key, seed 42), partitions)``.  Cells are few and their costs
differ, so chance would give one task twice the work of another.  Choosing, for each cell, an integer that hashes to the
wanted partition balances the tasks without a custom partitioner.  If Spark changed its hash, tasks would be less even,
but no result would change.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

_SEED = np.uint32(42)
_MOST_CANDIDATES = 1 << 22
"""The most integers to hash at a time."""


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
    """The partition of each cell: the most expensive cell goes first, each to the partition with the least load.

    Parameters
    ----------
    costs : ndarray of float64
        The work of each cell, in any unit.
    partitions : int
        How many partitions share it.

    Returns
    -------
    ndarray of int64
        A partition for each cell, to be handed to :func:`cell_numbers`.

    Examples
    --------
    >>> balance(np.array([5.0, 4.0, 3.0, 2.0]), 2).tolist()
    [0, 1, 1, 0]
    """
    loads = [(0.0, partition) for partition in range(partitions)]
    chosen = np.zeros(costs.size, dtype=np.int64)
    for cell in np.argsort(-costs, kind="stable"):
        load, partition = heapq.heappop(loads)
        chosen[cell] = partition
        heapq.heappush(loads, (load + float(costs[cell]), partition))
    return chosen


def cell_numbers(targets: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]:
    """For each cell a distinct integer that Spark hashes to the partition it is meant for.

    The same targets always give the same numbers: streams store the state of a cell under its number.

    Parameters
    ----------
    targets : ndarray of int64
        The partition of each cell.
    partitions : int
        How many partitions there are.

    Returns
    -------
    ndarray of int32
        The number of each cell, the key of the shuffle.

    Examples
    --------
    >>> numbers = cell_numbers(np.array([0, 0, 1, 3]), 4)
    >>> spark_partition(numbers, 4).tolist()
    [0, 0, 1, 3]
    """
    wanted = np.bincount(targets, minlength=partitions)
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
    # The smallest candidates of a partition go to its cells, the last cell first.  Stored state depends on this order.
    order = np.argsort(targets, kind="stable")
    within = np.arange(targets.size) - (np.cumsum(wanted) - wanted)[targets[order]]
    numbers = np.empty(targets.size, dtype=np.int32)
    numbers[order] = by_home[starts[targets[order]] + wanted[targets[order]] - 1 - within]
    return numbers


def placed(cells: int, partitions: int) -> tuple[int, ...]:
    """Numbers for cells of equal cost: Spark's hash sends equally many cells to every partition, give or take one.

    Examples
    --------
    >>> spark_partition(np.array(placed(4, 2), dtype=np.int32), 2).tolist()
    [0, 1, 0, 1]
    """
    return tuple(cell_numbers(balance(np.ones(cells), partitions), partitions).tolist())
