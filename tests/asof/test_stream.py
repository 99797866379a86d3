"""As-of joins of streams, as rows arrive: any cut, any restart, any disorder within the watermark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.columns.held import MOST_SEGMENTS
from dovetail.columns.segments import one_batch, pack, unpack
from dovetail.columns.structs import nest
from dovetail.families.asof.join_stages import JoinStage
from dovetail.families.asof.router import CellOfKeys
from dovetail.families.asof.spec import DIRECTIONS, HOWS, LEFT, RIGHT
from dovetail.families.asof.stream import STREAM_METRICS, AsofKernel
from dovetail.reference.asof import asof_join

from .harness import KEYS, Case, pair_of, table, wheres

TYPES = {"t": pa.int64(), "v": pa.float64(), "w": pa.string(), "n": pa.int64()}


@dataclass
class Run:
    """A kernel that is made again for every micro-batch, with all its state written and read in between."""

    case: Case
    watermark: int | None = None

    def __post_init__(self) -> None:
        self.stage = JoinStage(self.case.spec())
        self.state: dict[str, bytes] = {}
        self.found: Counter = Counter()
        self.counts: Counter = Counter()
        self.wake: int | None = None

    def step(self, left: pa.Table, right: pa.Table, *, end: bool = False) -> dict[str, int]:
        kernel = AsofKernel(self.stage)
        kernel.restore({name: unpack(segment) for name, segment in self.state.items()}, self.watermark)
        for side, rows in ((LEFT, left), (RIGHT, right)):
            if rows.num_rows:
                kernel.push(side, one_batch(rows))
        if end:
            kernel.end()
        for batch in kernel.results():
            self.found.update(pair_of(row["l"], row.get("r")) for row in nest(batch, self.case.shape()).to_pylist())
        changes = kernel.changes()
        assert changes.dropped <= set(self.state)
        assert not changes.dropped & set(changes.stored)
        for name in changes.dropped:
            del self.state[name]
        self.state.update({name: pack(rows).to_pybytes() for name, rows in changes.stored.items()})
        self.wake = kernel.wake_at()
        assert set(kernel.counters) == set(STREAM_METRICS)
        self.counts.update(kernel.counters)
        return kernel.counters

    def held(self, side: str) -> int:
        return sum(unpack(segment).num_rows for name, segment in self.state.items() if name[0] == side)


@st.composite
def histories(draw):
    """A join, and micro-batches of both sides: rows of about the same time, in any order, some of them late."""
    keys = tuple(draw(st.lists(st.sampled_from(["long", "string"]), max_size=1)))
    steps = draw(st.integers(1, 5))
    batches = []
    number = 0
    for step in range(steps):
        sides = []
        for side in (LEFT, RIGHT):
            size = draw(st.integers(0, 5))
            moments = st.none() | st.integers(4 * step - 6, 4 * step + 6)
            columns: list[list[Any]] = [
                draw(st.lists(st.none() | KEYS[key].values, min_size=size, max_size=size)) for key in keys
            ]
            columns.append(draw(st.lists(moments, min_size=size, max_size=size)))
            columns.append(draw(st.lists(st.sampled_from([None, 0.5, float("nan")]), min_size=size, max_size=size)))
            columns.append(draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=size, max_size=size)))
            names = [*[f"k{at}" for at in range(len(keys))], "t", "v", "w"]
            if side == LEFT:
                columns.append(list(range(number, number + size)))
                names.append("n")
                number += size
            types = [*[KEYS[key].arrow for key in keys], *[TYPES[name] for name in names[len(keys) :]]]
            sides.append(table(types, columns, names))
        batches.append(tuple(sides))
    case = Case(
        pa.concat_tables([left for left, _ in batches]),
        pa.concat_tables([right for _, right in batches]),
        keys,
        "bigint",
        direction=draw(st.sampled_from(DIRECTIONS)),
        how=draw(st.sampled_from([*HOWS, "right", "full"])),
        within=draw(st.sampled_from([0, 2, 7])),
        exact=draw(st.booleans()),
        ties=draw(st.sampled_from([(), ("w",)])),
    )
    if case.direction == "backward" and draw(st.booleans()):
        case = case.replace(within=None)
    elif draw(st.sampled_from([False, False, True])):
        case = case.replace(where=draw(wheres))
    return case, batches, draw(st.integers(0, 6))


def in_time(rows: pa.Table, watermark: int | None) -> pa.Table:
    """Rows that are not late; those without a time never are."""
    keep = [t is None or watermark is None or t >= watermark for t in rows["t"].to_pylist()]
    return rows.filter(pa.array(keep, pa.bool_()))


def next_watermark(seen: tuple[list[int], list[int]], delay: int) -> int | None:
    """The slower side's latest time, less the delay."""
    return min(max(times) for times in seen) - delay if all(seen) else None


