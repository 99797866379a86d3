"""An approximate join without a JVM: the kernel called as the drivers call it, on plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.segments import pack, unpack
from dovetail.conditions.comparison import Key
from dovetail.conditions.limits import Limit
from dovetail.families.approx.compiled import buckets_of, draws
from dovetail.families.approx.spec import ApproxSpec
from dovetail.families.approx.stream import METRICS, ApproxKernel

NAMES = ("A", "B", "C", "D")


def equality_spec(
    policy: str, memory: int | Limit | None, *, sides: int = 2, kind: str = "int", **options: Any
) -> ApproxSpec:
    """Inputs with an id and a join value k."""
    limit = Limit(memory) if isinstance(memory, int) else memory
    keys = tuple((Key(f"`{alias}`.`k`", "BIGINT", alias),) for alias in NAMES[:sides])
    options.setdefault("strata", 1024 if policy == "raj_hash" else 1)
    return ApproxSpec(
        aliases=NAMES[:sides], payload=(1,) * sides, keys=keys, value=((0,),) * sides, kinds=(kind,), edges=(),
        policy=policy, memory=limit, **options,
    )  # fmt: skip


def hashes(values: Sequence[Any]) -> np.ndarray:
    """A hash of each value, as Spark would give one; NULL has one too."""
    return np.array([hash((0x5EED, v)) if v is not None else 0 for v in values], dtype=np.int64)


def segment(rows: Sequence[tuple[int, Any, int]], kind: pa.DataType | None = None) -> pa.RecordBatch:
    """Rows (id, join value, place) as Spark packs them."""
    ids, values, places = ([row[at] for row in rows] for at in range(3))
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(values, kind or pa.int64()),
        pa.array(hashes(values)),
        pa.array(places, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["c0", "k0", "h", "a"])


@dataclass
class Driver:
    """The streaming driver's part: a new kernel for every call, with all it knows in a map of bytes."""

    spec: ApproxSpec
    kind: pa.DataType = field(default_factory=pa.int64)
    state: dict[str, bytes] = field(default_factory=dict)
    found: list[tuple[int, ...]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)
    kernels: int = 0

    def call(self, arrivals: Sequence[tuple[int, int, Any]], first: int) -> None:
        """Arrivals (input, id, join value), the first of which has the place `first`."""
        kernel = ApproxKernel(self.spec)
        kernel.restore({name: unpack(value) for name, value in self.state.items()}, None)
        for side in range(self.spec.sides):
            rows = [(number, k, first + at) for at, (s, number, k) in enumerate(arrivals) if s == side]
            if rows:
                kernel.push(side, segment(rows, self.kind))
        for batch in kernel.results():
            assert batch.schema.names == self.spec.output_names()
            self.found += zip(*[batch.column(f"i{at}_0").to_pylist() for at in range(self.spec.sides)], strict=True)
            if self.spec.weighted:
                self.weights += batch.column("weight").to_pylist()
        changes = kernel.changes()
        assert not set(changes.stored) & changes.dropped
        assert changes.dropped <= set(self.state)
        for name in changes.dropped:
            del self.state[name]
        self.state.update({name: pack(rows).to_pybytes() for name, rows in changes.stored.items()})
        assert set(kernel.counters) == set(METRICS)
        self.counters.append(dict(kernel.counters))


def run(
    spec: ApproxSpec,
    arrivals: Sequence[tuple[int, int, Any]],
    cuts: Sequence[int] = (),
    kind: pa.DataType | None = None,
) -> Driver:
    """All arrivals, cut into calls at `cuts`."""
    driver = Driver(spec, kind or pa.int64())
    ends = [*sorted({cut for cut in cuts if 0 < cut < len(arrivals)}), len(arrivals)]
    begin = 0
    for end in ends:
        driver.call(arrivals[begin:end], begin)
        begin = end
    return driver


def draw_of(spec: ApproxSpec, cell: int = 0):
    """The random number of a row, for the reference."""
    return lambda side, number: int(draws(spec.seed, cell, side, np.array([number]))[0])


def bucket_of(count: int, salt: int):
    return lambda k: int(buckets_of(hashes([k]), count, salt)[0])


def exact(arrivals: Sequence[tuple[int, int, Any]], sides: int = 2) -> set[tuple[int, ...]]:
    """The complete join, by value."""
    found: list[tuple[int, ...]] = [()]
    by_value: dict[Any, list[list[int]]] = {}
    for side, number, k in arrivals:
        if k is not None:
            by_value.setdefault(k, [[] for _ in range(sides)])[side].append(number)
    result: set[tuple[int, ...]] = set()
    for lists in by_value.values():
        found = [()]
        for numbers in lists:
            found = [(*one, number) for one in found for number in numbers]
        result.update(found)
    return result
