"""Every criterion alone and in pairs, with every ``how``, with and without ``by=``, against all pairs compared.

Spark computes what each pair is worth under each criterion; plain Python decides which pairs no other pair beats.  So
the oracle knows nothing of trees, cells and kernels.  A failure names its seed; ``NET_SEED=n`` replays it alone.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import math
import os
import random

import pytest

import dovetail as dt

SCHEMA = "id int, k int, i int, b bigint, f float, d double, t timestamp, w decimal(30,4)"
WIDE = [decimal.Decimal(f"12345678901234567890.000{digit}") for digit in (1, 2, 2, 3)]
"""Decimals that are one and the same as doubles."""
START = datetime.datetime(2024, 3, 10, 12)


def judged(p, q):
    """Prefer the pair whose identifiers have the smaller sum."""
    one, other = (sum(row["id"] for row in pair.values()) for pair in (p, q))
    return "equal" if one == other else "better" if one < other else "worse"


# Name -> the criterion, what a pair is worth in Spark SQL (the smaller the better), and which pairs are candidates.
CRITERIA = {
    "closest i": (lambda: dt.closest("i"), "CAST(abs(CAST(R.i AS BIGINT) - S.i) AS DOUBLE)", "TRUE"),
    "closest d": (lambda: dt.closest("d"), "abs(R.d - S.d)", "TRUE"),
    "closest i within 0": (lambda: dt.closest("i", within=0), "0D", "R.i = S.i"),
    "closest t": (
        lambda: dt.closest("t", within="10 minutes"),
        "CAST(abs(unix_micros(R.t) - unix_micros(S.t)) AS DOUBLE)",
        "abs(unix_micros(R.t) - unix_micros(S.t)) <= 600000000",
    ),
    "closest t within 0": (lambda: dt.closest("t", within="0 seconds"), "0D", "R.t = S.t"),
    "closest b": (lambda: dt.closest("b"), "abs(CAST(R.b AS DECIMAL(20,0)) - S.b)", "TRUE"),
    "least sum": (lambda: dt.least("R.i + S.i"), "CAST(CAST(R.i AS BIGINT) + S.i AS DOUBLE)", "TRUE"),
    "most sum": (lambda: dt.most("R.i + S.i"), "-CAST(CAST(R.i AS BIGINT) + S.i AS DOUBLE)", "TRUE"),
    "least product": (lambda: dt.least("R.i * S.i"), "CAST(R.i * S.i AS DOUBLE)", "TRUE"),
    "most greatest": (lambda: dt.most("greatest(R.i, S.i)"), "-CAST(greatest(R.i, S.i) AS DOUBLE)", "TRUE"),
    "least float sum": (lambda: dt.least("R.f + S.f"), "CAST(R.f + S.f AS DOUBLE)", "TRUE"),
    "most d": (lambda: dt.most("R.d"), "-R.d", "TRUE"),
    "least wide": (lambda: dt.least("R.w"), "R.w", "TRUE"),
    "most wide": (lambda: dt.most("S.w"), "-S.w", "TRUE"),
    "least wide sum": (lambda: dt.least("R.w + S.w"), "R.w + S.w", "TRUE"),
    "youngest": (
        lambda: dt.youngest("t"),
        "-CAST(unix_micros(greatest(R.t, S.t)) AS DOUBLE)",
        "R.t IS NOT NULL AND S.t IS NOT NULL",
    ),
    "prefer": (lambda: dt.prefer(judged), "CAST(R.id + S.id AS DOUBLE)", "TRUE"),
}


def frame(spark, draw: random.Random):
    rows = [
        (
            number,
            draw.choice([0, 1, 1, None]),
            draw.choice([-3, 0, 1, 2, 2, None]),
            draw.choice([2**62, -(2**62), 5]),
            draw.choice([0.5, 1.5, -0.0, None]),
            draw.choice([0.25, 1.0, math.inf, None]),
            draw.choice([START, START + datetime.timedelta(minutes=5), START + datetime.timedelta(hours=1), None]),
            draw.choice([None, *WIDE]),
        )
        for number in range(draw.choice([0, 1, 3, 6]))
    ]
    return spark.createDataFrame(rows, SCHEMA)


def beats(p, q) -> bool:
    return all(a <= b for a, b in zip(p, q, strict=True)) and any(a < b for a, b in zip(p, q, strict=True))


def expected(left, right, names: list[str], how: str, by: bool) -> set[tuple[int, int]]:
    """The pairs of identifiers that no rival beats."""
    conditions = [f"({CRITERIA[name][2]})" for name in names] + (["R.k = S.k"] if by else [])
    pairs = left.alias("R").crossJoin(right.alias("S")).where(" AND ".join(conditions))
    costs = [f"{CRITERIA[name][1]} AS c{at}" for at, name in enumerate(names)]
    rows = pairs.selectExpr("R.id AS r", "S.id AS s", "R.k AS k", *costs).collect()
    # NaN is larger than every number: the worst.
    worth = [
        tuple((math.isnan(cost), 0.0 if math.isnan(cost) else cost) for cost in row[3:] if cost is not None)
        for row in rows
    ]
    found = [
        (row.r, row.s, row.k if by else 0, costs)
        for row, costs in zip(rows, worth, strict=True)
        if len(costs) == len(names)
    ]
    groups = {"inner": [lambda p: p[2]], "left": [lambda p: p[0]], "right": [lambda p: p[1]]}
    groups["full"] = [*groups["left"], *groups["right"]]
    best = set()
    for group in groups[how]:
        for p in found:
            if not any(group(p) == group(q) and beats(q[3], p[3]) for q in found):
                best.add((p[0], p[1]))
    return best


def combinations() -> list[tuple[list[str], str, bool]]:
    """Every criterion alone with every how and by=, then pairs of them."""
    hows, keyed = ("inner", "left", "right", "full"), (False, True)
    alone = [([name], how, by) for name in CRITERIA for how in hows for by in keyed]
    pairs = [(list(names), how, by) for names in itertools.combinations(CRITERIA, 2) for how in hows for by in keyed]
    random.Random(7).shuffle(pairs)
    return [*alone, *pairs]


CASES = combinations()
USUAL = len(CRITERIA) * 8 + 24


def check(spark, drawn: list[int]) -> None:
    """The combinations of some seeds; one job computes the best matches of all of them."""
    asked, frames = {}, []
    for seed in drawn:
        names, how, by = CASES[seed]
        draw = random.Random(seed)
        left, right = frame(spark, draw), frame(spark, draw)
        asked[seed] = (left, right, names, how, by)
        joined = dt.bestmatch_join(
            {"R": left, "S": right},
            on=[CRITERIA[name][0]() for name in names],
            how=how,
            by="k" if by else None,
            sample=draw.random() < 0.5,
        )
        frames.append(joined.selectExpr(f"{seed} AS seed", "R.id AS r", "S.id AS s"))
    found = {seed: [] for seed in drawn}
    for row in functools.reduce(lambda a, b: a.unionAll(b), frames).collect():
        found[row.seed].append((row.r, row.s))
    for seed, (left, right, names, how, by) in asked.items():
        wanted = expected(left, right, names, how, by)
        if sorted(found[seed], key=str) != sorted(wanted, key=str):
            note = f"seed {seed}: on={names}, how={how}, by={by}\n{left.collect()}\n{right.collect()}"
            raise AssertionError(f"{note}\nfound {found[seed]}\nwanted {wanted}")


def seeds(first: int, last: int) -> list[int]:
    return [int(os.environ["NET_SEED"])] if "NET_SEED" in os.environ else list(range(first, last))


@pytest.mark.in_turns
@pytest.mark.parametrize("first", range(0, USUAL, 16))
def test_best_matches(spark, first):
    check(spark, seeds(first, min(first + 16, USUAL)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(USUAL, len(CASES), 64))
def test_more_best_matches(spark, first):
    for begin in range(first, min(first + 64, len(CASES)), 16):
        check(spark, seeds(begin, min(begin + 16, len(CASES))))
