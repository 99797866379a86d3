"""A nearest join through all its stages without Spark: what Spark does between them is played here."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from tests.nearest.shapes import Case, Row, seen

from dovetail.columns.layout import CELL_NUMBER, COUNTERS, TURN
from dovetail.columns.segments import binary_column, pack
from dovetail.families.nearest.fitting import fit
from dovetail.families.nearest.join_stages import METRICS, BroadcastStage, MergeStage
from dovetail.families.nearest.line import LineRouting, by_hash, for_everybody
from dovetail.families.nearest.line_stages import LineFitStage, LineJoinStage, LineRouteStage
from dovetail.families.nearest.router import Routing, without_sample
from dovetail.families.nearest.spec import ANSWERING, ASKING
from dovetail.families.nearest.stages import AnswerStage, FitStage, RouteStage

Answers = list[tuple[int, Any, Any, int | None]]


def hashes(rows: list[Row], *, few: bool) -> pa.Array[Any]:
    """Hashes of the key k; `few` makes different keys collide."""
    return pa.array([7 if few else hash((row["k"], "seed")) for row in rows], pa.int64())


def sides(case: Case, *, few: bool = False) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The batches that reach the stages: payload, keys and coordinates, hash, and numbers of asking rows."""
    asking = [pa.array([row["n"] for row in case.rows], pa.int64()), *case.keys(case.rows)]
    answering = [*case.payload(case.others), *case.keys(case.others)]
    if case.spec.keys:
        asking.append(hashes(case.rows, few=few))
        answering.append(hashes(case.others, few=few))
    asking.append(pa.array([(at % 3 << 33) + at for at in range(len(case.rows))], pa.int64()))
    batches = [
        pa.RecordBatch.from_arrays(columns, names=[f"x{at}" for at in range(len(columns))])
        for columns in (asking, answering)
    ]
    return batches[0], batches[1]


def routing_of(case: Case, asking: pa.RecordBatch, answering: pa.RecordBatch, partitions: int, share: int) -> Routing:
    """The routing that each `share`-th row of both sides gives."""
    stage = FitStage(case.spec, partitions)
    samples = []
    for batch, first in ((asking, 1), (answering, case.spec.held)):
        part = batch.select(range(first, first + case.spec.width + bool(case.spec.keys)))
        good = [
            at
            for at in range(0, batch.num_rows, share)
            if all(part.column(key)[at].is_valid for key in range(case.spec.width))
        ]
        samples.append(stage.sample(float(len(good) * share), part.take(pa.array(good, pa.int64()))))
    return fit(case.spec, samples[0], samples[1], partitions=partitions)


def play(
    case: Case, *, partitions: int, sample: bool = True, share: int = 1, tasks: int = 2, few: bool = False
) -> tuple[Answers, dict[str, int]]:
    """The answers, and the counters."""
    if case.spec.window is not None or (case.spec.metric == "line" and (sample or case.spec.keys)):
        return _play_line(case, partitions=partitions, sample=sample, share=share, tasks=tasks, few=few)
    cells = routed(case, partitions=partitions, sample=sample, share=share, tasks=tasks, few=few)
    merges: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for number in sorted(cells):
        for out in AnswerStage(case.spec, partitions)(_in_turn(cells[number])):
            _deal(merges, out)
    outs = [out for number in merges for out in MergeStage(case.spec, partitions)(_in_turn(merges[number]))]
    return _answers(outs)


def routed(
    case: Case, *, partitions: int, sample: bool = True, share: int = 1, tasks: int = 2, few: bool = False
) -> dict[int, list[pa.RecordBatch]]:
    """The segments of every cell."""
    asking, answering = sides(case, few=few)
    routing = without_sample(case.spec, partitions)
    if sample:
        routing = routing_of(case, asking, answering, partitions, share)
    packed = routing.to_buffer().to_pybytes()
    cells: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for side, batch in ((ANSWERING, answering), (ASKING, asking)):
        for task in range(tasks):
            part = batch.take(pa.array(range(task, batch.num_rows, tasks), pa.int64()))
            for out in RouteStage(case.spec, partitions, side=side, routing=packed)([part] if part.num_rows else []):
                _deal(cells, out)
    return cells


