"""Whole batch joins without a JVM: routed, cut, shuffled, joined; and beside the whole right side."""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.columns.codes import order_codes
from dovetail.columns.layout import CELL_NUMBER, COUNTERS, TURN
from dovetail.columns.segments import one_batch, pack
from dovetail.columns.structs import nest
from dovetail.families.asof import judged, router, stages
from dovetail.families.asof.join_stages import METRICS, BroadcastStage, JoinStage
from dovetail.families.asof.judged import CandidateStage, FinishStage
from dovetail.families.asof.router import Routing, fit, quantiles, without_sample
from dovetail.families.asof.spec import LEFT, RIGHT
from dovetail.families.asof.stages import FitStage, RouteStage
from dovetail.reference.asof import asof_join

from .harness import TIMES, Case, cases, pair_of, table


@dataclass(frozen=True)
class Knobs:
    """Everything that must not change a result."""

    partitions: int = 2
    sampled: bool = True
    tasks: int = 2
    batch_rows: int = 3
    buckets: int = 4
    cell_rows: int = 3
    collide: bool = False


knobs = st.builds(
    Knobs,
    partitions=st.integers(1, 3),
    sampled=st.booleans(),
    tasks=st.integers(1, 3),
    batch_rows=st.integers(1, 5),
    buckets=st.sampled_from([1, 2, 64]),
    cell_rows=st.sampled_from([1, 4, 1000]),
    collide=st.booleans(),
)


def tasks_of(rows: pa.Table, knobs: Knobs) -> list[list[pa.RecordBatch]]:
    batch = one_batch(rows)
    cuts = np.linspace(0, batch.num_rows, knobs.tasks + 1).astype(int).tolist()
    return [
        [batch.slice(at, min(knobs.batch_rows, end - at)) for at in range(begin, end, knobs.batch_rows)]
        for begin, end in pairwise(cuts)
    ]


def first_only(value: bytes | None, rows: int, *, batch: int) -> pa.Array:
    """A value on the first row of the first batch, NULL on all others."""
    return pa.array([value if at == batch == 0 else None for at in range(rows)], pa.binary())


def joining(case: Case, **options: object) -> JoinStage | CandidateStage:
    kind = CandidateStage if case.judged else BroadcastStage if options else JoinStage
    stage = kind(case.spec(), **options)
    return pickle.loads(pickle.dumps(stage))


def fitted(case: Case, knobs: Knobs) -> bytes:
    if not knobs.sampled:
        return without_sample(bool(case.keys), knobs.partitions).to_buffer().to_pybytes()
    sampled = []
    for side in (case.left, case.right):
        rows = one_batch(side)
        draw, deep = np.zeros(rows.num_rows, dtype=np.int64), np.arange(rows.num_rows) % 3 == 2
        columns = [pa.array(draw), pa.array(deep), *rows.columns[: len(case.keys) + 1]]
        sampled.append(pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(columns))]))
    (found,) = FitStage(TIMES[case.time].key.kind, knobs.partitions)(iter(sampled))
    return found.column(0)[0].as_py()


def shuffled(case: Case, knobs: Knobs) -> list[pa.RecordBatch]:
    if not case.spec().cuttable:
        knobs = replace(knobs, sampled=False)  # as the plan decides
    raw = fitted(case, knobs)
    segments = []
    for side, rows in ((LEFT, case.left), (RIGHT, case.right)):
        stage = RouteStage(case.spec(), side, None if knobs.sampled else raw)
        for batches in tasks_of(rows, knobs):
            if knobs.sampled:
                batches = [
                    batch.append_column("g", first_only(raw, batch.num_rows, batch=i))
                    for i, batch in enumerate(batches)
                ]
            segments.extend(stage(iter(batches)))
    if not segments:
        return []
    whole = pa.Table.from_batches(segments).sort_by([(CELL_NUMBER, "ascending"), (TURN, "ascending")])
    found = []
    for number in sorted(set(whole[CELL_NUMBER].to_pylist())):
        cell = whole.filter(pa.compute.equal(whole[CELL_NUMBER], number))
        found.extend(joining(case)(iter(cell.to_batches(max_chunksize=2))))
    return found


def pairs(case: Case, batches: list[pa.RecordBatch]) -> Counter:
    joined = [batch.filter(batch[COUNTERS].is_null()) for batch in batches]
    rows = [row for batch in joined for row in nest(batch, case.shape()).to_pylist()]
    return Counter(pair_of(row["l"], row.get("r")) for row in rows)


def counters(batches: list[pa.RecordBatch]) -> dict[str, int]:
    rows = [row[COUNTERS] for batch in batches for row in batch.to_pylist() if row[COUNTERS] is not None]
    return dict(zip(METRICS, np.sum(rows, axis=0).tolist(), strict=True)) if rows else dict.fromkeys(METRICS, 0)


