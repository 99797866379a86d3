"""Window joins drawn at random, rows that often match among them: a failure names its seed.

Unlike the shapes of Hypothesis these are dense: a match of three inputs that a fourth one almost completes is rare
among small examples.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa

from dovetail import after, path, reference

from .shapes import Case, Link, _band, _equal, _less, table

Bounds = dict[tuple[str, str], tuple[int, int]]


@dataclass
class Drawn:
    """A join with its roles, and its meaning."""

    case: Case
    how: dict[str, str]

    @property
    def core(self) -> list[str]:
        return [alias for alias, role in self.how.items() if role in ("required", "keep")]

    def expected(self) -> Counter[tuple[int | None, ...]]:
        """Row numbers by the definition."""
        inputs = {alias: rows.to_pylist() for alias, rows in self.case.tables.items()}
        found = reference.window_join(inputs, self.parts(), self.case.bounds, self.how)
        return Counter(tuple(None if row is None else row["n"] for row in match.values()) for match in found)

    def parts(self) -> list[tuple[tuple[str, ...], Any]]:
        """The conjuncts, and the equalities that they imply of columns of one name."""
        case, core = self.case, set(self.core)
        parts = [((a, b), link.holds) for a, b, link in case.conjuncts]
        for column in ("k", "s", "v"):
            equal = [{a, b} for a, b, link in case.conjuncts if link.sql == f"{a}.{column} = {b}.{column}"]
            for a, b in combinations(case.aliases, 2):
                reached = {a}
                for _ in case.aliases:
                    reached |= set().union(*(pair for pair in equal if pair & reached))
                if b in reached and core & {a, b}:
                    parts.append(((a, b), _equal(a, b, column).holds))
        # What ties two inputs that may be missing is implied by what ties them to others.
        return [(pair, holds) for pair, holds in parts if set(pair) & core]


def draw_join(draw: random.Random, *, most: int = 4) -> Drawn:
    """A join of two to four inputs with any roles, of any shape that is not refused."""
    aliases = list("ABCD"[: draw.randint(2, most)])
    while True:
        how = {a: draw.choice(["required", "required", "keep", "optional", "present", "absent"]) for a in aliases}
        core = [alias for alias in aliases if how[alias] in ("required", "keep")]
        if core:
            break
    while True:
        within, bounds = _windows(draw, aliases)
        if isinstance(within, int):
            bounds = [{pair: ends for pair, ends in bounds[0].items() if set(pair) & set(core)}]
        refused = any(set(pair).isdisjoint(core) for bound in bounds for pair in bound)
        if not refused and (len(bounds) == 1 or list(how.values()).count("optional") < 2):
            break
    conjuncts: list[tuple[str, str, Link]] = []
    if draw.random() < 0.6:
        ring = draw.sample(aliases, len(aliases))
        column = draw.choice("kks")
        conjuncts = [(a, b, _equal(a, b, column)) for a, b in pairwise(ring)]
    elif draw.random() < 0.5:
        ring = [*core, *(alias for alias in aliases if alias not in core)]
        hub = draw.choice(core)
        conjuncts = [(hub, other, _band(hub, other, "w", 1)) for other in ring if other != hub]
    for _ in range(draw.choice([0, 0, 1, 2])):
        a, b = draw.sample(aliases, 2)
        if a in core or b in core:
            conjuncts.append((a, b, _link(draw, a, b)))
    tables = {alias: _table(draw, {2: 8, 3: 6, 4: 5}[len(aliases)]) for alias in aliases}
    on = " AND ".join(link.sql for _, _, link in conjuncts) or None
    return Drawn(Case(tables, on, within, bounds, conjuncts), how)


def _link(draw: random.Random, a: str, b: str) -> Link:
    kind = draw.choice(["k", "s", "v", "band v", "band w", "less w", "less s", "less v"])
    if " " not in kind:
        return _equal(a, b, kind)
    word, column = kind.split()
    return _less(a, b, column) if word == "less" else _band(a, b, column, 1.5 if column == "v" else 2)


def _table(draw: random.Random, most: int) -> pa.Table:
    def value(choices: list[Any], null: float = 0.06) -> Any:
        return None if draw.random() < null else draw.choice(choices)

    return table(
        [
            {
                "t": value(list(range(16))),
                "k": value([0, 0, 1]),
                "s": value(["a", "a", "a longer text"]),
                "v": value([0.0, -0.0, 1.0, 2.5, -1.0, math.nan, math.inf], 0.15),
                "w": value([-1, 0, 0, 1, 2], 0.15),
            }
            for _ in range(draw.choice([0, *range(1, most + 1)]) if most < 8 else draw.randint(0, most))
        ]
    )


def _windows(draw: random.Random, aliases: list[str]) -> tuple[Any, list[Bounds]]:
    width = lambda: draw.choice([0, 1, 2, 4, 4, 7, 7, 12])  # noqa: E731
    shape = draw.choice(["one", "one", "pairs", "chain", "star", "path", "both ways"])
    every = list(combinations(aliases, 2))
    if shape == "one":
        reach = width()
        return reach, [dict.fromkeys(every, (-reach, reach))]
    if shape in ("path", "both ways"):
        stops = draw.sample(aliases, len(aliases))
        widths = [width() for _ in stops[1:]]
        forth = {hop: (0, reach) for hop, reach in zip(pairwise(stops), widths, strict=True)}
        back = {hop: (-high, 0) for hop, (_, high) in forth.items()}
        both_ways = shape == "both ways"
        return path(" -> ".join(stops), widths, both_ways=both_ways), [forth, back] if both_ways else [forth]
    hub = draw.choice(aliases)
    chosen = {"pairs": every, "chain": list(pairwise(aliases)), "star": [pair for pair in every if hub in pair]}[shape]
    given: dict[tuple[str, str], Any] = {}
    meant: Bounds = {}
    for a, b in chosen:
        kind, reach = draw.choice(["near", "near", "after", "between", "turned"]), width()
        if kind == "near":
            given[a, b], meant[a, b] = reach, (-reach, reach)
        elif kind == "after":
            given[a, b], meant[a, b] = after(reach), (0, reach)
        elif kind == "turned":
            given[b, a], meant[a, b] = after(reach), (-reach, 0)
        else:
            low = draw.randint(-4, 2)
            given[a, b], meant[a, b] = (low, low + reach), (low, low + reach)
    return given, [meant]


def draw_schedule(draw: random.Random, tables: dict[str, pa.Table], delays: list[int]) -> Any:
    """Micro-batches in which no row is late; an input may be far ahead of the others."""
    waiting = []
    for rows, delay in zip(tables.values(), delays, strict=True):
        times = rows.column("t").to_pylist()
        when = [(draw.randint(0, 20) if t is None else t + draw.randint(0, delay), at) for at, t in enumerate(times)]
        waiting.append([at for _, at in sorted(when)])
    schedule = []
    calls = draw.randint(1, 6)
    for call in range(calls):
        batch = []
        for side, left in enumerate(waiting):
            count = len(left) if call == calls - 1 else draw.choice([0, 1, 2, len(left)])
            now, waiting[side] = left[:count], left[count:]
            cut = draw.randint(0, len(now))
            batch += [(side, part) for part in (now[:cut], now[cut:]) if part]
        draw.shuffle(batch)
        schedule.append(batch)
    return schedule
