"""Random calls of joins by time beside what Spark has for them: windows, and the row that was current."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from functools import reduce
from itertools import combinations, pairwise, product
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from tests.nets.calls import ALIASES, HOWS, SPARK_HOW, Call, Writer, domain_of, packed
from tests.nets.sessions import small_inputs
from tests.nets.tables import TIMES, Table

import dovetail as dt

CLOCKS = (("k", "i", "sh", "l"), ("ts", "da"), ("ts",), ("tn", "da"), ("da",))
"""Domains of times that go together; with timestamps among them, dates are midnights in the zone of the session."""


def _instant(column: str, clock: Sequence[str]) -> str:
    """A time as a whole number that subtracts without overflow."""
    if "k" in clock:
        return f"CAST({column} AS DECIMAL(38,0))"
    if "ts" in clock:
        return f"CAST(unix_micros(CAST({column} AS TIMESTAMP)) AS DECIMAL(38,0))"
    zoneless = f"CAST({column} AS TIMESTAMP_NTZ)"
    return f"CAST(timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {zoneless}) AS DECIMAL(38,0))"


def window_call(draw: random.Random, tables: Sequence[Table], *, any_case: bool) -> Call:
    """A window join of two or three inputs."""
    count = 3 if draw.random() < 0.25 else 2
    names = draw.choice(ALIASES)[:count]
    chosen = {name: draw.choice(list(tables)) for name in names}
    frames = {name: table.frame for name, table in chosen.items()}
    writer = Writer(draw, chosen, any_case=any_case)
    clock = draw.choice(CLOCKS)
    times = {name: str(table.of(draw, clock)) for name, table in chosen.items()}
    has_zone = any(domain_of(chosen[name], times[name]) == "ts" for name in names)
    measured = clock if "k" in clock else ("ts",) if has_zone else ("tn",)
    instants = {name: _instant(f"{name}.{times[name]}", measured) for name in names}
    minute = 60_000_000
    lengths = [1, 2, 5, 30000] if "k" in clock else [minute * m for m in (1, 30, 60, 300, 1440, 2880)]
    conditions: list[str] = []

    def given(length: int) -> Any:
        return length if "k" in clock else f"{length // minute} minutes"

    def bounded(a: str, b: str) -> Any:
        length, apart = draw.choice(lengths), f"({instants[b]} - {instants[a]})"
        if draw.random() < 0.3:
            conditions.append(f"{apart} BETWEEN 0 AND {length}")
            return dt.after(given(length))
        conditions.append(f"{apart} BETWEEN -{length} AND {length}")
        return given(length)

    if draw.random() < 0.4:
        length = draw.choice(lengths)
        within: Any = given(length)
        for at, a in enumerate(names):
            conditions += [f"abs({instants[b]} - {instants[a]}) <= {length}" for b in names[at + 1 :]]
    else:
        within = {pair: bounded(*pair) for pair in pairwise(names)}
    how = draw.choice(HOWS) if count == 2 else "inner"
    parts: list[str] = []
    if draw.random() < 0.8:
        parts.append(writer.condition(*names[:2]))
    if count == 3 and draw.random() < 0.7:
        parts.append(writer.connection(*names[1:]))
    on = " AND ".join(parts) or None
    options = {"partitions": draw.choice([1, 2, 3])}
    ours = dt.window_join(frames, on=on, time=times, within=within, how=how, **options)
    meant = F.expr(" AND ".join(f"({part})" for part in [*conditions, *parts]))
    if count == 3:
        oracle = reduce(lambda a, b: a.crossJoin(b), packed(frames)).where(meant)
    else:
        left, right = packed(frames)
        oracle = left.join(right, meant, SPARK_HOW.get(how, how))
    return Call(f"window_join(on={on!r}, time={times}, within={within}, how={how!r}, **{options})", ours, oracle)


# --- as of ----------------------------------------------------------------------------------------------------------

MOMENTS = (("k", "i", "sh", "f", "d"), ("k", "i", "sh", "c"), ("k", "i", "sh", "l"), TIMES, ("iv",))
ONLY_ORDERED = (("s",), ("bi",))
"""Domains of times that have no distance."""
WIDE = ("k", "c", "w")
"""Domains of times of more than 18 digits where one of them is."""
KEYED = ("", "one", "one", "two", "null-safe", "struct", "array")
WHERE = ("", "", "right", "left", "order", "differs", "equal", "rest", "several")
_CHOICES = (
    ("backward", "forward", "nearest"), HOWS, tuple(dict.fromkeys(KEYED)), (True, False), (False, True),
    tuple(dict.fromkeys(WHERE)),
)  # fmt: skip
"""direction, how, keys, exact matches, a tolerance, further conditions"""


def _covering(choices: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Combinations, the first of which have every two choices of two options together at least once; then the rest."""
    draw = random.Random(6)
    left = list(product(*choices))
    draw.shuffle(left)
    missing = {((i, a), (j, b)) for one in left for (i, a), (j, b) in combinations(enumerate(one), 2)}
    found = []
    while missing:
        best = max(left[:400], key=lambda one: len(missing & set(combinations(enumerate(one), 2))))
        missing -= set(combinations(enumerate(best), 2))
        left.remove(best)
        draw.shuffle(left)
        found.append(best)
    return found + left