def run(case: Case, knobs: Knobs) -> list[pa.RecordBatch]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(router, "BUCKETS", knobs.buckets))
        stack.enter_context(patch.object(router, "CELL_ROWS", knobs.cell_rows))
        if knobs.collide:
            stack.enter_context(patch.object(stages, "hashes_of", lambda _, size: np.zeros(size, dtype=np.int64)))
        return shuffled(case, knobs)


@given(cases(), knobs)
@examples(200)
def test_every_routing_gives_the_nested_loop(case, knobs):
    found = run(case, knobs)
    assert pairs(case, found) == case.expected()
    counts = counters(found)
    assert counts["results"] == case.expected().total()
    if case.how in ("left", "anti") and found:
        assert counts["rows_left"] == case.left.num_rows


@given(cases(hows=("inner", "left", "semi", "anti")), st.integers(1, 5), st.booleans())
def test_beside_the_whole_right_side(case, batch_rows, packed):
    right = pack(one_batch(case.right)).to_pybytes() if case.right.num_rows else None
    stage = joining(case, packed=packed)
    left = one_batch(case.left)
    batches = [left.slice(at, batch_rows) for at in range(0, left.num_rows, batch_rows)]
    if packed:
        segments = [pack(batch).to_pybytes() for batch in batches]
        rows = pa.table({"s": pa.array(segments, pa.binary()), "g": pa.array([right] * len(segments), pa.binary())})
        found = list(stage(iter(rows.to_batches())))
    else:
        marked = [
            batch.append_column("g", first_only(right, batch.num_rows, batch=i)) for i, batch in enumerate(batches)
        ]
        found = list(stage(iter(marked)))
    assert pairs(case, found) == case.expected()


@given(cases(times=("bigint", "double")), knobs)
def test_a_left_row_has_one_cell_and_its_match_is_in_it(case, knobs):
    """The router's promise, without a kernel."""
    spec = case.spec()
    with patch.object(router, "BUCKETS", knobs.buckets), patch.object(router, "CELL_ROWS", knobs.cell_rows):
        routing = Routing.from_buffer(fitted(case, knobs))
    left, right = one_batch(case.left), one_batch(case.right)
    rows, cells, copies = RouteStage(spec, LEFT).cells_of_rows(left, routing)
    assert copies == 0 or case.how in ("right", "full")
    rows, cells = rows[: rows.size - copies], cells[: cells.size - copies]
    assert len(set(rows.tolist())) == rows.size
    homes = dict(zip(rows.tolist(), cells.tolist(), strict=True))
    rows, cells, _ = RouteStage(spec, RIGHT).cells_of_rows(right, routing)
    held = [
        (cell, pair_of({"n": 0}, right.slice(row, 1).to_pylist()[0]))
        for row, cell in zip(rows.tolist(), cells.tolist(), strict=True)
    ]
    for found in case.replace(how="left").meaning():
        if found["R"] is not None:
            assert (homes[found["L"]["n"]], pair_of({"n": 0}, found["R"])) in held


def skewed(rows: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """One key with nine tenths of the rows."""
    random = np.random.default_rng(seed)
    made = []
    for names in (["k0", "t", "v", "w", "n"], ["k0", "t", "v", "w"]):
        key = np.where(random.random(rows) < 0.9, 7, random.integers(0, 50, rows))
        columns = [key.tolist(), random.integers(0, rows, rows).tolist(), [1.0] * rows, ["x"] * rows, list(range(rows))]
        types = [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.int64()]
        made.append(table(types[: len(names)], columns[: len(names)], names))
    return made[0], made[1]


@pytest.mark.in_turns
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["left", "full"])
def test_a_heavy_key_is_cut_by_time(direction, how):
    left, right = skewed(800, 1)
    case = Case(left, right, ("long",), "bigint", direction=direction, how=how)
    knobs = Knobs(partitions=4, buckets=64, cell_rows=1 << 20, batch_rows=100)
    found = run(case, knobs)
    assert pairs(case, found) == case.expected()
    counts = [row[COUNTERS] for batch in found for row in batch.to_pylist()]
    loads = [dict(zip(METRICS, count, strict=True)) for count in counts if count is not None]
    heaviest = max(one["rows_left"] + one["rows_right"] - one["copies"] for one in loads)
    assert heaviest < 1600 / 4
    assert 0 < counters(found)["copies"] < (200 if how == "left" else 800)


def test_without_a_sample_keys_are_dealt_out_and_the_keyless_stay_together():
    assert without_sample(False, 8).numbers.size == 1
    routing = Routing.from_buffer(without_sample(True, 8).to_buffer())
    assert routing.numbers.size == 32
    assert routing.cuts.size == 0


def test_quantiles_are_distinct_and_leave_something_before_the_first():
    assert quantiles(np.array([4, 4, 4, 4]), np.ones(4), 4).tolist() == []
    assert quantiles(np.array([1, 2, 3, 4]), np.array([1.0, 1.0, 1.0, 9.0]), 2).tolist() == [4]


