"""A theta join without a JVM: the very stages that Spark runs, called in the order in which Spark calls them.

Spark's part (key expressions, the hash of the equality keys, the shuffle by cell number) is played here in a few lines
of Python.  Rows are known by their place in their table, so a result is a list of pairs of row numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from dovetail.columns import broadcast as broadcast_module
from dovetail.columns.broadcast import PackStage
from dovetail.columns.layout import CELL_NUMBER, COUNTERS, HAS_MATCH, TURN, Source
from dovetail.columns.segments import blocks
from dovetail.conditions.comparison import Key, KeyType, Step
from dovetail.conditions.forms import Predicate, Term
from dovetail.conditions.predicates import parse
from dovetail.families.theta import fitting, join_stages, kernel, key_pairs, stages
from dovetail.families.theta.join_stages import METRICS, BroadcastStage, JoinStage, TaskLoad
from dovetail.families.theta.kernel import pairs
from dovetail.families.theta.paper.cross import cross_pairs
from dovetail.families.theta.router import without_sample
from dovetail.families.theta.spec import BOXES, CFS, FTJ, OBT, POINTS, RBM, Options, Prefap
from dovetail.families.theta.stages import FitStage, RouteStage
from dovetail.plan.theta import Facts, plan_theta
from dovetail.plan.theta_plan import ThetaStep

Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class Knobs:
    """Everything that must not change a result."""

    partitions: int = 3
    sampled: bool = True
    tasks: int = 1
    batch_rows: int = 1000
    cell_rows: int = 1 << 20
    join_rows: int = 1 << 20
    block_rows: int = 1 << 20
    chunk: int = 1 << 18
    hashes: int = 1 << 62
    """Hashes of equality keys are taken modulo this: 1 makes all of them collide."""
    fraction: float = 1.0
    seed: int = 0
    sources: bool = True
    """Whether keys that are columns of the payload are read there, or travel as columns of their own."""


@dataclass
class Result:
    """What came out: pairs of row numbers, and the counters of all cells."""

    pairs: list[Pair]
    counters: list[dict[str, int]]
    cells: int = 0

    def total(self, name: str) -> int:
        return sum(counts[name] for counts in self.counters)


def key_type(left: pa.DataType, right: pa.DataType) -> KeyType:
    """The type of a comparison, for the pairs of Arrow types that the tests use."""
    if pa.types.is_decimal(left) and pa.types.is_decimal(right):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        ddl = f"DECIMAL({precision},{scale})"
        return KeyType(ddl, "int" if precision <= 18 else "rank", unit=10**scale)
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return KeyType("BIGINT", "int")
    if left == right == pa.float32():
        return KeyType("FLOAT", "float32")
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return KeyType("DOUBLE", "float64")
    assert left == right
    simple = {
        pa.string(): KeyType("STRING", "rank"),
        pa.binary(): KeyType("BINARY", "rank"),
        pa.bool_(): KeyType("BOOLEAN", "int"),
        pa.date32(): KeyType("DATE", "int", micros=86_400_000_000),
        pa.timestamp("us", "UTC"): KeyType("TIMESTAMP", "int", micros=1),
    }
    return simple[left]


_ARROW = {
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}


def _evaluated(sql: str, ddl: str, table: pa.Table) -> pa.Array:
    """The few key expressions that a step can hold here: a column, or the negative of one."""
    negative = re.fullmatch(r"-\s*CAST\(\((.*)\) AS \w+\)", sql)
    name = re.fullmatch(r"`\w+`\.`(\w+)`", negative[1] if negative else sql)
    assert name is not None, sql
    kind = _arrow(ddl)
    column = table.column(name[1]).combine_chunks()
    column = column.cast(kind, safe=False) if column.type != kind else column
    if negative:
        values = column.to_numpy(zero_copy_only=False)
        column = pa.array(-values, kind, mask=column.is_null().to_numpy(zero_copy_only=False))
    return column


def _hash(values: Sequence[Any], modulus: int) -> int:
    plain = ["nan" if isinstance(v, float) and math.isnan(v) else v for v in values]
    return hash(tuple(plain)) % modulus - modulus // 2


def _sources(keys: Sequence[Key], table: pa.Table) -> tuple[Source | None, ...]:
    found: list[Source | None] = []
    for key in keys:
        name = re.fullmatch(r"`\w+`\.`(\w+)`", key.sql)
        at = table.column_names.index(name[1]) if name else -1
        found.append(Source(at) if name and table.schema.types[at] == _arrow(key.ddl) else None)
    return tuple(found)


def _arrow(ddl: str) -> pa.DataType:
    digits = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", ddl)
    return pa.decimal128(int(digits[1]), int(digits[2])) if digits else _ARROW[ddl]


def _flat(
    step: Step, side: int, table: pa.Table, knobs: Knobs, payload: bool, sources: Sequence[Source | None] = ()
) -> pa.RecordBatch:
    """Payload, keys and hash, as Spark hands them to a stage."""
    keys = step.point_keys if side == POINTS else step.box_keys
    columns = [_evaluated(key.sql, key.ddl, table) for key in keys]
    if step.equalities:
        values = zip(*(column.to_pylist() for column in columns[: len(step.equalities)]), strict=True)
        columns.append(pa.array([_hash(row, knobs.hashes) for row in values], pa.int64()))
    if payload:
        columns = [column for at, column in enumerate(columns) if at >= len(sources) or sources[at] is None]
        columns = [column.combine_chunks() for column in table.columns] + columns
    names = [str(at) for at in range(len(columns))]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _tasks(batch: pa.RecordBatch, knobs: Knobs) -> list[list[pa.RecordBatch]]:
    """Rows divided among tasks, and each task's rows cut into batches."""
    cuts = np.linspace(0, batch.num_rows, knobs.tasks + 1).astype(int)
    found = []
    for begin, end in pairwise(cuts.tolist()):
        rows = range(begin, end, knobs.batch_rows)
        found.append([batch.slice(at, min(knobs.batch_rows, end - at)) for at in rows])
    return found


