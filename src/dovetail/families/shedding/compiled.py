"""The compiled loop of window shredding: every so many rows of a window, evenly spread over it."""

from __future__ import annotations

import numpy as np

from dovetail.columns.codes import Codes
from dovetail.columns.numba_cache import njit
from dovetail.families.shedding.optimizer.model import Floats
from dovetail.families.window.compiled import first_from
from dovetail.families.window.encode import Index


@njit
def extend_thinned(
    step: float,
    phases: Floats,
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
) -> tuple[Index, Index, int, int]:  # pragma: no cover - compiled
    """Pairs as in :func:`dovetail.families.window.compiled.extend`, of one row in `step` of those in reach.

    Each partial match begins at a position of its own, `phases` in [0, step), so every row has the same chance.  Also
    gives how many rows were compared, and how many were in reach.
    """
    room = 1024
    out_partial, out_row = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    filled, compared, reached = 0, 0, 0
    conditions, size = row_low.shape[0], slots.size
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    hint = 0
    for p in range(earliest.size):
        until, end, slot = latest[p], last_slot[p], first_slot[p]
        if slot > end or earliest[p] > until:
            continue
        due, seen = phases[p], 0
        at = first_from(slots, times, slot, earliest[p], hint)
        hint = min(at, size - 1)
        while at < size and slots[at] <= end:
            if slots[at] > slot:
                slot = slots[at]
            if times[at] < earliest[p]:
                at = first_from(slots, times, slot, earliest[p], at)
                continue
            after = first_from(slots, times, slot, until + 1, at) if until < highest else size
            if until == highest and slot < highest:
                after = first_from(slots, times, slot + 1, lowest, at)
            while due < seen + (after - at):
                row = at + int(due - seen)
                compared += 1
                due += step
                fits = True
                for c in range(conditions):
                    if row_low[c, row] > partial_high[c, p] or row_high[c, row] < partial_low[c, p]:
                        fits = False
                        break
                if fits:
                    if filled == room:
                        room *= 2
                        more_partial, more_row = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
                        more_partial[:filled], more_row[:filled] = out_partial, out_row
                        out_partial, out_row = more_partial, more_row
                    out_partial[filled], out_row[filled] = p, rows[row]
                    filled += 1
            seen += after - at
            if slot == end or after >= size:
                break
            at = after
            if slots[at] == slot:
                at = first_from(slots, times, slot + 1, lowest, at)
        reached += seen
    return out_partial[:filled].copy(), out_row[:filled].copy(), compared, reached