def line_routing(
    case: Case, asking: pa.RecordBatch, answering: pa.RecordBatch, partitions: int, share: int
) -> LineRouting:
    """The routing of a line that each `share`-th row of both sides gives."""
    stage = LineFitStage(case.spec, partitions, fractions=(1 / share, 1 / share))
    parts = []
    for side, (batch, first) in enumerate(((asking, 1), (answering, case.spec.held))):
        part = batch.select(range(first, first + case.spec.width + bool(case.spec.keys)))
        part = part.take(pa.array(range(0, batch.num_rows, share), pa.int64()))
        marks = {"draw": pa.array([0] * part.num_rows, pa.int64()), "deep": pa.array([False] * part.num_rows)}
        marks["side"] = pa.array([side] * part.num_rows, pa.int32())
        named = {f"{'pb'[side]}{at}": column for at, column in enumerate(part.columns)}
        parts.append(pa.table({**marks, **named}))
    rows = pa.concat_tables(parts, promote_options="default")
    (fitted,) = stage(rows.combine_chunks().to_batches())
    return LineRouting.from_buffer(fitted.column(0)[0].as_buffer())


def _play_line(
    case: Case, *, partitions: int, sample: bool, share: int, tasks: int, few: bool
) -> tuple[Answers, dict[str, int]]:
    asking, answering = sides(case, few=few)
    asking = asking.select(range(asking.num_columns - 1))
    unknown = for_everybody if case.spec.window is not None and not case.spec.keys else by_hash
    routing = line_routing(case, asking, answering, partitions, share) if sample else unknown(partitions)
    packed = routing.to_buffer().to_pybytes()
    cells: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for side, batch in ((ANSWERING, answering), (ASKING, asking)):
        for task in range(tasks):
            part = batch.take(pa.array(range(task, batch.num_rows, tasks), pa.int64()))
            stage = LineRouteStage(case.spec, partitions, side=side, routing=packed)
            for out in stage([part] if part.num_rows else []):
                _deal(cells, out)
    outs = [out for number in cells for out in LineJoinStage(case.spec, partitions)(_in_turn(cells[number]))]
    return _answers(outs)


def broadcast(case: Case) -> tuple[Answers, dict[str, int]]:
    """The answers where the answering side goes to every task."""
    asking, answering = sides(case)
    value = binary_column([pack(answering)])[0].as_buffer().to_pybytes() if case.others else None
    carried = pa.array([value, *[None] * (len(case.rows) - 1)][: len(case.rows)], pa.binary())
    return _answers(list(BroadcastStage(case.spec)([asking.append_column("g", carried)])))


def expected(case: Case) -> Answers:
    """The definition's answers."""
    return [(n, seen(other), far, rank) for n, other, far, rank in case.expected()]


def _deal(groups: dict[int, list[pa.RecordBatch]], out: pa.RecordBatch) -> None:
    for at in range(out.num_rows):
        groups[out.column(CELL_NUMBER)[at].as_py()].append(out.slice(at, 1))


def _in_turn(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return sorted(batches, key=lambda batch: batch.column(TURN)[0].as_py())


def _answers(outs: list[pa.RecordBatch]) -> tuple[Answers, dict[str, int]]:
    answers: Answers = []
    counted = dict.fromkeys(METRICS, 0)
    for out in outs:
        for row in out.to_pylist():
            if row[COUNTERS] is not None:
                for name, value in zip(METRICS, row[COUNTERS], strict=True):
                    counted[name] += value
                continue
            other = (row["d0"], row["d1"]) if row["b"] else None
            answers.append((row["c0"], other, row["distance"], row["rank"]))
    return answers, counted
