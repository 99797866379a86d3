"""The held rows of a printed algorithm before and after a call: their parts, in order, as they are stored.

Which row leaves depends on where the rows of a sub-reservoir stand, and on priorities that were fixed when they
arrived.  So both are stored, in one line of numbers: the counts of arrivals by bucket, then for each input its held
rows in the order of its parts, as their numbers, priorities and arrivals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.families.approx.compiled import Chains, Index, Rows
from dovetail.families.approx.memory import Memory
from dovetail.families.approx.paper.compiled import BY_AGE, DISCARD, LEARNS, SHARED, Slots, restore_slots
from dovetail.families.approx.spec import ApproxSpec, in_parts

FEWEST, MOST = 1024, 65536
"""Buckets of join values by which arrivals are counted."""


def part_count(spec: ApproxSpec) -> int:
    """Sub-reservoirs or queues of each input."""
    return spec.strata if in_parts(spec.policy) else 1


def bucket_count(spec: ApproxSpec, budget: int) -> int:
    """Buckets by which arrivals are counted: in proportion to the memory, and two values seldom share one."""
    if spec.policy in ("raj_printed", "raj_hash_printed"):
        return 1
    return 1 << int(np.clip(2 * budget, FEWEST, MOST) - 1).bit_length()


def empty_slots(spec: ApproxSpec, rows: Rows, part: Index, bucket: Index, buckets: int) -> Slots:
    """No row is held, and none has arrived."""
    total, parts = part.size, part_count(spec)
    # A part never holds more rows than take part in the call.
    counts = np.bincount(rows.side * parts + part, minlength=2 * parts).reshape(2, parts)
    settings = np.zeros(4, dtype=np.int64)
    settings[DISCARD] = spec.discard
    settings[SHARED] = spec.policy == "prob_hash_printed" or spec.allocation == "variable"
    settings[LEARNS] = 1
    settings[BY_AGE] = spec.ties == "oldest"
    return Slots(
        part=part,
        members=np.empty(total, dtype=np.int64),
        begin=(np.cumsum(counts) - counts.ravel()).reshape(2, parts),
        sizes=np.zeros((2, parts), dtype=np.int64),
        bucket=bucket,
        arrived=np.zeros((2, buckets), dtype=np.int64),
        totals=np.zeros(2, dtype=np.int64),
        priority=np.zeros(total, dtype=np.float64),
        order=np.zeros(total, dtype=np.int64),
        arrival=np.zeros(total, dtype=np.int64),
        settings=settings,
    )


def stored(slots: Slots, begin: Index, numbers: Sequence[Index]) -> Index:
    """What is known besides the rows, as one line; rows of input s begin at ``begin[s]`` and have ``numbers[s]``."""
    line = [slots.arrived.ravel()]
    for s in range(2):
        parts = zip(slots.begin[s], slots.sizes[s], strict=True)
        held = np.concatenate([slots.members[at : at + size] for at, size in parts])
        line += [
            np.array([held.size]),
            numbers[s][held - begin[s]],
            slots.priority[held].view(np.int64),
            slots.arrival[held],
        ]
    return np.concatenate(line)


def restore(
    line: Index, rows: Rows, chains: Chains, memory: Memory, slots: Slots, begin: Index, numbers: Sequence[Index]
) -> None:
    """Take up what :func:`stored` gave; the held rows are among those of the call."""
    buckets = slots.arrived.size
    slots.arrived[:] = line[:buckets].reshape(slots.arrived.shape)
    slots.totals[:] = slots.arrived.sum(axis=1)
    at = buckets
    for s in range(2):
        size = int(line[at])
        wanted, priority, arrival = line[at + 1 : at + 1 + 3 * size].reshape(3, size)
        at += 1 + 3 * size
        sorted_by = np.argsort(numbers[s], kind="stable")
        held = begin[s] + sorted_by[np.searchsorted(numbers[s], wanted, sorter=sorted_by)]
        slots.priority[held] = priority.view(np.float64)
        slots.arrival[held] = arrival
        slots.order[held] = arrival if slots.settings[BY_AGE] else rows.draw[held]
        restore_slots(held, rows, chains, memory, slots)