def is_final(case: Case, found: dict[str, Any], watermark: int | None) -> bool:
    """Whether no right row from the watermark on can change a match: tried out, one possible row after another."""
    row = found["L"]
    if row["t"] is None or any(row[key] is None for key in case.by):
        return True
    if watermark is None:
        return False
    reach = row["t"] + (case.within or 0)
    if case.direction != "backward" and found["R"] is not None:
        reach = row["t"] + abs(found["R"]["t"] - row["t"])
    for moment in range(watermark, reach + 1):
        # The largest row that could come at this moment wins every tie.
        other = {key: row[key] for key in case.by} | {"t": moment, "v": float("nan"), "w": "z"}
        right = [other] if found["R"] is None else [found["R"], other]
        again = asof_join(
            {"L": [row], "R": right}, time="t", by=case.by, direction=case.direction, within=case.within, how="left",
            allow_exact_matches=case.exact, ties=case.ties,
        )  # fmt: skip
        if again[0]["R"] is other:
            return False
    return True


def may_be_chosen(case: Case, right: list[dict[str, Any]], watermark: int | None) -> list[dict[str, Any]]:
    """The right rows that some left row from the watermark on would choose: tried out, one after another."""
    usable = [row for row in right if row["t"] is not None and all(row[key] is not None for key in case.by)]
    if not usable:
        return []
    latest = max(row["t"] for row in usable)
    first = min(row["t"] for row in usable) if watermark is None else watermark
    keys = {tuple(row[key] for key in case.by) for row in usable}
    moments = range(first - 8, latest + 9) if watermark is None else range(first, latest + 9)
    left = [dict(zip(case.by, key, strict=True)) | {"t": moment} for key in keys for moment in moments]
    left += [dict(zip(case.by, key, strict=True)) | {"t": max(first, latest) + 100} for key in keys]
    found = asof_join(
        {"L": left, "R": right}, time="t", by=case.by, direction=case.direction, within=case.within, how="inner",
        allow_exact_matches=case.exact, ties=case.ties,
    )  # fmt: skip
    return [pair["R"] for pair in found]


