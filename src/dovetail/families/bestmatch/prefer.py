"""Criteria that a user wrote in Python: the last filter, over the pairs that the compiled criteria leave undecided.

A function sees two pairs only if neither is better on one of the compiled criteria and worse on another.  This is the
one module where Python loops over pairs, because only Python can evaluate the order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.conditions.criteria import VERDICTS
from dovetail.errors import ArgumentError
from dovetail.families.bestmatch.compiled import Index, Matrix, pair_costs, relation, set_relation
from dovetail.families.bestmatch.encode import Rows
from dovetail.families.bestmatch.spec import BestSpec, Counters

_BITS = {"better": 1, "worse": 2, "equal": 0, "incomparable": 3, None: 3}


class Preferences:
    """The functions of a join, and the rows that they compare."""

    def __init__(
        self,
        spec: BestSpec,
        left: pa.RecordBatch,
        right: pa.RecordBatch,
        rows: tuple[Rows, Rows],
        counters: Counters,
        costs: Matrix | None = None,
    ) -> None:
        self._spec = spec
        self._rows = rows
        self._costs = costs
        self._counters = counters
        self._kinds = np.array([axis.number for axis in spec.compiled], dtype=np.int64)
        self._batches = [
            batch.select(range(spec.payload[side])).rename_columns(list(spec.names[side]))
            for side, batch in enumerate((left, right))
        ]
        self._seen: list[dict[int, dict[str, Any]]] = [{}, {}]

    def best(self, i: Index, j: Index, groups: Index) -> tuple[Index, Index]:
        """The pairs that no other pair of the same group beats; row numbers are those of the encoded rows."""
        if self._costs is not None:
            costs = self._costs[i]
        else:
            costs = pair_costs(self._kinds, self._rows[0].values, self._rows[1].values, i, j)
        order = np.argsort(groups, kind="stable")
        kept: list[int] = []
        first = 0
        for at in order:
            if kept and len(kept) > first and groups[kept[first]] != groups[at]:
                first = len(kept)
            kept = self._with_pair(kept, first, int(at), i, j, costs)
        chosen = np.array(kept, dtype=np.int64)
        return i[chosen], j[chosen]

    def _with_pair(self, kept: list[int], first: int, at: int, i: Index, j: Index, costs: Matrix) -> list[int]:
        """The best pairs so far, those of the group from `first` on, after one more pair of the group."""
        beaten: set[int] = set()
        for other in kept[first:]:
            bits = self._relation(other, at, i, j, costs)
            if bits == 1:
                return kept
            if bits == 2:
                beaten.add(other)
        return [*kept[:first], *(pair for pair in kept[first:] if pair not in beaten), at]

    def _relation(self, one: int, other: int, i: Index, j: Index, costs: Matrix) -> int:
        bits = relation(costs[one], costs[other])
        if bits != 3 and self._spec.sets:
            bits |= set_relation(self._rows[0].sets, self._rows[1].sets, i[one], j[one], i[other], j[other])
        for judge in self._spec.judges:
            if bits == 3:
                break
            self._counters.judged += 1
            verdict = judge(self._pair(i[one], j[one]), self._pair(i[other], j[other]))
            if not isinstance(verdict, str | None) or verdict not in _BITS:
                raise ArgumentError(
                    f"prefer({getattr(judge, '__name__', judge)}) answered {verdict!r}",
                    accepted=", ".join(repr(word) for word in VERDICTS),
                )
            bits |= _BITS[verdict]
        return bits

    def _pair(self, i: int, j: int) -> dict[str, dict[str, Any]]:
        return {self._spec.aliases[0]: self._row(0, int(i)), self._spec.aliases[1]: self._row(1, int(j))}

    def _row(self, side: int, number: int) -> dict[str, Any]:
        row = self._seen[side].get(number)
        if row is None:
            row = self._batches[side].slice(int(self._rows[side].positions[number]), 1).to_pylist()[0]
            self._seen[side][number] = row
        return row
