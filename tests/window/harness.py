"""A window join without a JVM: the router and the kernel that Spark runs, called in the order in which Spark does.

Rows are known by their place in their table (the column ``n``), so a result is a multiset of tuples of row numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from tests.theta.harness import _arrow, key_type

from dovetail.columns.segments import pack, unpack
from dovetail.conditions.forms import Predicate, Term
from dovetail.conditions.predicates import parse
from dovetail.conditions.roles import Roles, implied
from dovetail.families.shedding.spec import Shed
from dovetail.families.window.completion import CompletingKernel
from dovetail.families.window.graph import Within, window_graph
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import Options, WindowJoinSpec
from dovetail.families.window.stream import WindowJoinKernel
from dovetail.plan.theta import Facts
from dovetail.plan.window import InputColumns, plan_window
from dovetail.plan.window_plan import WindowPlan

Rows = tuple[int | None, ...]
Make = Callable[[WindowJoinSpec], WindowJoinKernel]


def kernel_of(spec: WindowJoinSpec) -> WindowJoinKernel:
    """The kernel that Spark would run."""
    return CompletingKernel(spec) if spec.extras else WindowJoinKernel(spec)


@dataclass
class Joined:
    """What came out, call by call, and what the last call counted."""

    found: Counter[Rows] = field(default_factory=Counter)
    by_call: list[Counter[Rows]] = field(default_factory=list)
    counters: list[dict[str, int]] = field(default_factory=list)
    state: dict[int, dict[str, bytes]] = field(default_factory=dict)

    def total(self, name: str) -> int:
        return sum(counts.get(name, 0) for counts in self.counters)


def make_plan(
    on: str | None,
    tables: Mapping[str, pa.Table],
    within: Within,
    *,
    streaming: bool,
    how: str | Mapping[str, Any] = "inner",
    algorithm: str = "auto",
    approach: str = "local",
    partitions: int = 3,
    delays: Sequence[int] | None = None,
    idle: int | None = None,
    shed: Shed | None = None,
) -> WindowPlan:
    """The plan of a join over tables with a whole-number time ``t``."""
    aliases = tuple(tables)
    columns = {alias: table.column_names for alias, table in tables.items()}
    predicate = Predicate("TRUE") if on is None else parse(on, columns)
    roles = None if isinstance(how, str) else Roles.of(how, aliases)
    if roles is not None:
        predicate = implied(predicate, aliases, roles)
    facts = Facts(
        frozenset(aliases) if streaming else frozenset(), *_typed(predicate, tables), shuffle_partitions=partitions,
        rests=predicate.rests,
    )  # fmt: skip
    options = Options(roles or how, algorithm, approach, partitions)  # type: ignore[arg-type]
    graph = window_graph(within, aliases, numeric=True, roles=roles)
    return plan_window(
        aliases, predicate, facts, options, graph, columns={alias: _columns(table) for alias, table in tables.items()},
        times=("t",) * len(aliases), numeric=True, delays=tuple(delays or [0] * len(aliases)), idle=idle,
        shed=shed,
    )  # fmt: skip


def _typed(predicate: Predicate, tables: Mapping[str, pa.Table]) -> tuple[Any, Any]:
    def kind(term: Term) -> pa.DataType:
        return tables[term.alias].schema.field(re.fullmatch(r"`\w+`\.`(\w+)`", term.sql)[1]).type

    def both(parts: Sequence[Any]) -> list[Any]:
        return [(part, key_type(kind(part.left), kind(part.right))) for part in parts]

    return tuple(both(predicate.equalities)), tuple(both([*predicate.inequalities, *predicate.bands]))


_TYPES = {
    pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double", pa.string(): "string",
}  # fmt: skip


def _columns(table: pa.Table) -> InputColumns:
    types = tuple(_TYPES.get(kind, str(kind)) for kind in table.schema.types)
    return InputColumns(tuple(table.column_names), types, tuple(table.schema.types))


def make_spec(plan: WindowPlan, *, sources: bool = True) -> WindowJoinSpec:
    """The spec of a plan; without `sources` all keys travel behind the payload."""
    return plan.spec if sources else replace(plan.spec, sources=tuple((None,) * len(keys) for keys in plan.spec.keys))


def flat(spec: WindowJoinSpec, side: int, table: pa.Table) -> pa.RecordBatch:
    """The payload and the keys that travel behind it, as Spark hands them to the router."""
    columns = [column.combine_chunks() for column in table.columns]
    for key, source in zip(spec.keys[side], spec.sources[side], strict=True):
        if source is None:
            name = re.fullmatch(r"`\w+`\.`(\w+)`", key.sql)
            assert name is not None, key.sql
            columns.append(table.column(name[1]).combine_chunks().cast(_arrow(key.ddl), safe=False))
    return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])


def run_batch(
    spec: WindowJoinSpec, tables: Mapping[str, pa.Table], *, parts: int = 2, make: Make = kernel_of
) -> Joined:
    """The join of static tables, each read in `parts` tasks."""
    arrived: dict[int, list[tuple[int, bytes]]] = {}
    for side, alias in enumerate(spec.aliases):
        rows = flat(spec, side, tables[alias])
        for at in range(parts):
            part = rows.take(np.arange(at, rows.num_rows, parts))
            for number, piece in WindowRouter(spec, side).parts(part):
                arrived.setdefault(number, []).append((side, pack(piece).to_pybytes()))
    joined = Joined()
    for segments in arrived.values():
        kernel = make(spec)
        kernel.restore({}, None)
        for side, segment in segments:
            kernel.push(side, unpack(segment))
        kernel.end()
        _collect(spec, kernel, joined.found)
        kernel.changes()
        joined.counters.append(kernel.counters)
    return joined


Schedule = Sequence[Sequence[tuple[int, Sequence[int]]]]
"""Micro-batches, each a list of tasks: an input and the rows of it that the task reads."""


def run_stream(
    spec: WindowJoinSpec,
    tables: Mapping[str, pa.Table],
    schedule: Schedule,
    *,
    flush: int | None = None,
    make: Make = kernel_of,
    state: Mapping[int, dict[str, bytes]] | None = None,
) -> Joined:
    """The join of streams.  State passes through its stored form after every call, as if each were a restart.

    With `flush`, every input comes to that time in the end, without a row.  It may begin with the state of another run.
    """
    whole = [flat(spec, side, tables[alias]) for side, alias in enumerate(spec.aliases)]
    joined = Joined(state={number: dict(segments) for number, segments in (state or {}).items()})
    last = [] if flush is None else [[(side, ()) for side in spec.sides]]
    for at, batch in enumerate([*schedule, *last]):
        arrived: dict[int, list[tuple[int, bytes]]] = {}
        for side, rows in batch:
            router = WindowRouter(spec, side)
            block = whole[side].take(pa.array(list(rows), pa.int64()))
            top = flush if at == len(schedule) else router.top(block)
            for number, piece in [*router.parts(block), *(router.ticks(top) if top is not None else [])]:
                arrived.setdefault(number, []).append((side, pack(piece).to_pybytes()))
        found: Counter[Rows] = Counter()
        counters: Counter[str] = Counter()
        for number, segments in arrived.items():
            state = joined.state.setdefault(number, {})
            kernel = make(spec)
            kernel.restore({name: unpack(segment) for name, segment in state.items()}, None)
            for side, segment in segments:
                kernel.push(side, unpack(segment))
            _collect(spec, kernel, found)
            changes = kernel.changes()
            for name in changes.dropped:
                state.pop(name, None)
            for name, rows in changes.stored.items():
                state[name] = pack(rows).to_pybytes()
            assert kernel.wake_at() is None
            counters.update(kernel.counters)
        joined.by_call.append(found)
        joined.found.update(found)
        joined.counters.append(dict(counters))
    return joined


def _collect(spec: WindowJoinSpec, kernel: WindowJoinKernel, found: Counter[Rows]) -> None:
    # The row number is the last payload column of its input.
    names = [f"i{side}_{spec.payload[side] - 1}" for side in spec.emitted]
    for batch in kernel.results():
        assert batch.num_rows
        for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
            found[row] += 1