def _first_row(batches: list[pa.RecordBatch], value: bytes) -> list[pa.RecordBatch]:
    """The batches with a last column that holds `value` in the first row and NULL elsewhere."""
    result, first = [], True
    for batch in batches:
        column = pa.array([value if first and at == 0 else None for at in range(batch.num_rows)], pa.binary())
        first = first and batch.num_rows == 0
        result.append(batch.append_column("g", column))
    return result


def published(algorithm: Any, p: int) -> Any:
    """The algorithm of a name with p partitions; a value as it is."""
    made = {"prefap": Prefap, "ftj": FTJ, "cfs": CFS, "obt": OBT, "rbm": RBM}
    return made[algorithm](p) if algorithm in made else algorithm


def plan(
    on: str,
    left: pa.Table,
    right: pa.Table,
    *,
    how: str = "inner",
    algorithm: Any = "auto",
    partitions: int = 3,
    broadcast: str | None = None,
) -> ThetaStep:
    """The step that the planner makes of a condition over R and S."""
    tables = {"R": left, "S": right}
    predicate = parse(on, {alias: table.column_names for alias, table in tables.items()})
    options = Options(how, published(algorithm, partitions))  # type: ignore[arg-type]
    facts = Facts(frozenset(), *_typed(predicate, tables), shuffle_partitions=partitions)
    planned = plan_theta(("R", "S"), predicate, facts, options, window=None, broadcast=broadcast, sample=True)
    assert not predicate.filters
    assert not predicate.rests
    return planned.steps[0]


