"""Streams of best-match joins for the tests: rows, their cuts, and a kernel that is stored at every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dovetail.columns.segments import pack, unpack
from dovetail.families.bestmatch.outputs import METRICS, output_names
from dovetail.families.bestmatch.spec import BestSpec
from dovetail.families.bestmatch.stream import BestKernel

from .shapes import BY_NAME, NAMES, Join, joins, tables

ORDERS = {"t4": "t", "x1": "x", "y.3": "y"}


class Run:
    """A kernel that is stored and made again at every step, as Spark does."""

    def __init__(self, spec: BestSpec, kind: Any = BestKernel) -> None:
        self.spec, self.kind = spec, kind
        self.state: dict[str, bytes] = {}
        self.rows: list[dict[str, Any]] = []
        self.counters: Counter[str] = Counter()
        self.wake: int | None = None

    def step(
        self, segments: list[tuple[int, pa.RecordBatch]], watermark: int | None = None, *, end: bool = False
    ) -> None:
        kernel = self.kind(self.spec)
        kernel.restore({name: unpack(segment) for name, segment in self.state.items()}, watermark)
        for side, rows in segments:
            kernel.push(side, rows)
        if end:
            kernel.end()
        for batch in kernel.results():
            assert batch.schema.names == output_names(self.spec)
            self.rows += batch.to_pylist()
        changes = kernel.changes()
        for name in changes.dropped:
            self.state.pop(name, None)
        for name, rows in changes.stored.items():
            self.state[name] = pack(rows).to_pybytes()
        self.wake = kernel.wake_at()
        assert set(kernel.counters) == set(METRICS)
        self.counters.update(kernel.counters)

    def pairs(self) -> Counter:
        """What came out, retractions taken back."""
        found: Counter = Counter()
        for row in self.rows:
            pair = row["i0_0"], row[f"i1_{NAMES.index('id')}"]
            found[pair] += -1 if row.get("_change") == "retract" else 1
            assert found[pair] >= 0
        return +found


@st.composite
def streams(draw: Any, **options: Any) -> tuple[Join, list[dict[str, Any]], list[dict[str, Any]]]:
    """A join that is ordered on its first criterion, and rows."""
    ordered = draw(st.sampled_from(sorted(ORDERS)))
    join = draw(joins(**options))
    shapes = (BY_NAME[ordered], *[shape for shape in join.shapes if shape.name != ordered][:3])
    return replace(join, shapes=shapes), draw(tables(12)), draw(tables(12))


def ordered_by(join: Join, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of the first criterion; those without a place in it where they are."""
    column = join.shapes[0].column
    placed = [row for row in rows if row[column] is not None and row[column] == row[column]]
    waiting = iter(sorted(placed, key=lambda row: row[column]))
    return [next(waiting) if row in placed else row for row in rows]


def cut(draw: Any, rows: list[Any], parts: int) -> list[list[Any]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=parts - 1, max_size=parts - 1)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def row(number: int, t: int | None, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "id": number, "t": t, **more}


def place_on(join: Join, row: dict) -> Any:
    """The value of a row on the first criterion, None where it has no place."""
    value = row[join.shapes[0].column]
    return None if value is None or value != value else value
