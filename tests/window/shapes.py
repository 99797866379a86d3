"""Generated window joins: tables, conditions and windows, with their definition beside them."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dovetail import after, path, reference
from dovetail.reference import at_most, both, difference, equal, less

ALIASES = "ABCDE"

SCHEMA = pa.schema(
    [
        ("t", pa.int64()),
        ("k", pa.int64()),
        ("s", pa.string()),
        ("v", pa.float64()),
        ("w", pa.int32()),
        ("n", pa.int64()),
    ]
)

_rows = st.fixed_dictionaries(
    {
        "t": st.one_of(st.none(), *[st.integers(0, 40)] * 9),
        "k": st.one_of(st.none(), *[st.integers(0, 2)] * 9),
        "s": st.one_of(st.none(), *[st.sampled_from(["", "a", "b", "a longer text"])] * 9),
        "v": st.one_of(
            st.none(),
            st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0]),
            *[st.floats(-4, 4, width=16)] * 6,
        ),
        "w": st.one_of(st.none(), *[st.integers(-5, 5)] * 9),
    }
)


@dataclass(frozen=True)
class Link:
    """One conjunct between two inputs: as SQL, and as a function of two rows."""

    sql: str
    holds: Any


def _equal(a: str, b: str, column: str) -> Link:
    return Link(f"{a}.{column} = {b}.{column}", lambda x, y: equal(x[column], y[column]))


def _band(a: str, b: str, column: str, width: float) -> Link:
    def holds(x, y):
        apart = difference(x[column], y[column])
        return at_most(None if apart is None else abs(apart), width)

    return Link(f"ABS({a}.{column} - {b}.{column}) <= {width}", holds)


def _less(a: str, b: str, column: str) -> Link:
    return Link(f"{a}.{column} < {b}.{column}", lambda x, y: less(x[column], y[column]))


@st.composite
def links(draw: Any, a: str, b: str) -> Link:
    """A conjunct between two inputs, of any kind."""
    kind = draw(st.sampled_from(["k", "k", "s", "v", "band v", "band v", "band w", "less w", "less s", "less v"]))
    if kind in ("k", "s", "v"):
        return _equal(a, b, kind)
    word, column = kind.split()
    if word == "less":
        return _less(a, b, column)
    return _band(a, b, column, draw(st.sampled_from([1.0, 0.5, 2.25]) if column == "v" else st.sampled_from([0, 1, 3])))


@dataclass
class Case:
    """A join, and what it means."""

    tables: dict[str, pa.Table]
    on: str | None
    within: Any
    bounds: list[dict[tuple[str, str], tuple[int, int]]]
    conjuncts: list[tuple[str, str, Link]]

    @property
    def aliases(self) -> list[str]:
        return list(self.tables)

    @property
    def has_class(self) -> bool:
        """Whether one column is equal throughout, so that the hash join applies."""
        reached = {"A"}
        for column in ("k", "s", "v"):
            reached = {"A"}
            for _ in self.tables:
                for a, b, link in self.conjuncts:
                    if link.sql == f"{a}.{column} = {b}.{column}" and (a in reached or b in reached):
                        reached |= {a, b}
            if len(reached) == len(self.tables):
                return True
        return False

    def condition(self, *rows: Any) -> bool | None:
        by_alias = dict(zip(self.tables, rows, strict=True))
        return (
            both(*(link.holds(by_alias[a], by_alias[b]) for a, b, link in self.conjuncts)) if self.conjuncts else True
        )

    def expected(self, how: str = "inner") -> Counter[tuple[int | None, ...]]:
        """Row numbers of the join by its definition."""
        inputs = {alias: table.to_pylist() for alias, table in self.tables.items()}
        found = reference.window_join(inputs, self.condition, self.bounds, how)
        aliases = self.aliases[:1] if how in ("semi", "anti") else self.aliases
        return Counter(tuple(row[a]["n"] if row[a] is not None else None for a in aliases) for row in found)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with their numbers."""
    return pa.Table.from_pylist([{**row, "n": at} for at, row in enumerate(rows)], schema=SCHEMA)


