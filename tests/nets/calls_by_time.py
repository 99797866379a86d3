"""Random calls of joins by time beside what Spark has for them: windows, and the row that was current."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from tests.nets.calls import ALIASES, HOWS, SPARK_HOW, Call, Writer, domain_of, packed
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
POLICIES = [
    (direction, how, keyed, exact, bounded)
    for direction in ("backward", "forward", "nearest")
    for how in ("inner", "left")
    for keyed in (False, True)
    for exact in (True, False)
    for bounded in (False, True)
]
"""Every combination of options; seeds go through them in turn."""


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
    elif "l" in kinds or "c" in kinds:
        away = f"abs(CAST({a} AS DECIMAL(38,2)) - CAST({b} AS DECIMAL(38,2)))"
    else:
        away = f"abs(CAST({a} AS DOUBLE) - CAST({b} AS DOUBLE))"
    return f"CASE WHEN {a} = {b} THEN 0 ELSE {away} END"


def asof_call(draw: random.Random, tables: Sequence[Table], policy: tuple[Any, ...]) -> Call:
    """An as-of join with one combination of options."""
    direction, how, keyed, exact, bounded = policy
    names = draw.choice(ALIASES)[:2]
    chosen = {name: draw.choice(list(tables)) for name in names}
    frames = {name: table.frame for name, table in chosen.items()}
    group = draw.choice([g for g in MOMENTS if direction != "nearest" or "d" not in g])
    time = {name: str(table.of(draw, group)) for name, table in chosen.items()}
    kinds = [domain_of(chosen[name], time[name]) for name in names]
    (left, right), (a, b) = names, (f"{name}.{time[name]}" for name in names)
    conditions = []
    by = None
    if keyed:
        keys = draw.choice([("k", "i", "sh", "c", "d", "f"), ("s",), ("bo",), ("da",), ("w", "k")])
        by = {name: str(table.of(draw, keys)) for name, table in chosen.items()}
        conditions.append(f"{left}.{by[left]} = {right}.{by[right]}")
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
    options: dict[str, Any] = {"partitions": draw.choice([1, 2, 3])}
    if draw.random() < 0.3:
        options["broadcast"] = right
    else:
        options["sample"] = draw.choice([True, False, None])
    ours = dt.asof_join(
        frames, time=time, by=by, direction=direction, within=within, how=how, allow_exact_matches=exact, ties=ties,
        **options,
    )  # fmt: skip
    first, second = packed(frames)
    ranked = Window.partitionBy(F.col(f"{left}.{row}")).orderBy(*orders[direction], F.col(f"{right}.{ties}").desc())
    pairs = first.join(second, F.expr(" AND ".join(f"({part})" for part in conditions)), how)
    oracle = pairs.withColumn("#rank", F.row_number().over(ranked)).where("`#rank` = 1").select(left, right)
    return Call(f"asof_join(time={time}, by={by}, within={within}, {policy}, **{options})", ours, oracle)
