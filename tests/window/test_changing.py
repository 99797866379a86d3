"""Window joins that are defined otherwise from some micro-batch on, against a loop that knows when rows arrived."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.changing import GIVEN, NOTHING_GONE, Carry, Definition, Standing
from dovetail.columns.segments import concat, pack, unpack
from dovetail.errors import CheckpointError
from dovetail.families.window.changing import TakeRows, WindowAdoption, carry
from dovetail.families.window.inventory import HEAD, layout
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.inventory import StateLayout

from .drawn import draw_join
from .harness import flat, make_plan, run_stream
from .shapes import table
from .test_rerouting import held
from .test_stream import spec_of

LAST = 10_000
CONDITIONS = {
    "A.k = B.k": lambda a, b: a["k"] == b["k"],
    "ABS(A.w - B.w) <= 1": lambda a, b: None not in (a["w"], b["w"]) and abs(a["w"] - b["w"]) <= 1,
    "A.w < B.w": lambda a, b: None not in (a["w"], b["w"]) and a["w"] < b["w"],
    "A.k = B.k AND A.w <= B.w": lambda a, b: (
        a["k"] == b["k"] and None not in (a["w"], b["w"]) and a["w"] <= b["w"]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """One definition of a join of A and B."""

    on: str
    low: int
    high: int
    how: str
    delays: tuple[int, int]
    tasks: int

    def spec(self, tables: dict[str, pa.Table]) -> WindowJoinSpec:
        within = {("A", "B"): (self.low, self.high)}
        return make_plan(
            self.on, tables, within, streaming=True, how=self.how, partitions=self.tasks, delays=self.delays
        ).spec

    def definition(self, spec: WindowJoinSpec) -> Definition:
        names = [["t", "k", "s", "v", "w", "n"]] * 2
        read = StateLayout.read(layout(spec, names, tasks=self.tasks).stored())
        assert read is not None
        window = f"{self.low} to {self.high}"
        parts = {"inputs": "A, B", "time": "t, t", "how": self.how, "window": window, "condition": self.on}
        return Definition(parts, read)

    def holds(self, a: dict[str, Any], b: dict[str, Any]) -> bool:
        return self.low <= b["t"] - a["t"] <= self.high and CONDITIONS[self.on](a, b)


def definitions(draw: random.Random) -> tuple[Drawn, Drawn]:
    disorder = draw.randint(0, 4)

    def one(on: str, how: str) -> Drawn:
        low = -draw.randint(0, 12)
        delays = disorder + draw.choice([0, 0, 3]), disorder + draw.choice([0, 0, 5])
        return Drawn(on, low, max(low, draw.randint(-2, 12)), how, delays, draw.randint(1, 3))

    how = draw.choice(["inner", "left", "right", "full", "semi", "anti"])
    on = draw.choice(list(CONDITIONS))
    return one(on, how), one(draw.choice([on, on, *CONDITIONS]), how)


def rows_of(draw: random.Random, *, nulls: bool) -> list[dict[str, Any]]:
    return [
        {
            "t": draw.randint(0, 60), "k": draw.choice([0, 0, 1, 2]), "s": "x", "v": 1.0,
            "w": None if nulls and draw.random() < 0.2 else draw.randint(0, 6),
        }
        for _ in range(draw.randint(10, 30))
    ]  # fmt: skip


def changed(state: dict[int, dict[str, bytes]], old: Definition, new: WindowJoinSpec, goes: Carry) -> Any:
    """The state of the new join, by way of what Spark calls on its way."""
    pieces: dict[int, list[list[pa.RecordBatch]]] = {number: [[], []] for number in new.numbers}
    for side in (0, 1):
        take = TakeRows(old.layout, side, goes.since["AB"[side]], tuple(range(6)))
        taken = [
            rows
            for segments in state.values()
            for rows in take({0: {name: unpack(content) for name, content in segments.items()}})
        ]
        if not taken:
            continue
        held = concat(taken)
        names = ["t", "k", "s", "v", "w", "n"]
        rows = pa.Table.from_arrays(held.columns[:-1], names=names)
        block = flat(new, side, rows).append_column(GIVEN, held.column(GIVEN))
        for number, part in WindowRouter(new, side).parts(block):
            pieces[number][side].append(part)
    adoption = WindowAdoption(new, False, goes.told)
    return {
        number: {name: pack(rows).to_pybytes() for _, name, rows in adoption.segments(pieces[number])}
        for number in adoption.cells
    }


def tops_of(state: dict[int, dict[str, bytes]]) -> tuple[int | None, ...]:
    import json

    heads = [json.loads(unpack(segments[HEAD]).schema.metadata[b"about"])["tops"] for segments in state.values()]
    return tuple(max((top for top in tops if top is not None), default=None) for tops in zip(*heads, strict=True))


def scheduled(draw: random.Random, rows: dict[str, list[dict[str, Any]]], disorder: int) -> list[Any]:
    """Micro-batches in which no row comes later than that behind another."""
    order = sorted(
        ((row["t"] if row["t"] is not None else draw.uniform(0, 16)) + draw.uniform(0, disorder), side, number)
        for side, alias in enumerate(rows)
        for number, row in enumerate(rows[alias])
    )
    schedule = []
    while order:
        size = draw.randint(1, 12)
        batch = [(side, [number for _, at, number in order[:size] if at == side]) for side in range(len(rows))]
        schedule.append([(side, numbers) for side, numbers in batch if numbers])
        order = order[size:]
    return schedule


@pytest.mark.in_turns(group="several seconds")
@given(seed=st.integers(0, 1 << 40))
@examples(400)
def test_a_pair_counts_by_the_definition_in_force_when_its_last_row_arrives(seed):
    draw = random.Random(seed)
    old, new = definitions(draw)
    nulls = "w" not in old.on
    rows = {alias: rows_of(draw, nulls=nulls) for alias in "AB"}
    tables = {alias: table(rows[alias]) for alias in "AB"}
    schedule = scheduled(draw, rows, min(*old.delays, *new.delays))
    cut = draw.randint(1, len(schedule))
    arrived = [
        {n for batch in schedule[:cut] for at, numbers in batch if at == side for n in numbers} for side in (0, 1)
    ]
    specs = old.spec(tables), new.spec(tables)
    before, after = old.definition(specs[0]), new.definition(specs[1])
    first = run_stream(specs[0], tables, schedule[:cut])
    goes = carry(before, after, Standing(tops=tops_of(first.state)))
    state = changed(first.state, before, specs[1], goes)
    second = run_stream(specs[1], tables, schedule[cut:], flush=LAST, state=state)
    found = first.found + second.found
    allowed, required = expected(rows, arrived, old, new, goes.complete_from)
    assert found - allowed == Counter(), "what is no result, or twice"
    for side in (0, 1) if old.how in ("left", "right", "full") else ():
        alone = {key[side] for key in found if key[1 - side] is None}
        assert not alone & {key[side] for key in found if None not in key}, "with a match and without"
    assert required - found == Counter(), "what is missing"
    assert sum(second.counters[-1][f"held_rows_{alias}"] for alias in "AB") == 0


def expected(
    rows: dict[str, list[dict[str, Any]]], arrived: list[set[int]], old: Drawn, new: Drawn, complete: int | None
) -> tuple[Counter, Counter]:
    """What may come out, and what must."""
    first = NOTHING_GONE if complete is None else complete
    pairs: dict[tuple[int, int], bool] = {}
    for a, one in enumerate(rows["A"]):
        for b, other in enumerate(rows["B"]):
            late = a not in arrived[0] or b not in arrived[1]
            if (new if late else old).holds(one, other):
                pairs[a, b] = not late or min(one["t"], other["t"]) >= first
    allowed: dict[tuple[int | None, ...], bool] = {}
    if old.how in ("inner", "left", "right", "full"):
        allowed |= pairs
    if old.how == "semi":
        for (a, _), must in pairs.items():
            allowed[(a,)] = allowed.get((a,), False) or must
    for side, kept in ((0, ("left", "full", "anti")), (1, ("right", "full"))):
        for n, row in enumerate(rows["AB"[side]]):
            key = (n,) if old.how == "anti" else (n, None) if side == 0 else (None, n)
            others = [pair for pair in pairs if pair[side] == n]
            early = [pair for pair in others if pair[0] in arrived[0] and pair[1] in arrived[1]]
            if old.how in kept and not others:
                allowed[key] = n in arrived[side] or row["t"] >= first
            elif old.how in kept and not early and n in arrived[side] and complete is not None:
                # The old join may have given it, before a row came that it would match now.
                allowed[key] = False
    return Counter(dict.fromkeys(allowed, 1)), Counter({key: 1 for key, must in allowed.items() if must})


@pytest.mark.in_turns(group="several seconds")
@given(seed=st.integers(0, 1 << 40))
@examples(400)
def test_lateness_may_change_on_a_checkpoint_of_its_own(seed):
    """Rows that wait for their windows to close come out once, whatever lateness closes them."""
    draw = random.Random(seed)
    one = definitions(draw)[0]
    waits = [tuple(2 + draw.choice([0, 5, 15]) for _ in "AB") for _ in range(2)]
    how = draw.choice(["left", "right", "full", "anti"])
    old, new = (replace(one, how=how, delays=delays) for delays in waits)
    rows = {alias: rows_of(draw, nulls=True) for alias in "AB"}
    tables = {alias: table(rows[alias]) for alias in "AB"}
    schedule = scheduled(draw, rows, 2)
    cut = draw.randint(0, len(schedule))
    first = run_stream(old.spec(tables), tables, schedule[:cut])
    second = run_stream(new.spec(tables), tables, schedule[cut:], flush=LAST, state=first.state)
    assert first.found + second.found == expected(rows, [set(), set()], old, new, None)[0]


@pytest.mark.in_turns(group="several seconds")
@given(seed=st.integers(0, 1 << 40))
@examples(200)
def test_lateness_may_change_where_inputs_complete_matches(seed):
    draw = random.Random(seed)
    drawn = draw_join(draw)
    case = drawn.case
    rows = {alias: rows.to_pylist() for alias, rows in case.tables.items()}
    schedule = scheduled(draw, rows, 2)
    cut = draw.randint(0, len(schedule))
    specs = [
        spec_of(case, streaming=True, partitions=2, delays=[2 + draw.choice([0, 4]) for _ in rows], how=drawn.how)
        for _ in range(2)
    ]
    first = run_stream(specs[0], case.tables, schedule[:cut])
    second = run_stream(specs[1], case.tables, schedule[cut:], flush=LAST, state=first.state)
    assert first.found + second.found == drawn.expected()


def test_a_longer_window_says_since_when_nothing_is_missing():
    tables = {alias: table([{"t": t, "k": 0, "s": "x", "v": 1.0, "w": 0} for t in range(0, 100, 5)]) for alias in "AB"}
    old = Drawn("A.k = B.k", -10, 10, "inner", (0, 0), 1)
    specs = [
        Drawn("A.k = B.k", -wide, wide, how, (0, 0), 1) for wide, how in ((5, "inner"), (30, "inner"), (30, "left"))
    ]
    before = old.definition(old.spec(tables))
    standing = Standing(tops=(95, 95))
    shorter, longer, outer = (
        carry(before, one.definition(one.spec(tables)), standing) for one in [*specs[:2], specs[1]]
    )
    assert shorter.complete_from is None
    # Both inputs have come to 95, and rows more than 10 before that have gone.
    assert longer.complete_from == outer.complete_from == 85
    left = Drawn("A.k = B.k", -10, 10, "left", (0, 0), 1)
    kept = carry(left.definition(left.spec(tables)), specs[2].definition(specs[2].spec(tables)), standing)
    # A row of A that is at least 30 after that knows all of B that it could match.
    assert kept.complete_from == 115


def test_a_row_that_a_band_has_copied_is_taken_once():
    tables = {alias: table([{"t": t, "k": 0, "s": "x", "v": 1.0, "w": t} for t in range(3)]) for alias in "AB"}
    band, keys = (Drawn(on, -9, 9, "inner", (0, 0), 2) for on in ("ABS(A.w - B.w) <= 1", "A.k = B.k"))
    specs = [one.spec(tables) for one in (band, keys)]
    first = run_stream(specs[0], tables, [[(0, [0, 1, 2]), (1, [0, 1, 2])]])
    assert held(first.state)[1] > 3, "nothing was copied, so nothing is tested"
    definitions_of = [one.definition(spec) for one, spec in zip((band, keys), specs, strict=True)]
    goes = carry(*definitions_of, Standing(tops=tops_of(first.state)))
    assert held(changed(first.state, definitions_of[0], specs[1], goes)) == [3, 3]


def test_which_rows_are_copies_must_have_been_noted():
    tables = {alias: table([{"t": 1, "k": 0, "s": "x", "v": 1.0, "w": 0}]) for alias in "AB"}
    band = Drawn("ABS(A.w - B.w) <= 1", -5, 5, "inner", (0, 0), 1)
    before = band.definition(band.spec(tables))
    before.layout.facts["routing"]["grid"] = None
    with pytest.raises(CheckpointError, match="did not note which rows are copies"):
        carry(before, before, Standing(tops=(1, 1)))


def test_marks_of_rows_that_nobody_has_counted():
    """Of an inner join nobody knows which rows have matched: none of them comes out as one that has not."""
    rows = [{"t": t, "k": 0, "s": "x", "v": 1.0, "w": 0} for t in range(3)]
    tables = {alias: table(rows) for alias in "AB"}
    inner, left = (Drawn("A.k = B.k", -5, 5, how, (0, 0), 1) for how in ("inner", "left"))
    goes = carry(inner.definition(inner.spec(tables)), left.definition(left.spec(tables)), Standing(tops=(2, 2)))
    assert goes.told["given"] == ["all", "none"]
    assert np.isclose(goes.since["A"], -3)