POLICIES = _covering(_CHOICES)
"""Every combination of options; seeds go through them in turn."""
USUAL = 60
"""So many of them have every pair of choices; other runs draw from all."""


def _distance(a: str, b: str, kinds: Sequence[str]) -> str:
    """How far apart two moments are, as a double or in microseconds; 0 where they are equal."""
    if "ts" in kinds or "tn" in kinds or "da" in kinds:
        type_ = "TIMESTAMP" if "ts" in kinds else "TIMESTAMP_NTZ"
        away = f"abs(timestampdiff(MICROSECOND, CAST({a} AS {type_}), CAST({b} AS {type_})))"
        if type_ == "TIMESTAMP":
            # In elapsed time, whatever the clocks of the zone do.
            away = f"abs(unix_micros(CAST({a} AS TIMESTAMP)) - unix_micros(CAST({b} AS TIMESTAMP)))"
    elif "iv" in kinds:
        return f"abs({a} - {b})"
    elif "w" in kinds:
        away = f"abs(CAST({a} AS DECIMAL(38,4)) - CAST({b} AS DECIMAL(38,4)))"
    elif "l" in kinds or "c" in kinds:
        away = f"abs(CAST({a} AS DECIMAL(38,2)) - CAST({b} AS DECIMAL(38,2)))"
    else:
        away = f"abs(CAST({a} AS DOUBLE) - CAST({b} AS DOUBLE))"
    return f"CASE WHEN {a} = {b} THEN 0 ELSE {away} END"


def _nested(table: Table, keyed: str) -> str:
    """A struct or an array over columns of a table, sometimes NULL as a whole."""
    k, f, s = (next(name for domain, name in table.columns if domain == one) for one in ("k", "f", "s"))
    if keyed == "struct":
        return f"CASE WHEN {k} <> 1 THEN struct({f} AS a, struct({k} % 2 AS b, {s} AS c) AS d) END"
    return f"CASE WHEN {k} <> 1 THEN array({f}, CAST({k} % 2 AS FLOAT)) END"


