"""Conditions that only Spark can evaluate, where rows without a match count: candidates, verdicts, results.

Spark's part is played by a loop over the candidates, which come to the last stage in batches of any size.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, pairwise

import pyarrow as pa
import pytest
from tests.nets.sessions import seeds

from dovetail import reference
from dovetail.columns.layout import RECORD, VERDICT, input_payload
from dovetail.columns.segments import concat, pack, unpack
from dovetail.errors import ArgumentError
from dovetail.families.window import kernel
from dovetail.families.window.judged import IS_MATCH, CandidateKernel, FinishStage
from dovetail.families.window.router import WindowRouter
from dovetail.families.window.undecided import DecisionKernel, UndecidedKernel

from .drawn import Drawn, _link, draw_join, draw_schedule
from .harness import flat, make_plan
from .shapes import table


def candidates(spec, tables) -> list[pa.RecordBatch]:
    """What the cells of a task give, one after the other."""
    arrived: dict[int, list] = {}
    for side, alias in enumerate(spec.aliases):
        for number, part in WindowRouter(spec, side).parts(flat(spec, side, tables[alias])):
            arrived.setdefault(number, []).append((side, part))
    found = []
    for segments in arrived.values():
        cell = CandidateKernel(spec)
        cell.restore({}, None)
        for side, part in segments:
            cell.push(side, part)
        cell.end()
        found += list(cell.results())
        cell.changes()
    return found


def judged(batch: pa.RecordBatch, drawn: Drawn, rests) -> pa.RecordBatch:
    """A batch with a verdict on every record: NULL where a condition is."""
    aliases = drawn.case.aliases
    names = {
        alias: [f"{input_payload(side)}{at}" for at in range(drawn.case.tables[alias].num_columns)]
        for side, alias in enumerate(aliases)
    }
    verdicts = []
    for row in batch.to_pylist():
        rows = {
            alias: dict(zip(drawn.case.tables[alias].column_names, (row[name] for name in names[alias]), strict=True))
            for alias in aliases
        }
        kind = row[RECORD]
        verdict: bool | None = True
        for a, b, link in rests:
            extra = [aliases.index(one) for one in (a, b) if one not in drawn.core]
            if (extra or [IS_MATCH])[0] == kind:
                verdict = verdict and link.holds(rows[a], rows[b])
        verdicts.append(verdict)
    return batch.append_column(VERDICT, pa.array(verdicts, pa.bool_()))


def check(seed: int) -> int:
    draw = random.Random(f"judged {seed}")
    drawn = draw_join(draw)
    case, core = drawn.case, drawn.core
    rests = []
    for _ in range(draw.choice([1, 1, 2])):
        a, b = draw.sample(case.aliases, 2)
        if a in core or b in core:
            rests.append((a, b, _link(draw, a, b)))
    try:
        plan = make_plan(case.on, case.tables, case.within, streaming=False, how=drawn.how, partitions=2)
    except ArgumentError as error:
        if "no rows can satisfy all windows" in str(error):
            return 0
        raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "BLOCK", draw.choice([2, 5, 1 << 16]))
        patch.setattr(kernel, "CHUNK", draw.choice([2, 1 << 18]))
        found = [judged(batch, drawn, rests) for batch in candidates(plan.spec, case.tables) if batch.num_rows]
    batches = []
    if found:
        whole = concat(found)
        cuts = sorted({0, whole.num_rows, *(draw.randrange(whole.num_rows + 1) for _ in range(draw.choice([0, 2, 9])))})
        batches = [whole.slice(begin, end - begin) for begin, end in pairwise(cuts)]
    numbers = [f"{input_payload(side)}{plan.spec.payload[side] - 1}" for side in plan.spec.emitted]
    results: Counter = Counter()
    for rows in FinishStage(plan.spec)(batches):
        assert rows.num_rows
        results.update(zip(*(rows.column(name).to_pylist() for name in numbers), strict=True))
    more = Drawn(case, drawn.how)
    parts = [*drawn.parts(), *(((a, b), link.holds) for a, b, link in rests)]
    more.parts = lambda: parts  # type: ignore[method-assign]
    assert results == more.expected(), f"NET_SEED={seed}: on={case.on}, how={drawn.how}, rests={rests}"
    return sum(results.values())


@pytest.mark.in_turns(group="several seconds")
def test_drawn_joins():
    assert sum(check(seed) for seed in seeds(0, 250)) > 500


@pytest.mark.slow
def test_more_drawn_joins():
    assert sum(check(seed) for seed in seeds(250, 5_000)) > 10_000


# --- streams: two kernels, one after the other ------------------------------------------------------------------------


def decided(spec, drawn: Drawn, rests, schedule) -> tuple[Counter, int]:
    """What two kernels give, each with a state that passes through its stored form; and what the second still holds."""
    tables = drawn.case.tables
    whole = [flat(spec, side, tables[alias]) for side, alias in enumerate(spec.aliases)]
    numbers = [f"{input_payload(side)}{spec.payload[side] - 1}" for side in spec.emitted]
    states: tuple[dict, dict] = ({}, {})
    results: Counter = Counter()
    awaited = 0

    def called(cell, kernel, which, segments):
        state = states[which].setdefault(cell, {})
        kernel.restore({name: unpack(segment) for name, segment in state.items()}, None)
        for side, rows in segments:
            kernel.push(side, rows)
        found = list(kernel.results())
        changes = kernel.changes()
        for name in changes.dropped:
            state.pop(name, None)
        for name, rows in changes.stored.items():
            state[name] = pack(rows).to_pybytes()
        return found

    for at, batch in enumerate([*schedule, [(side, ()) for side in spec.sides]]):
        arrived: dict[int, list] = {}
        for side, chosen in batch:
            router = WindowRouter(spec, side)
            block = whole[side].take(pa.array(list(chosen), pa.int64()))
            top = 10_000 if at == len(schedule) else router.top(block)
            for number, piece in [*router.parts(block), *(router.ticks(top) if top is not None else [])]:
                arrived.setdefault(number, []).append((side, unpack(pack(piece).to_pybytes())))
        awaited = 0
        for number, segments in arrived.items():
            found = called(number, UndecidedKernel(spec, cell=number), 0, segments)
            judged_ones = [judged(rows, drawn, rests) for rows in found]
            second = DecisionKernel(spec)
            for rows in called(number, second, 1, [(0, rows) for rows in judged_ones]):
                results.update(zip(*(rows.column(name).to_pylist() for name in numbers), strict=True))
            awaited += second.counters["awaited_rows"]
    return results, awaited


def check_stream(seed: int) -> int:
    draw = random.Random(f"decided {seed}")
    drawn = draw_join(draw, most=3)
    case = drawn.case
    if len(case.aliases) == 2:
        how = draw.choice(["left", "right", "full", "semi", "anti"])
        drawn.how = dict.fromkeys(case.aliases, "required")
    else:
        how = drawn.how = {alias: draw.choice(["required", "keep"]) for alias in case.aliases}
    rests = []
    for _ in range(draw.choice([1, 1, 2])):
        a, b = draw.sample(case.aliases, 2)
        rests.append((a, b, _link(draw, a, b)))
    delays = [draw.choice([0, 0, 2, 9, 30]) for _ in case.aliases]
    # A length means all pairs where no input may be missing.
    within, bounds = case.within, case.bounds
    if isinstance(within, int):
        bounds = [dict.fromkeys(combinations(case.aliases, 2), (-within, within))]
    try:
        plan = make_plan(case.on, case.tables, within, streaming=True, how=how, partitions=2, delays=delays)
    except ArgumentError as error:
        if "no rows can satisfy all windows" in str(error):
            return 0
        raise
    schedule = draw_schedule(draw, case.tables, delays)
    results, awaited = decided(plan.spec, drawn, rests, schedule)
    inputs = {alias: rows.to_pylist() for alias, rows in case.tables.items()}
    parts = [((a, b), link.holds) for a, b, link in [*case.conjuncts, *rests]]
    if isinstance(how, str):

        def condition(a, b):
            both = {"A": a, "B": b}
            return all(holds(both[one], both[other]) is True for (one, other), holds in parts)

        found = reference.window_join(inputs, condition, bounds, how)
    else:
        found = reference.window_join(inputs, parts, bounds, how)
    answer = Counter(tuple(None if row is None else row["n"] for row in match.values()) for match in found)
    assert results == answer, f"NET_SEED={seed}: on={case.on}, within={within}, how={how}, rests={rests}"
    assert awaited == 0
    return sum(answer.values())


@pytest.mark.in_turns(group="several seconds")
def test_drawn_streams():
    assert sum(check_stream(seed) for seed in seeds(0, 300)) > 500


@pytest.mark.slow
def test_more_drawn_streams():
    assert sum(check_stream(seed) for seed in seeds(300, 5_000)) > 10_000


def rows(times):
    return table([{"t": t, "k": 1, "s": "", "v": 0.0, "w": 0} for t in times])


@pytest.mark.parametrize(
    ("how", "change", "text"),
    [
        ({"B": "optional"}, {"streaming": True}, "which only Spark can evaluate, on streams"),
        ({"A": "keep", "B": "absent"}, {"streaming": True}, "how={'A': 'keep', 'B': 'absent'} with the condition A.w"),
        ("anti", {"algorithm": "nested"}, "algorithm='nested' with how='anti'"),
        ({"B": "optional", "C": "optional"}, {"on": "B.w + C.w > A.w"}, "about 'B' and 'C'"),
    ],
)
def test_refused(how, change, text):
    aliases = "AB" if isinstance(how, str) else "ABC"
    given = {"on": "A.k = B.k AND A.w + B.w > 1", "within": 5, "streaming": False, **change}
    with pytest.raises(ArgumentError) as caught:
        make_plan(tables={alias: rows([1]) for alias in aliases}, how=how, **given)
    assert text in str(caught.value)


def test_the_plan_says_who_judges_what():
    tables = {alias: rows([1]) for alias in "ABC"}
    on = "A.k = B.k AND B.k = C.k AND A.w + B.w > 1 AND A.w + B.w > C.w"
    plan = make_plan(on, tables, 5, streaming=False, how={"C": "optional"})
    assert [side for side, _ in plan.verdicts] == [IS_MATCH, 2]
    assert "on candidates, and what has no match is known" in plan.text()
    # Where every result has the rows, and nothing else hangs on them, results can be judged.
    plan = make_plan("A.k = B.k AND B.k = C.k AND A.w + B.w > 1", tables, 5, streaming=True, how={"C": "optional"})
    assert plan.verdicts == ()
    assert len(plan.rests) == 1