def _typed(predicate: Predicate, tables: dict[str, pa.Table]) -> tuple[Any, Any]:
    def kind(term: Term) -> pa.DataType:
        return tables[term.alias].schema.field(re.fullmatch(r"`\w+`\.`(\w+)`", term.sql)[1]).type

    def both(parts: Sequence[Any]) -> list[Any]:
        return [(part, key_type(kind(part.left), kind(part.right))) for part in parts]

    return tuple(both(predicate.equalities)), tuple(both([*predicate.inequalities, *predicate.bands]))


def join(
    on: str,
    left: pa.Table,
    right: pa.Table,
    *,
    how: str = "inner",
    algorithm: Any = "auto",
    broadcast: str | None = None,
    knobs: Knobs | None = None,
    fitted_to: tuple[pa.Table, pa.Table] | None = None,
) -> Result:
    """Join two tables on a condition over R and S; `fitted_to` are the tables that decide where rows go."""
    knobs = knobs or Knobs()
    seen = fitted_to or (left, right)
    step = plan(on, left, right, how=how, algorithm=algorithm, partitions=knobs.partitions, broadcast=broadcast)
    with ExitStack() as stack:
        cut = partial(blocks, rows=knobs.block_rows)
        stack.enter_context(patch.object(stages, "blocks", cut))
        stack.enter_context(patch.object(broadcast_module, "blocks", cut))
        stack.enter_context(patch.object(join_stages, "JOIN_ROWS", knobs.join_rows))
        stack.enter_context(patch.object(kernel, "pairs", partial(pairs, chunk=knobs.chunk)))
        stack.enter_context(patch.object(key_pairs, "cross_pairs", partial(cross_pairs, chunk=knobs.chunk)))
        stack.enter_context(patch.object(fitting, "CELL_ROWS", knobs.cell_rows))
        # Few rows are to be cut by their results as many are.
        stack.enter_context(patch.object(fitting, "PAIRS_SEEN", 4))
        if how != "full":
            return _pass(step, left, right, knobs, seen)
        outer = _pass(step.with_how("left"), left, right, knobs, seen)
        unmatched = _pass(step.mirrored("anti"), right, left, knobs, seen[::-1])
        turned = [(None, row) for row, _ in unmatched.pairs]
        return Result([*outer.pairs, *turned], [*outer.counters, *unmatched.counters], outer.cells)


def _pass(step: ThetaStep, left: pa.Table, right: pa.Table, knobs: Knobs, seen: tuple[pa.Table, ...]) -> Result:
    swapped = step.step.swapped
    tables = [numbered(right), numbered(left)] if swapped else [numbered(left), numbered(right)]
    payload = tuple(table.num_columns for table in tables)
    common: dict[str, Any] = {"step": step.step, "options": step.kernel_options, "payload": payload}
    if knobs.sources:
        keys = (step.step.point_keys, step.step.box_keys)
        common["sources"] = tuple(_sources(*side) for side in zip(keys, tables, strict=True))
    types = {
        "point_types": tuple(tables[POINTS].schema.types),
        "box_types": tuple(tables[BOXES].schema.types),
    }
    if step.broadcast:
        batches, cells = _broadcast(BroadcastStage(**common, **types), tables, knobs), 0
    else:
        routing = fitted(step, common, list(seen[::-1] if swapped else seen), knobs)
        cells = routing.cells
        batches = _shuffled(JoinStage(**common, **types), routing, common, tables, knobs)
    result = Result([], [], cells)
    # The row number is the last payload column of its side.
    point_at, box_at = f"c{payload[POINTS] - 1}", f"d{payload[BOXES] - 1}"
    for batch in batches:
        for row in batch.to_pylist():
            if row[COUNTERS] is not None:
                result.counters.append(dict(zip(METRICS, row[COUNTERS], strict=True)))
                continue
            pair = (row[point_at], row.get(box_at))
            assert row.get(HAS_MATCH, True) == (pair[1] is not None) or box_at not in row
            result.pairs.append((pair[1], pair[0]) if swapped else pair)
    return result


