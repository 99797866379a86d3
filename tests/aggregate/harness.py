"""A join through all its stages without Spark: what Spark does between them is played here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from tests.aggregate.shapes import box_keys, points_batch

from dovetail.columns.layout import CELL_NUMBER, COUNTERS, TURN
from dovetail.columns.segments import pack
from dovetail.families.aggregate import line
from dovetail.families.aggregate.join_stages import METRICS, BroadcastStage, IndexStage, MergeStage
from dovetail.families.aggregate.router import Routing, Sample, fit, without_sample
from dovetail.families.aggregate.spec import AggregateSpec
from dovetail.families.aggregate.stages import ANSWERING, ASKING, AnswerStage, FitStage, RouteStage


def hashes(spec: AggregateSpec, rows: list[dict[str, Any]], *, few: bool) -> pa.Array[Any]:
    """Hashes of the key k; `few` makes different keys collide."""
    return pa.array([7 if few else hash((row["k"], "seed")) for row in rows], pa.int64())


def sides(
    spec: AggregateSpec, rows: list[Any], others: list[Any], *, few: bool
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The batches that reach the stages: keys and arguments; payload, keys, and numbers of rows."""
    answering = points_batch(spec, others)
    columns = [pa.array(range(len(rows)), pa.int64()), *box_keys(spec, rows)]
    names = ["c0", *(f"k{at}" for at in range(len(columns) - 1))]
    if spec.step.equalities:
        answering = answering.append_column("h", hashes(spec, others, few=few))
        columns.append(hashes(spec, rows, few=few))
        names.append("h")
    return answering, pa.RecordBatch.from_arrays(columns, names=names)


def fitted(spec: AggregateSpec, answering: pa.RecordBatch, asking: pa.RecordBatch, partitions: int) -> Routing:
    """The routing that all rows of both sides give."""
    keys = len(spec.step.point_keys), len(spec.step.box_keys)
    stage = FitStage(spec, partitions)
    parts = answering.select([*range(keys[0]), *(["h"] if stage.hashed else [])]), asking.drop_columns(["c0"])
    samples = []
    for side, part in enumerate(parts):
        good = np.flatnonzero(
            np.all([column.is_valid().to_numpy(zero_copy_only=False) for column in part.columns[: keys[side]]], axis=0)
        )
        samples.append(stage._sample(side, float(good.size), part.take(pa.array(good))))
    assert isinstance(samples[0], Sample)
    return fit(
        spec.step, samples[0], samples[1], partitions=partitions, exhaustive=spec.exhaustive, overlap=spec.overlap
    )


def play(
    spec: AggregateSpec, rows: list[Any], others: list[Any], *, partitions: int, sample: bool, tasks: int = 2,
    few: bool = False, again: int | None = None,
) -> tuple[dict[int, dict[str, Any]], dict[str, int]]:  # fmt: skip
    """The answers of each row by its number, and the counters.

    With a seed `again`, every routing task runs twice, with its rows in another order, and each cell gets its segments
    from one of the two runs, as after a lost executor.
    """
    cells = routed(spec, rows, others, partitions=partitions, sample=sample, tasks=tasks, few=few, again=again)
    merges: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for number in sorted(cells):
        for out in AnswerStage(spec, partitions)(_in_turn(cells[number])):
            _deal(merges, out)
    outs = [out for number in merges for out in MergeStage(spec, partitions)(_in_turn(merges[number]))]
    return _answers(spec, outs)


def routed(
    spec: AggregateSpec, rows: list[Any], others: list[Any], *, partitions: int, sample: bool, tasks: int = 2,
    few: bool = False, again: int | None = None,
) -> dict[int, list[pa.RecordBatch]]:  # fmt: skip
    """The segments of every cell."""
    draw = None if again is None else np.random.default_rng(again)
    answering, asking = sides(spec, rows, others, few=few)
    routing = fitted(spec, answering, asking, partitions) if sample else without_sample(spec.step, partitions)
    packed = routing.to_buffer().to_pybytes()
    cells: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for side, batch in ((ANSWERING, answering), (ASKING, asking)):
        for task in range(tasks):
            part = batch.take(pa.array(range(task, batch.num_rows, tasks), pa.int64()))
            runs = [part] if draw is None else [part, part.take(pa.array(draw.permutation(part.num_rows)))]
            dealt: list[dict[int, list[pa.RecordBatch]]] = []
            for rows_read in runs:
                dealt.append(defaultdict(list))
                batches = [rows_read] if rows_read.num_rows else []
                for out in RouteStage(spec, partitions, side=side, routing=packed)(batches):
                    _deal(dealt[-1], out)
            for number in sorted({number for run in dealt for number in run}):
                cells[number] += dealt[0 if draw is None else int(draw.integers(2))][number]
    return cells


def broadcast(
    spec: AggregateSpec, rows: list[Any], others: list[Any], *, packed: bool = False
) -> tuple[dict[int, dict[str, Any]], dict[str, int]]:
    """The answers where the answering side goes to every task."""
    answering, asking = sides(replace(spec), rows, others, few=False)
    parts = [answering.slice(0, 2), answering.slice(2, 3), answering.slice(5)]
    values = [out.column(0)[0].as_py() for part in parts if part.num_rows for out in IndexStage(spec)([part])]
    if not packed:
        carried = pa.array([values, *[[]] * (len(rows) - 1)][: len(rows)], pa.list_(pa.binary()))
        return _answers(spec, list(BroadcastStage(spec)([asking.append_column("g", carried)])))
    halves = [pack(half).to_pybytes() for half in (asking.slice(0, 3), asking.slice(3)) if half.num_rows]
    # A task begins with a row for each part, or one that Spark has joined to none.
    segments = pa.array([*[None] * max(1, len(values)), *halves], pa.binary())
    carried = pa.array([*(values or [None]), *[None] * len(halves)], pa.binary())
    batch = pa.RecordBatch.from_arrays([segments, carried], names=["v", "g"])
    # Several blocks of rows ask the same index.
    with mock.patch.object(line, "_LEAST_BLOCK", 2):
        return _answers(spec, list(BroadcastStage(spec, packed=True)([batch])))


def _deal(groups: dict[int, list[pa.RecordBatch]], out: pa.RecordBatch) -> None:
    for at in range(out.num_rows):
        groups[out.column(CELL_NUMBER)[at].as_py()].append(out.slice(at, 1))


def _in_turn(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return sorted(batches, key=lambda batch: batch.column(TURN)[0].as_py())


def _answers(spec: AggregateSpec, outs: list[pa.RecordBatch]) -> tuple[dict[int, dict[str, Any]], dict[str, int]]:
    answers: dict[int, dict[str, Any]] = {}
    counted = dict.fromkeys(METRICS, 0)
    for out in outs:
        for row in out.to_pylist():
            if row[COUNTERS] is not None:
                for name, value in zip(METRICS, row[COUNTERS], strict=True):
                    counted[name] += value
                continue
            assert row["c0"] not in answers, "a row came out twice"
            answers[row["c0"]] = {output.name: row[f"v{at}"] for at, output in enumerate(spec.outputs)}
    return answers, counted