@st.composite
def windows(draw: Any, aliases: list[str]) -> tuple[Any, list[dict[tuple[str, str], tuple[int, int]]]]:
    """A value for ``within=``, and its meaning: alternatives of bounds by pair."""
    lengths = st.integers(0, 12)
    shape = draw(st.sampled_from(["one", "pairs", "chain", "star", "path", "both ways"]))
    if shape == "one":
        width = draw(lengths)
        pairs = [(a, b) for at, a in enumerate(aliases) for b in aliases[at + 1 :]]
        return width, [dict.fromkeys(pairs, (-width, width))]
    if shape in ("path", "both ways"):
        stops = draw(st.permutations(aliases))
        widths = draw(st.lists(lengths, min_size=len(stops) - 1, max_size=len(stops) - 1))
        hops = list(zip(pairwise(stops), widths, strict=True))
        forth = {hop: (0, width) for hop, width in hops}
        back = {hop: (-width, 0) for hop, width in hops}
        way = " -> ".join(stops)
        if shape == "path":
            return path(way, widths), [forth]
        return path(way, widths, both_ways=True), [forth, back]
    if shape == "chain":
        chosen = list(pairwise(aliases))
    elif shape == "star":
        chosen = [(aliases[0], other) for other in aliases[1:]]
    else:
        chosen = [(a, b) for at, a in enumerate(aliases) for b in aliases[at + 1 :]]
    given, meant = {}, {}
    for a, b in chosen:
        kind = draw(st.sampled_from(["near", "near", "after", "between", "turned"]))
        width = draw(lengths)
        if kind == "near":
            given[a, b], meant[a, b] = width, (-width, width)
        elif kind == "after":
            given[a, b], meant[a, b] = after(width), (0, width)
        elif kind == "turned":
            given[b, a], meant[a, b] = after(width), (-width, 0)
        else:
            low = draw(st.integers(-6, 3))
            given[a, b], meant[a, b] = (low, low + width), (low, low + width)
    return given, [meant]


@st.composite
def cases(draw: Any, *, least: int = 2, most: int = 4, rows: int = 10) -> Case:
    """A join of any shape.  Contradictory windows are left to a test of their own."""
    count = draw(st.integers(least, most))
    aliases = list(ALIASES[:count])
    # Products of many inputs grow fast, and the definition walks through all of it.
    limit = {2: rows, 3: min(rows, 8), 4: 5, 5: 4}[count]
    tables = {alias: table(draw(st.lists(_rows, max_size=limit))) for alias in aliases}
    conjuncts = []
    if draw(st.booleans()):
        column = draw(st.sampled_from(["k", "s", "k"]))
        conjuncts = [(a, b, _equal(a, b, column)) for a, b in pairwise(aliases)]
    elif draw(st.booleans()):
        column = draw(st.sampled_from(["v", "w"]))
        width = 1.0 if column == "v" else 2
        conjuncts = [(a, b, _band(a, b, column, width)) for a, b in pairwise(aliases)]
    for _ in range(draw(st.integers(0, 2))):
        a, b = draw(st.permutations(aliases))[:2]
        conjuncts.append((a, b, draw(links(a, b))))
    within, bounds = draw(windows(aliases))
    on = " AND ".join(link.sql for _, _, link in conjuncts) or None
    return Case(tables, on, within, bounds, conjuncts)


@st.composite
def schedules(draw: Any, tables: dict[str, pa.Table], delays: list[int]) -> list[list[tuple[int, list[int]]]]:
    """Micro-batches in which no row is late: of one input, a row comes at its time plus at most its delay."""
    sequences = []
    for table_, delay in zip(tables.values(), delays, strict=True):
        times = table_.column("t").to_pylist()
        when = [
            (draw(st.integers(0, 50)) if t is None else t + draw(st.integers(0, delay)), at)
            for at, t in enumerate(times)
        ]
        sequences.append([at for _, at in sorted(when)])
    calls = draw(st.integers(1, 5))
    schedule = []
    for call in range(calls):
        batch = []
        for side, waiting in enumerate(sequences):
            count = len(waiting) if call == calls - 1 else draw(st.integers(0, len(waiting)))
            now, sequences[side] = waiting[:count], waiting[count:]
            cut = draw(st.integers(0, len(now)))
            batch += [(side, part) for part in (now[:cut], now[cut:]) if part]
        schedule.append(draw(st.permutations(batch)))
    return schedule


def dense(
    seed: int, inputs: int, rows: int, late: int = 0
) -> tuple[Case, list[int], list[list[tuple[int, list[int]]]]]:
    """Rows close together in many micro-batches: windows end at rows, and state has many segments.

    Rows come in the order of their times, but for the delays that it returns, and for what `late` adds to them.
    """
    draw = random.Random(seed)
    waits = [draw.choice([0, 0, 2]) for _ in range(inputs)]
    tables, sequences = {}, []
    for alias, wait in zip("ABC", waits, strict=False):
        times = [draw.randrange(rows // 2) for _ in range(rows)]
        tables[alias] = table([{"t": t, "k": draw.randrange(3), "s": "", "v": 0.0, "w": 0} for t in times])
        sequences.append(sorted(range(rows), key=lambda at: times[at] + draw.randint(0, wait + late)))
    pairs = list(pairwise(tables))
    conjuncts = [(a, b, Link(f"{a}.k = {b}.k", lambda x, y: x["k"] == y["k"])) for a, b in pairs]
    bounds = dict.fromkeys(combinations(tables, 2), (-2, 2))
    cuts = [sorted([0, rows, *(draw.randrange(rows) for _ in range(rows // 2))]) for _ in tables]
    schedule = [
        [(side, sequences[side][cuts[side][at] : cuts[side][at + 1]]) for side in range(inputs)]
        for at in range(rows // 2 + 1)
    ]
    return Case(tables, " AND ".join(link.sql for *_, link in conjuncts), 2, [bounds], conjuncts), waits, schedule