def test_the_routing_survives_a_journey_and_an_empty_sample():
    routing = fit(
        np.array([1, 2, 3], dtype=np.int64),
        order_codes(pa.array([5, 6, 7]), "int"),
        np.ones(3),
        keyed=False,
        partitions=3,
    )
    again = Routing.from_buffer(routing.to_buffer())
    assert again.cuts.tolist() == routing.cuts.tolist() == [6, 7]
    (found,) = FitStage("int", 3)(iter([]))
    assert Routing.from_buffer(found.column(0)[0].as_buffer()).numbers.size == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["right", "full"])
def test_a_right_row_that_another_slice_chose_does_not_come_out_without_a_match(direction, how):
    """Few rows and many cuts: most matches lie in another slice, and several tasks have a say in each."""
    random = np.random.default_rng(8)
    knobs = Knobs(partitions=3, tasks=3, batch_rows=4, buckets=1, cell_rows=2)
    cut = 0
    for number in range(30):
        sizes = random.integers(2, 13, 2)
        left, right = (
            table([pa.int64(), pa.int64()], [random.integers(0, 40, size).tolist(), list(range(size))], ["t", name])
            for size, name in zip(sizes.tolist(), ("n", "v"), strict=True)
        )
        within = None if number % 2 else int(random.integers(1, 20))
        case = Case(left, right, (), "bigint", direction=direction, how=how, within=within, exact=number % 3 != 0)
        found = run(case, knobs)
        assert pairs(case, found) == case.expected()
        cut += counters(found)["copies"]
    assert cut > 200


def test_the_nearest_row_beyond_one_at_the_same_time_is_not_cut_off():
    """The first left row behind the slice of the right row at 0 prefers that at 10, which the second may not take."""
    left, right = table([pa.int64()] * 2, [[9, 10], [0, 1]], ["t", "n"]), table([pa.int64()], [[0, 10]], ["t"])
    case = Case(left, right, (), "bigint", direction="nearest", how="right", exact=False)
    assert case.expected() == {(0, (10,)): 1, (1, (0,)): 1}
    assert pairs(case, run(case, Knobs(partitions=3, tasks=1, buckets=1, cell_rows=1))) == case.expected()


def test_the_last_of_a_slice_is_the_last_by_the_whole_text():
    """They share the first eight bytes, which is all that a routing sees, and the rule for ties prefers the other."""
    right = table([pa.string(), pa.float64()], [["same first 8, a", "same first 8, b"], [9.0, 1.0]], ["t", "v"])
    left = table([pa.string(), pa.int64()], [[f"z{n}" for n in range(6)], list(range(6))], ["t", "n"])
    case = Case(left, right, (), "string", ties=("v",))
    found = run(case, Knobs(partitions=3, tasks=1, buckets=1, cell_rows=1, batch_rows=9))
    assert counters(found)["copies"] > 0
    assert pairs(case, found) == case.expected() == {(n, ("same first 8, b", 1.0)): 1 for n in range(6)}


@pytest.mark.in_turns(group="several seconds")
@given(cases(rows=9), knobs, st.integers(1, 7), st.integers(1, 9), st.data())
def test_pairs_that_spark_judges_in_any_batches(case, knobs, most, batch_rows, data):
    """Spark's verdict is drawn for every pair; the nested loop has the same ones for its condition."""
    # As with conditions, which is refused: decimals without a code have no distances there.
    assume(case.time != "wide" or (case.within is None and case.direction != "nearest"))
    numbered = case.right.append_column("j", pa.array(range(case.right.num_rows), pa.int64()))
    case = case.replace(judged=True, right=numbered)
    allowed = data.draw(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))))
    with patch.object(judged, "MOST_PAIRS", most):
        found = run(case, knobs)
    rows = pa.Table.from_batches([batch.filter(batch[COUNTERS].is_null()) for batch in found]) if found else None
    out = []
    if rows is not None:
        names = f"c{case.left.num_columns - 1}", f"d{case.right.num_columns - 1}"
        numbers = zip(*(rows[name].to_pylist() for name in names), strict=True)
        verdicts = [one in allowed for one in numbers]  # a row alone has no number on the other side
        rows = rows.append_column("keep", pa.array(verdicts, pa.bool_()))
        out = list(FinishStage(case.spec())(rows.to_batches(max_chunksize=batch_rows)))
    joined: Counter = Counter(
        pair_of(row["l"], row.get("r")) for batch in out for row in nest(batch, case.shape()).to_pylist()
    )
    holds = case.holds
    meant = asof_join(
        {"L": case.left.to_pylist(), "R": case.right.to_pylist()},
        time="t", by=case.by, direction=case.direction, within=case.plain_within(), how=case.how,
        allow_exact_matches=case.exact, ties=case.ties,
        where=lambda a, b: (a["n"], b["j"]) in allowed and holds(a, b),
    )  # fmt: skip
    assert joined == Counter(pair_of(one["L"], one.get("R")) for one in meant)
