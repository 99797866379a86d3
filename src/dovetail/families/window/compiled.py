"""The compiled loop of the indexed window join: partial matches meet the sorted rows of one more input."""

from __future__ import annotations

import numpy as np

from dovetail.columns.codes import Codes
from dovetail.columns.numba_cache import njit
from dovetail.families.window.encode import Index

Extended = tuple[Index, Index, int]
"""Partial matches and the rows that extend them, pair by pair, and how many pairs were compared."""


@njit
def first_from(slots: Codes, times: Index, slot: int, time: int, hint: int) -> int:  # pragma: no cover - compiled
    """The first position whose (slot, time) is not below the wanted one; gallops from `hint`."""
    size = slots.size
    at = min(max(hint, 0), size)
    step = 1
    if at < size and (slots[at] < slot or (slots[at] == slot and times[at] < time)):
        low = at + 1
        while low + step < size and (
            slots[low + step] < slot or (slots[low + step] == slot and times[low + step] < time)
        ):
            low += step + 1
            step *= 2
        high = min(size, low + step)
    else:
        high = at
        while high - step > 0 and not (
            slots[high - step] < slot or (slots[high - step] == slot and times[high - step] < time)
        ):
            high -= step
            step *= 2
        low = max(0, high - step)
    while low < high:
        middle = (low + high) // 2
        if slots[middle] < slot or (slots[middle] == slot and times[middle] < time):
            low = middle + 1
        else:
            high = middle
    return low


@njit
def extend(
    state: Index,
    slots: Codes,
    times: Index,
    rows: Index,
    first_slot: Codes,
    last_slot: Codes,
    earliest: Index,
    latest: Index,
    row_low: Codes,
    row_high: Codes,
    partial_low: Codes,
    partial_high: Codes,
    chunk: int,
    once: bool = False,
) -> Extended:  # pragma: no cover - compiled
    """Pairs (partial match, row) whose slot, time and further ranges fit; at most about `chunk` of them.

    With `once`, the first row that fits a partial match is the only one.

    Rows come in the order of (slot, time); row numbers `rows` follow that order, as do `row_low` and `row_high` of
    shape (conditions, rows).  state: partial match, its slot, position of the next row (-1 for not yet searched), and a
    hint where the last search began.
    """
    out_partial = np.empty(chunk, dtype=np.int64)
    out_row = np.empty(chunk, dtype=np.int64)
    filled, compared = 0, 0
    conditions = row_low.shape[0]
    lowest = np.iinfo(np.int64).min
    p, slot, at, hint = state[0], state[1], state[2], state[3]
    while p < earliest.size:
        until, end = latest[p], last_slot[p]
        if at < 0:
            slot = first_slot[p]
            at = first_from(slots, times, slot, earliest[p], hint) if slot <= end else slots.size
            hint = min(at, slots.size - 1)
        while at < slots.size and slots[at] <= end:
            if slots[at] > slot:
                # The slot asked for holds nothing in time: go on with the next one that holds anything at all.
                slot = slots[at]
                if times[at] < earliest[p]:
                    at = first_from(slots, times, slot, earliest[p], at)
                    continue
            if times[at] > until:
                if slot == end:
                    break
                at = first_from(slots, times, slot + 1, lowest, at)
                continue
            if filled == chunk:
                state[0], state[1], state[2], state[3] = p, slot, at, hint
                return out_partial, out_row, compared
            compared += 1
            fits = True
            for c in range(conditions):
                if row_low[c, at] > partial_high[c, p] or row_high[c, at] < partial_low[c, p]:
                    fits = False
                    break
            if fits:
                out_partial[filled] = p
                out_row[filled] = rows[at]
                filled += 1
                if once:
                    break
            at += 1
        p += 1
        at = -1
    state[0], state[1], state[2], state[3] = p, 0, -1, hint
    return out_partial[:filled].copy(), out_row[:filled].copy(), compared
