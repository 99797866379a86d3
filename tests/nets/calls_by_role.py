"""Random joins of several inputs that are kept, optional, present or absent, beside chains of Spark's own joins.

A chain begins with the matches of the required and kept inputs.  An optional input is a left join, one that must be
present a left semi join, one that must be absent a left anti join, each with its windows written out in SQL.  What a
kept input has that is in none of the results is the anti join of the two.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.nets.calls import Call, Writer, domain_of, packed
from tests.nets.calls_by_time import CLOCKS, _instant
from tests.nets.tables import Table

import dovetail as dt
from dovetail.families.window.graph import After

ROLES = ("required", "required", "keep", "optional", "present", "absent")
SPARK_HOW = {"optional": "left", "present": "left_semi", "absent": "left_anti"}
NAMES = (("A", "B", "C", "D"), ("c0", "d0", "k0", "i0"), ("k", "s", "d", "p0"))
MINUTE = 60_000_000


def chain(frames: dict[str, DataFrame], how: dict[str, str], conditions: list[tuple[set[str], str]], ids: Any) -> Any:
    """The join as a chain of Spark's joins; `conditions` come with the inputs they are about, `ids` number the rows."""
    structs = dict(zip(frames, packed(frames), strict=True))
    core = [name for name in frames if how[name] in ("required", "keep")]

    def about(names: set[str], *, needed: set[str]) -> Any:
        parts = [f"({sql})" for of, sql in conditions if of <= names and of & needed]
        return F.expr(" AND ".join(parts) or "TRUE")

    joined = reduce(lambda a, b: a.crossJoin(b), [structs[name] for name in core]).where(
        about(set(core), needed=set(core))
    )
    for name in frames:
        if name not in core:
            on = about({*core, name}, needed={name})
            joined = joined.join(structs[name], on, SPARK_HOW[how[name]])
    shown = [name for name in frames if how[name] not in ("present", "absent")]
    result = joined.select(*shown)
    alone = []
    for name in core:
        if how[name] == "keep":
            known = joined.select(F.col(f"{name}.{ids[name]}").alias("#known")).where("`#known` IS NOT NULL")
            lone = structs[name].join(known, F.col(f"{name}.{ids[name]}") == F.col("#known"), "left_anti")
            nothing = [F.lit(None).cast(frames[other].schema).alias(other) for other in shown if other != name]
            alone.append(lone.select(name, *nothing).select(*shown))
    return reduce(lambda a, b: a.unionAll(b), [result, *alone])


def draw_roles(draw: random.Random, names: Sequence[str]) -> dict[str, str]:
    """Roles for all inputs, at least one of them in the core."""
    while True:
        how = {name: draw.choice(ROLES) for name in names}
        if {"required", "keep"} & set(how.values()) and set(how.values()) != {"required"}:
            return how


def draw_conditions(
    draw: random.Random, writer: Writer, how: dict[str, str], *, more: bool, every: bool = False
) -> list[tuple[set[str], str]]:
    """Conjuncts between a core input and the others, and filters; with `more`, some that only Spark evaluates."""
    names = list(how)
    core = [name for name in names if how[name] in ("required", "keep")]
    # A theta join begins with the required inputs, which something must connect.
    hub = draw.choice([name for name in core if how[name] == "required"] or core) if every else draw.choice(core)
    others = [other for other in names if other != hub and (every or draw.random() < 0.85)]
    found = [({hub, other}, writer.connection(hub, other)) for other in others]
    for other in others:
        if more and draw.random() < 0.5:
            sql = writer.more(hub, other)
            found.append(({name for name in (hub, other) if re.search(rf"\b{name}\.", sql, re.IGNORECASE)}, sql))
    if len(core) > 2 and draw.random() < 0.3:
        one, other = draw.sample(core, 2)
        found.append(({one, other}, writer.connection(one, other, ordered=True)))
    for name in names:
        if draw.random() < 0.2:
            filters = [f"{writer.column(name, ('k',))} >= 1", f"{writer.column(name, ('s',))} LIKE '2%'"]
            found.append(({name}, draw.choice([*filters, f"{writer.column(name, ('bo',))}"])))
    return found