def left_results(case: Case, found: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """What left rows and their matches give."""
    for pair in found:
        hit = pair["R"] is not None
        if case.how in ("semi", "anti"):
            if hit == (case.how == "semi"):
                yield pair_of(pair["L"], None)
        elif hit or case.how in ("left", "full"):
            yield pair_of(pair["L"], pair["R"])


def unchosen(case: Case, so_far: Case, watermark: int | None) -> Counter:
    """Right rows that no left row has for a match, so far, and none of those to come can choose."""
    right = so_far.right.to_pylist()
    pairs = asof_join(
        {"L": so_far.left.to_pylist(), "R": right}, time="t", by=case.by, direction=case.direction, within=case.within,
        how="full", allow_exact_matches=case.exact, ties=case.ties,
    )  # fmt: skip
    taken = {id(pair["R"]) for pair in pairs if pair["L"] is not None}
    open_rows = {id(row) for row in may_be_chosen(case, right, watermark)}
    return Counter(pair_of(None, row) for row in right if id(row) not in taken | open_rows)


@given(histories())
@examples(100)
def test_any_cut_any_restart_any_disorder(history):
    case, batches, delay = history
    run = Run(case)
    seen: tuple[list[int], list[int]] = ([], [])
    taken: list[list[pa.Table]] = [[case.left.slice(0, 0)], [case.right.slice(0, 0)]]
    late = 0
    for batch in batches:
        for side in (LEFT, RIGHT):
            kept = in_time(batch[side], run.watermark)
            late += batch[side].num_rows - kept.num_rows
            taken[side].append(kept)
            seen[side].extend(t for t in batch[side]["t"].to_pylist() if t is not None)
        run.step(*batch)
        watermark = next_watermark(seen, delay)
        before = run.watermark
        run.watermark = watermark if run.watermark is None else max(run.watermark, watermark or run.watermark)
        if not case.where:
            check_what_came_out(case, run, taken, before)
    run.step(case.left.slice(0, 0), case.right.slice(0, 0), end=True)
    expected = case.replace(left=pa.concat_tables(taken[LEFT]), right=pa.concat_tables(taken[RIGHT])).expected()
    assert run.found == expected
    assert run.counts["late"] == late
    assert run.counts["results"] == expected.total()
    assert not run.state


def check_what_came_out(case: Case, run: Run, taken: list[list[pa.Table]], watermark: int | None) -> None:
    """Nothing before it was final, and everything that was."""
    so_far = case.replace(left=pa.concat_tables(taken[LEFT]), right=pa.concat_tables(taken[RIGHT]), how="left")
    final = [found for found in so_far.meaning() if is_final(case, found, watermark)]
    wanted = Counter(left_results(case, final))
    if case.how in ("right", "full"):
        wanted += unchosen(case, so_far, watermark)
    assert run.found - wanted == Counter(), "came out before it was final"
    if case.exact and watermark is not None:
        # A row at the watermark itself may come and yet not match; who could tell waits one moment longer.
        sure = [found for found in final if is_final(case, found, watermark - 1)]
        wanted = Counter(left_results(case, sure))
        if case.how in ("right", "full") and case.direction != "nearest":
            wanted += unchosen(case, so_far, watermark - 1)
        assert wanted - run.found == Counter(), "did not come out although it was final"


def rows_at(keys: list[str], times: list[int]) -> tuple[pa.Table, pa.Table]:
    size = len(times)
    columns = [keys, times, [0.5] * size, ["a"] * size]
    types = [pa.string(), pa.int64(), pa.float64(), pa.string()]
    left = table([*types, pa.int64()], [*columns, times], ["k0", "t", "v", "w", "n"])
    return left, table(types, columns, ["k0", "t", "v", "w"])


NONE = rows_at([], [])


def test_state_holds_what_is_ahead_and_one_row_for_each_key():
    left, right = rows_at(["a", "b"] * 50, list(range(100)))
    run = Run(Case(left, right, ("string",), "bigint"))
    run.step(NONE[0], right)
    assert run.held("R") == 100
    run.watermark = 90
    run.step(*NONE)
    assert run.held("R") == 10 + 2
    run.watermark = 1000
    counts = run.step(*NONE)
    assert (run.held("R"), counts["held_rows"], counts["evicted"]) == (2, 2, 10)
    assert run.state


@pytest.mark.parametrize(("direction", "held"), [("backward", 0), ("forward", 0), ("nearest", 0)])
def test_a_tolerance_empties_the_state(direction, held):
    left, right = rows_at(["a"] * 10, list(range(10)))
    run = Run(Case(left, right, ("string",), "bigint", direction=direction, within=5))
    run.step(left, right)
    assert not run.found
    run.watermark = 100
    run.step(*NONE)
    assert run.found.total() == 10
    assert run.held("R") == held
    assert run.wake is None


def test_a_cell_asks_to_be_woken_when_its_first_row_is_final():
    left, right = rows_at(["a"] * 3, [10, 4, 7])
    run = Run(Case(left, right, ("string",), "bigint"))
    run.step(left, NONE[1])
    assert run.wake == 5
    run = Run(Case(left, right, ("string",), "bigint", direction="forward", within=8))
    run.step(left, NONE[1])
    assert run.wake == 4 + 8 + 1
    run.step(NONE[0], rows_at(["a"], [6])[1])
    assert run.wake == 6 + 1


def test_segments_do_not_pile_up():
    left, right = rows_at([], [])
    run = Run(Case(left, right, ("string",), "bigint"))
    for step in range(40):
        run.watermark = step
        run.step(NONE[0], rows_at([f"key {step}"], [step])[1])
        assert len(run.state) <= MOST_SEGMENTS + 1
    assert run.held("R") == 40


def test_a_step_writes_only_what_it_changed():
    left, right = rows_at(["a"] * 6, [50, 51, 52, 53, 54, 55])
    run = Run(Case(left, right, ("string",), "bigint"))
    run.step(left, right)
    before = dict(run.state)
    run.step(rows_at(["a"], [60])[0], NONE[1])
    assert {name: run.state[name] for name in before} == before
    assert len(run.state) == 3


def test_zones_of_sessions_do_not_matter():
    kinds = [pa.string(), pa.timestamp("us", "Asia/Tokyo")]
    right = table(kinds, [["a"], [5]], ["k0", "t"])
    left = table([*kinds, pa.int64()], [["a"], [7], [0]], ["k0", "t", "n"])
    case = Case(left, right, ("string",), "timestamp")
    run = Run(case)
    run.step(left.slice(0, 0), right)
    utc = right.cast(pa.schema([("k0", pa.string()), ("t", pa.timestamp("us", "UTC"))]))
    run.step(left, utc)
    run.step(left.slice(0, 0), right.slice(0, 0), end=True)
    assert run.found.total() == 1


def test_equal_keys_share_a_cell():
    rows = one_batch(rows_at(["a", "b", "a", "c"], [1, 2, 3, 4])[1])
    cells = CellOfKeys((0,), 64)(rows)
    assert cells[0] == cells[2]
    assert len(set(cells.tolist())) > 1


def test_the_match_of_a_waiting_row_stays_behind_a_row_that_it_excludes():
    """Without exact matches the last row before the watermark need not be the one that a waiting row has found."""
    left, right = rows_at(["a"], [100])[0], rows_at(["a", "a"], [90, 100])[1]
    run = Run(Case(left, right, ("string",), "bigint", direction="nearest", within=50, exact=False))
    run.step(NONE[0], right.slice(0, 1))
    run.step(left, right.slice(1, 1))
    run.watermark = 105
    run.step(*NONE)
    assert not run.found
    run.watermark = 120
    run.step(*NONE)
    assert [other[1] for _, other in run.found] == [90]


def test_a_row_at_the_watermark_waits_for_rows_at_the_watermark():
    left, right = rows_at(["a"], [5])[0], rows_at(["a", "a"], [3, 5])[1]
    run = Run(Case(left, right, ("string",), "bigint"))
    run.step(left, right.slice(0, 1))
    run.watermark = 5
    run.step(*NONE)
    assert not run.found
    run.step(NONE[0], right.slice(1))
    run.watermark = 6
    run.step(*NONE)
    assert run.found == run.case.expected()


@pytest.mark.parametrize(("direction", "within"), [("backward", None), ("backward", 2), ("forward", 3), ("nearest", 2)])
@pytest.mark.parametrize("how", HOWS)
def test_dense_streams(direction, within, how):
    """Rows close together, a few in every micro-batch; a match may lie far behind the watermark."""
    draw = random.Random(f"{direction} {within} {how}")
    sides, order = [], []
    for side, size in ((LEFT, 60), (RIGHT, 30)):
        times = [draw.randrange(40) for _ in range(size)]
        sides.append(rows_at([draw.choice("aaab") for _ in times], times)[side])
        order.append(sorted(range(size), key=lambda at: times[at] + draw.randint(0, 2)))
    case = Case(*sides, ("string",), "bigint", direction=direction, within=within, how=how)
    case = case.replace(left=case.left.set_column(4, "n", pa.array(range(60))))
    run = Run(case)
    seen: tuple[list[int], list[int]] = ([], [])
    while any(order):
        batch = []
        for side, rows in enumerate((case.left, case.right)):
            taken, order[side] = order[side][:3], order[side][3:]
            batch.append(rows.take(pa.array(taken, pa.int64())))
            seen[side].extend(batch[side]["t"].to_pylist())
        run.step(*batch)
        run.watermark = next_watermark(seen, 2)
    run.step(*NONE, end=True)
    assert run.found == case.expected()
    assert run.counts["late"] == 0


def test_an_unmatched_right_row_comes_out_once_although_its_segment_stays():
    right = rows_at(["a", "a", "b", "c", "d"], [1, 2, 1, 1, 1])[1]
    run = Run(Case(NONE[0], right, ("string",), "bigint", how="full"))
    run.step(NONE[0], right)
    assert (run.wake, run.found.total()) == (3, 0)
    run.watermark = 10
    run.step(*NONE)
    assert [(left, row[:2]) for left, row in run.found.elements()] == [(None, ("a", 1))]
    assert run.held("R") == 4
    run.watermark = 20
    run.step(*NONE)
    assert run.found.total() == 1


def test_a_right_row_remembers_across_restarts_that_it_was_chosen():
    left, right = rows_at(["a"], [7])[0], rows_at(["a"], [5])[1]
    run = Run(Case(left, right, ("string",), "bigint", how="right"))
    run.step(left, right)
    run.watermark = 10
    run.step(*NONE)
    assert run.found.total() == 1
    assert run.held("R") == 1
    run.step(NONE[0], rows_at(["a"], [12])[1])
    run.watermark = 20
    run.step(*NONE)
    assert run.found.total() == 1
    assert run.held("R") == 1


@pytest.mark.parametrize(("direction", "wake"), [("backward", 4 + 5 + 1), ("forward", 4 + 1), ("nearest", 4 + 5 + 1)])
def test_a_cell_asks_to_be_woken_when_an_unmatched_right_row_is_final(direction, wake):
    right = rows_at(["a", "a"], [30, 4])[1]
    run = Run(Case(NONE[0], right, ("string",), "bigint", direction=direction, how="right", within=5))
    run.step(NONE[0], right)
    assert run.wake == wake
    run.watermark = wake - 1
    run.step(*NONE)
    assert not run.found
    run.watermark = wake
    run.step(*NONE)
    assert [row[1] for _, row in run.found] == [4]
