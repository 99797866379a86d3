"""The memory of a cell, compiled: how much there is, and how the inputs divide it."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.columns.numba_cache import njit
from dovetail.families.approx.compiled import Index, Rows


class Memory(NamedTuple):
    """Memory and what is known of each input.

    ``limit`` and ``saturated`` (whether all inputs are) have one entry; ``peak`` is the most that was ever held: [rows,
    in the limit's unit].  The others have one entry per input: rows that asked for a slot, rows that have one, the cost
    of the most expensive row so far, the slots that the input may fill, rows too large for any slot.
    """

    limit: Index
    saturated: Index
    seen: Index
    held: Index
    row_cost: Index
    slots: Index
    peak: Index
    oversized: Index


@njit(_nrt=False)
def divide_memory(memory: Memory) -> None:  # pragma: no cover - compiled
    """Divide memory between the inputs: one that needs less than an equal part leaves the rest to the others.

    The paper gives every input a fixed part, which wastes what a small input does not need.  Here the size of an equal
    part falls as inputs grow, and never rises, so an input only ever has to give up slots: a random sample remains one
    when it loses its rows with the largest draws, but it could not get back what it has dropped.
    """
    sides = memory.seen.size
    part = memory.limit[0] // sides
    for _ in range(sides):
        done = 0
        rest = memory.limit[0]
        for s in range(sides):
            need = memory.seen[s] * memory.row_cost[s]
            if need <= part:
                rest -= need
                done += 1
        if done == sides:
            part = memory.limit[0]
            break
        larger = rest // (sides - done)
        if larger <= part:
            break
        part = larger
    saturated = 1
    for s in range(sides):
        if memory.row_cost[s] == 0 or memory.seen[s] * memory.row_cost[s] <= part:
            saturated = 0
        if memory.row_cost[s] > 0:
            memory.slots[s] = part // memory.row_cost[s]
    memory.saturated[0] = saturated


@njit(_nrt=False, forceinline=True)
def count_arrival(row: int, rows: Rows, memory: Memory) -> bool:  # pragma: no cover - compiled
    """Count a row that asks for a slot.  False if it is larger than an equal part of the memory."""
    s = rows.side[row]
    cost = rows.cost[row]
    if cost > memory.limit[0] // memory.seen.size:
        memory.oversized[s] += 1
        return False
    memory.seen[s] += 1
    if cost > memory.row_cost[s]:
        memory.row_cost[s] = cost
        divide_memory(memory)
    elif memory.saturated[0] == 0:
        divide_memory(memory)
    return True


@njit(_nrt=False, forceinline=True)
def record_peak(memory: Memory) -> None:  # pragma: no cover - compiled
    """Record how much is held, if it is more than ever before."""
    count, cost = 0, 0
    for s in range(memory.held.size):
        count += memory.held[s]
        cost += memory.held[s] * memory.row_cost[s]
    memory.peak[0] = max(memory.peak[0], count)
    memory.peak[1] = max(memory.peak[1], cost)