def asof_call(draw: random.Random, tables: Sequence[Table], policy: tuple[Any, ...]) -> Call:
    """An as-of join with one combination of options."""
    direction, how, keyed, exact, bounded, where = policy
    names = draw.choice(ALIASES)[:2]
    chosen = {name: draw.choice(list(tables)) for name in names}
    frames = {name: table.frame for name, table in chosen.items()}
    groups = [g for g in MOMENTS if direction != "nearest" or "d" not in g]
    far = bounded or direction == "nearest"
    groups += [] if far else ONLY_ORDERED
    groups += [WIDE] if not far or where in ("", "left", "right", "equal") else []
    group = draw.choice(groups)
    time = {name: str(table.of(draw, group)) for name, table in chosen.items()}
    kinds = [domain_of(chosen[name], time[name]) for name in names]
    (left, right), (a, b) = names, (f"{name}.{time[name]}" for name in names)
    conditions = []
    by = None
    on: list[str] = []
    plain = [("k", "i", "sh", "c", "d", "f"), ("s",), ("bo",), ("da",), ("w", "k"), ("bi",), ("tn", "ts")]
    if keyed in ("one", "two"):
        groups = [draw.choice(plain) for _ in range(1 if keyed == "one" else 2)]
        by = {name: [str(table.of(draw, keys)) for keys in groups] for name, table in chosen.items()}
        conditions += [f"{left}.{a} = {right}.{b}" for a, b in zip(by[left], by[right], strict=True)]
    elif keyed == "null-safe":
        keys = draw.choice(plain)
        a_key, b_key = (f"{name}.{table.of(draw, keys)}" for name, table in chosen.items())
        on.append(draw.choice([f"{a_key} <=> {b_key}", f"{b_key} IS NOT DISTINCT FROM {a_key}"]))
    elif keyed:
        frames = {
            name: frame.withColumn("nest", F.expr(_nested(chosen[name], keyed))) for name, frame in frames.items()
        }
        by = {name: ["nest"] for name in names}
        conditions.append(f"{left}.nest = {right}.nest")
    writer = Writer(draw, chosen, any_case=False)
    small = [f"{name}.{chosen[name].of(draw, ('k',))}" for name in names]
    on += {
        "": [],
        "right": [f"{small[1]} > 0"],
        "left": [f"{small[0]} <> 2"],
        "order": [writer.connection(left, right, ordered=True)],
        "differs": [f"{small[1]} <> {small[0]}"],
        "equal": [f"{small[0]} + 1 = {small[1]}"],
        "rest": [f"({small[0]} + {small[1]}) % 2 = 0"],
        "several": [f"{small[0]} <= {small[1]}", f"concat({small[0]}, {small[1]}) <> '11'", f"{small[1]} IS NOT NULL"],
    }[where]
    conditions += on
    distance = _distance(a, b, kinds)
    within: Any = None
    if bounded:
        is_time = bool({"ts", "tn", "da"} & set(kinds))
        within, limit = draw.choice(
            [("30 minutes", 1_800_000_000), ("1 day", 86_400_000_000)] if is_time else [(3, 3), (100, 100)]
        )
        if group == ("k", "i", "sh", "f", "d") and draw.random() < 0.5:
            within, limit = 0.5, "0.5D"
        if "iv" in kinds:
            within, limit = "30 minutes", "INTERVAL '30' MINUTE"
        conditions.append(f"{distance} <= {limit}")
    later, earlier = (">=", "<=") if exact else (">", "<")
    if direction != "nearest":
        conditions.append(f"{b} {earlier if direction == 'backward' else later} {a}")
    else:
        conditions.append(f"{b} = {b} AND {a} = {a}" if exact else f"{b} <> {a}")
    # In the type of the comparison, in which different times of the second input may be one.
    moment = f"coalesce({b}, {a})"
    ties = next(name for domain, name in chosen[right].columns if domain == "id")
    row = next(name for domain, name in chosen[left].columns if domain == "id")
    orders = {"backward": [F.expr(moment).desc()], "forward": [F.expr(moment).asc()]}
    orders["nearest"] = [F.expr(distance).asc(), F.expr(moment).asc()]
    options: dict[str, Any] = {"on": " AND ".join(on) or None}
    together = draw.random() < 0.2
    if together:
        options["sample"] = None
    elif draw.random() < 0.3 and how not in ("right", "full"):
        options["broadcast"] = right
    else:
        options |= {"partitions": draw.choice([1, 2, 3]), "sample": draw.choice([True, False, None])}
    with small_inputs(at_once=True) if together else nullcontext():
        ours = dt.asof_join(
            frames, time=time, by=by, direction=direction, within=within, how=how, allow_exact_matches=exact, ties=ties,
            **options,
        )  # fmt: skip
    options |= {"together": True} if together else {}
    first, second = packed(frames)
    ranked = Window.partitionBy(F.col(f"{left}.{row}")).orderBy(*orders[direction], F.col(f"{right}.{ties}").desc())
    pairs = first.join(second, F.expr(" AND ".join(f"({part})" for part in conditions)))
    best = pairs.withColumn("#rank", F.row_number().over(ranked)).where("`#rank` = 1").select(left, right)
    # The pairs are the same for every how; the rows of a side that are in none of them follow.
    alone = [
        rows.join(best.select(F.col(f"{name}.{number}").alias("#n")), F.expr(f"`#n` = {name}.{number}"), kind)
        for rows, name, number, kind in (
            (first, left, row, "left_semi" if how == "semi" else "left_anti"), (second, right, ties, "left_anti"),
        )
    ]  # fmt: skip
    missing = {name: F.lit(None).cast(frames[name].schema).alias(name) for name in names}
    oracle = best
    if how in ("left", "full"):
        oracle = oracle.unionByName(alone[0].withColumn(right, missing[right]))
    if how in ("right", "full"):
        oracle = oracle.unionByName(alone[1].withColumn(left, missing[left]))
    if how in ("semi", "anti"):
        oracle = alone[0]
    return Call(f"asof_join(time={time}, by={by}, within={within}, {policy}, **{options})", ours, oracle)