def numbered(table: pa.Table) -> pa.Table:
    """The table with its row numbers as the last column."""
    return table.append_column("row_number", pa.array(range(table.num_rows), pa.int64()))


def fitted(step: ThetaStep, common: dict[str, Any], tables: list[pa.Table], knobs: Knobs) -> Any:
    """The routing that a sample of both tables gives."""
    everything = step.kernel_options.partitioning is not None
    if not knobs.sampled and not everything:
        return without_sample(step.step, knobs.partitions)
    # Samples hold no payload, so all keys travel.
    common = {name: value for name, value in common.items() if name != "sources"}
    random = np.random.default_rng(knobs.seed)
    fraction = 1.0 if everything else knobs.fraction
    parts = []
    deep_rows = random.random() < 0.5
    for side in (POINTS, BOXES):
        keys = _flat(step.step, side, tables[side], knobs, payload=False)
        dense = random.random(keys.num_rows) <= fraction
        sparse = dense & (random.random(keys.num_rows) <= fraction)
        deep = np.full(keys.num_rows, deep_rows and not everything) & (random.random(keys.num_rows) < 0.5)
        kept = dense & (sparse | ~deep)
        marks = {"draw": np.where(sparse, 0, 1), "deep": deep, "side": np.full(keys.num_rows, side, dtype=np.int32)}
        columns = {**marks, **{f"{'pb'[side]}{at}": column for at, column in enumerate(keys.columns)}}
        parts.append(pa.table(columns).filter(pa.array(kept)))
    sampled = pa.concat_tables(parts, promote_options="default").combine_chunks()
    # How many cells there are, and where they are cut, must not matter to any kind of join.
    listed = bool(random.random() < 0.5)
    fit = FitStage(**common, partitions=knobs.partitions, fractions=(fraction, fraction**2), lists_pairs=listed)
    (found,) = fit(iter(sampled.to_batches(max_chunksize=knobs.batch_rows)))
    return stages.read_routing(found.column(0)[0].as_buffer())


def _shuffled(
    stage: JoinStage, routing: Any, common: dict[str, Any], tables: list[pa.Table], knobs: Knobs
) -> Iterator[pa.RecordBatch]:
    raw = routing.to_buffer().to_pybytes()
    segments: list[pa.RecordBatch] = []
    for side in (POINTS, BOXES):
        static = None if knobs.sampled else raw
        route = RouteStage(**common, side=side, routing=static)
        for task in _tasks(_payload(common, side, tables[side], knobs), knobs):
            segments.extend(route(iter(task if static else _first_row(task, raw))))
    if not segments:
        return
    # Spark's part: rows of one number meet, points first.
    shuffled = pa.Table.from_batches(segments).sort_by([(CELL_NUMBER, "ascending"), (TURN, "ascending")])
    load = TaskLoad()
    for number in sorted(set(shuffled.column(CELL_NUMBER).to_pylist())):
        of_cell = shuffled.filter(pa.compute.equal(shuffled.column(CELL_NUMBER), number))
        yield from stage.run(iter(of_cell.to_batches(max_chunksize=3)), load)


def _payload(common: dict[str, Any], side: int, table: pa.Table, knobs: Knobs) -> pa.RecordBatch:
    sources = common.get("sources")
    return _flat(common["step"], side, table, knobs, payload=True, sources=sources[side] if sources else ())


def _broadcast(stage: BroadcastStage, tables: list[pa.Table], knobs: Knobs) -> Iterator[pa.RecordBatch]:
    common = {"step": stage.step, "sources": stage.sources}
    small = _payload(common, BOXES, tables[BOXES], knobs)
    (packed,) = PackStage()(iter([small]))
    raw = packed.column(0)[0].as_py()
    for task in _tasks(_payload(common, POINTS, tables[POINTS], knobs), knobs):
        yield from stage(iter(_first_row(task, raw)))