def id_column(table: Table) -> str:
    """The column that numbers the rows of a table."""
    return next(name for domain, name in table.columns if domain == "id")


def window_role_call(draw: random.Random, tables: Sequence[Table], *, any_case: bool) -> Call:
    """A window join of two to four inputs with roles."""
    names = draw.choice(NAMES)[: draw.choice([2, 3, 3, 3, 4])]
    chosen = {name: draw.choice(list(tables)) for name in names}
    frames = {name: table.frame for name, table in chosen.items()}
    writer = Writer(draw, chosen, any_case=any_case)
    how = draw_roles(draw, names)
    core = [name for name in names if how[name] in ("required", "keep")]
    clock = draw.choice(CLOCKS)
    times = {name: str(table.of(draw, clock)) for name, table in chosen.items()}
    has_zone = any(domain_of(chosen[name], times[name]) == "ts" for name in names)
    measured = clock if "k" in clock else ("ts",) if has_zone else ("tn",)
    instants = {name: _instant(f"{name}.{times[name]}", measured) for name in names}
    lengths = [1, 2, 5, 30000] if "k" in clock else [MINUTE * m for m in (1, 30, 60, 300, 1440, 2880)]

    def given(length: int) -> Any:
        return length if "k" in clock else f"{length // MINUTE} minutes"

    within: Any
    windows: list[tuple[set[str], str]] = []
    if draw.random() < 0.5:
        length = draw.choice(lengths)
        within = given(length)
        for a, b in combinations(names, 2):
            if a in core or b in core:
                windows.append(({a, b}, f"abs({instants[b]} - {instants[a]}) <= {length}"))
    else:
        # All windows are around one input of the core: Spark needs no more than these.
        hub, within = draw.choice(core), {}
        for other in names:
            if other != hub:
                length = draw.choice(lengths)
                within[hub, other] = dt.after(given(length)) if draw.random() < 0.4 else given(length)
                low = "0" if isinstance(within[hub, other], After) else f"-{length}"
                apart = f"({instants[other]} - {instants[hub]})"
                windows.append(({hub, other}, f"{apart} BETWEEN {low} AND {length}"))
    # Half of the calls leave something to Spark.
    conditions = draw_conditions(draw, writer, how, more=draw.random() < 0.5)
    on = " AND ".join(f"({sql})" for _, sql in conditions) or None
    options = {"partitions": draw.choice([1, 2, 3])}
    ours = dt.window_join(frames, on=on, time=times, within=within, how=how, **options)
    oracle = chain(frames, how, [*windows, *conditions], {name: id_column(chosen[name]) for name in names})
    return Call(f"window_join(on={on!r}, time={times}, within={within}, how={how}, **{options})", ours, oracle)


def theta_role_call(draw: random.Random, tables: Sequence[Table], *, any_case: bool) -> Call:
    """A theta join of two to four inputs with roles."""
    names = draw.choice(NAMES)[: draw.choice([2, 3, 3, 3, 4])]
    chosen = {name: draw.choice(list(tables)) for name in names}
    frames = {name: table.frame for name, table in chosen.items()}
    writer = Writer(draw, chosen, any_case=any_case)
    how = draw_roles(draw, names)
    conditions = draw_conditions(draw, writer, how, more=draw.random() < 0.5, every=True)
    on = " AND ".join(f"({sql})" for _, sql in conditions)
    options: dict[str, Any] = {"partitions": draw.choice([1, 2, 3]), "sample": draw.random() < 0.5}
    ours = dt.theta_join(frames, on=on, how=how, **options)
    oracle = chain(frames, how, conditions, {name: id_column(chosen[name]) for name in names})
    return Call(f"theta_join(on={on!r}, how={how}, **{options})", ours, oracle)
