"""Random calls of the joins beside what Spark itself gives for them: the net under the functions of ``dt``.

Every choice comes from a seed.  A call is drawn with its oracle: Spark's own join of the same frames in struct form, or
a window function over it.  Neither knows anything of cells, samples and kernels.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tests.nets.sessions import small_inputs
from tests.nets.tables import DOMAINS, NUMBERS, ORDERED, TIMES, Table

import dovetail as dt

HOWS = ("inner", "left", "right", "full", "semi", "anti")
SPARK_HOW = {"semi": "left_semi", "anti": "left_anti"}
ALIASES = (("A", "B", "C"), ("c0", "d0", "k0"), ("k", "s", "d"), ("Rr", "ss", "T_1"))
COMPARED = (NUMBERS, NUMBERS, TIMES, ("s",), ("bo",), ("bi",), ("iv",), ("ym",))
"""Groups of domains of which any two compare, numbers twice as often."""
SMALL = ("k", "c", "f", "d")
"""Numbers whose differences overflow nowhere: on others Spark raises an error where Dovetail has an answer."""
ALGORITHMS = ("prefap", "ftj", "cfs", "obt", "rbm")


NEW_YORK = [datetime.datetime(2024, 3, 10, 2, 30), datetime.datetime(2024, 11, 3, 1, 30)]
"""Local times that clocks in New York skip and show twice."""


@dataclass(frozen=True)
class Call:
    """A frame of ours beside the frame that Spark has for the same question."""

    note: str
    ours: DataFrame
    oracle: DataFrame


def net_table(spark: SparkSession, draw: random.Random, rows: int) -> Table:
    """A table with a column of every domain that compares and an id, in any order, with names in any case."""
    order = ["id", *ORDERED]
    draw.shuffle(order)
    spelled = [name.upper() if draw.random() < 0.2 else name for name in order]
    kinds = {"id": T.IntegerType(), **{domain: kind for domain, (kind, _) in DOMAINS.items()}}
    schema = T.StructType([T.StructField(n, kinds[d]) for d, n in zip(order, spelled, strict=True)])
    nulls = draw.choice([0.0, 0.15, 0.5])

    def value(domain: str, row: int) -> Any:
        if domain == "id":
            return row
        if draw.random() < nulls:
            return None
        return draw.choice([*DOMAINS[domain][1], *(NEW_YORK if domain == "tn" else [])])

    values = [[value(domain, row) for domain in order] for row in range(rows)]
    frame = spark.createDataFrame(values, schema)
    # A few tables in one partition, others in several: each partition is a task in every join of the dozen.
    frame = frame.coalesce(1) if rows < 10 else frame
    columns = list(zip(order, spelled, strict=True))
    # Python has no value of these types, or none that Spark takes.
    of = dict(columns)
    derived = {
        "ym": f"CAST({of['k']} AS INTERVAL MONTH)", "ar": f"array({of['k']}, {of['sh']})",
        "st": f"CASE WHEN {of['bo']} THEN struct({of['k']} AS a, {of['s']} AS b) END",
    }  # fmt: skip
    frame = frame.selectExpr("*", *[f"{sql} AS {name}" for name, sql in derived.items()])
    return Table("t", frame, (*columns, *((name, name) for name in derived)))


def packed(frames: dict[str, DataFrame]) -> list[DataFrame]:
    """Each input as one struct column under its alias, which is how results look."""
    return [frame.select(F.struct("*").alias(alias)) for alias, frame in frames.items()]


def domain_of(table: Table, column: str) -> str:
    """The domain of a column by its spelling."""
    return next(domain for domain, name in table.columns if name == column)


class Writer:
    """Writes conditions over some inputs."""

    def __init__(self, draw: random.Random, tables: dict[str, Table], *, any_case: bool) -> None:
        self.draw, self.tables, self.any_case = draw, tables, any_case

    def column(self, alias: str, domains: Sequence[str]) -> str:
        """A column of an input, in some spelling."""
        name = self.tables[alias].of(self.draw, tuple(domains))
        assert name is not None
        if self.any_case and self.draw.random() < 0.2:
            alias, name = self.draw.choice([(alias.swapcase(), name), (alias, name.swapcase())])
        return f"{alias}.{name}"

    def term(self, alias: str, domains: Sequence[str]) -> str:
        """A column, or an expression over one whose value always exists."""
        if self.draw.random() < 0.7:
            return self.column(alias, domains)
        if domains == NUMBERS:
            small = self.column(alias, ("k",))
            wrapped = [f"{small} + 1", f"({small} * 2)", f"coalesce({small}, 0)", f"abs({small} - 2)"]
            wrapped += [f"-{self.column(alias, ('d', 'f'))}", f"CAST({self.column(alias, ('i', 'sh'))} AS DOUBLE)"]
            wrapped.append(f"CASE WHEN {small} > 1 THEN {small} ELSE {self.column(alias, ('k', 'd', 'c'))} END")
            return self.draw.choice(wrapped)
        if domains == TIMES:
            some = [f"{self.column(alias, ('ts',))} + INTERVAL 1 HOUR", f"date_add({self.column(alias, ('da',))}, 1)"]
            return self.draw.choice([*some, f"CAST({self.column(alias, ('da',))} AS TIMESTAMP)"])
        if tuple(domains) == ("s",):
            text = self.column(alias, ("s",))
            return self.draw.choice([f"lower({text})", f"concat({text}, 'a')", f"substr({text}, 1, 1)"])
        return self.column(alias, domains)

    def connection(self, a: str, b: str, *, ordered: bool = False) -> str:
        """A conjunct that can be indexed; `ordered` asks for an inequality or a band."""
        draw = self.draw
        if draw.random() < 0.5:
            a, b = b, a
        shape = draw.choice(["order", "order", "band", "between", *([] if ordered else ["equal", "equal"])])
        group = draw.choice(COMPARED)
        if shape == "equal":
            return f"{self.term(a, group)} = {self.term(b, group)}"
        if shape == "order":
            return f"{self.term(a, group)} {draw.choice(['<', '<=', '>', '>='])} {self.term(b, group)}"
        if shape == "between":
            return f"{self.term(a, group)} BETWEEN {self.column(b, group)} AND {self.column(b, group)}"
        return self.band(a, b)

    def band(self, a: str, b: str) -> str:
        """A bounded difference."""
        draw = self.draw
        if draw.random() < 0.6:
            gap, ends = f"{self.column(a, SMALL)} - {self.column(b, SMALL)}", ("0", "1", "2.5", "0.1")
        else:
            gap = f"{self.column(a, TIMES)} - {self.column(b, TIMES)}"
            ends = ("INTERVAL 30 MINUTES", "INTERVAL 1 HOUR", "INTERVAL '1' DAY", "INTERVAL 0 SECONDS")
        end = draw.choice(ends)
        return draw.choice(
            [
                f"ABS({gap}) <= {end}",
                f"abs({gap}) < {end}",
                f"{gap} BETWEEN -{ends[1]} AND {end}",
                f"{gap} >= {end}",
                f"{end} > {gap}",
            ]
        )

    def more(self, a: str, b: str) -> str:
        """A filter, or what is left to Spark."""
        draw = self.draw
        if draw.random() < 0.5:
            one = draw.choice([a, b])
            column = self.column(one, ORDERED)
            filters = [f"{self.column(one, ('k',))} >= 1", f"{column} IS NOT NULL", f"{self.column(one, ('bo',))}"]
            filters += [
                f"{self.column(one, ('s',))} LIKE '2%'",
                f"{self.column(one, ('d',))} <> 2",
                f"{column} IS NULL",
            ]
            return draw.choice(filters)
        group = draw.choice(COMPARED)
        smaller = f"{self.column(a, group)} < {self.column(b, group)}"
        return draw.choice(
            [
                f"({self.column(a, ('k',))} = {self.column(b, ('k',))} OR {smaller})",
                f"{self.column(a, group)} <> {self.column(b, group)}",
                f"{self.column(a, group)} <=> {self.column(b, group)}",
                f"NOT ({smaller} AND {self.column(a, ('k',))} > 1)",
                f"{self.column(a, ('k',))} + {self.column(b, ('k',))} > 2",
                f"{self.column(a, ('k',))} IN (0, {self.column(b, ('k',))})",
                f"coalesce({self.column(a, ('bo',))}, {self.column(b, ('bo',))})",
            ]
        )

    def condition(self, a: str, b: str, *, ordered: bool = False) -> str:
        """One to three conjuncts, the first of which connects two inputs."""
        parts = [self.connection(a, b, ordered=ordered)]
        for _ in range(self.draw.choice([0, 0, 1, 1, 2])):
            further = self.connection if self.draw.random() < 0.5 else self.more
            parts.append(further(a, b))
        self.draw.shuffle(parts)
        return " AND ".join(parts)


def theta_call(draw: random.Random, tables: Sequence[Table], *, any_case: bool, write: type[Writer] = Writer) -> Call:
    """A theta join of two or three inputs."""
    count = 3 if draw.random() < 0.15 else 2
    names = draw.choice(ALIASES)[:count]
    chosen = {name: draw.choice(list(tables)) for name in names}
    writer = write(draw, chosen, any_case=any_case)
    frames = {name: table.frame for name, table in chosen.items()}
    options: dict[str, Any] = {}
    how = draw.choice(HOWS) if count == 2 else "inner"
    if draw.random() < 0.25:
        options["algorithm"] = draw.choice(ALGORITHMS)
    on = writer.condition(*names[:2], ordered="algorithm" in options)
    if count == 3:
        on += f" AND {writer.condition(draw.choice(names[:2]), names[2], ordered='algorithm' in options)}"
    keeps = {"left": names[:1], "right": names[1:], "full": names, "semi": names[:1], "anti": names[:1]}.get(how, ())
    small = [name for name in names if name not in keeps]
    together = "algorithm" not in options and draw.random() < 0.2
    if count == 2 and small and "algorithm" not in options and not together and draw.random() < 0.25:
        options["broadcast"] = draw.choice(small)
    elif draw.random() < 0.3:
        options["sample"] = False
    if not together and draw.random() < 0.7:
        options["partitions"] = draw.choice([1, 1, 2, 2, 3, 8])
    with small_inputs(at_once=True) if together else nullcontext():
        ours = dt.theta_join(frames, on=on, how=how, **options)
    options |= {"together": True} if together else {}
    if count == 3:
        oracle = reduce(lambda a, b: a.crossJoin(b), packed(frames)).where(F.expr(on))
    else:
        left, right = packed(frames)
        oracle = left.join(right, F.expr(on), SPARK_HOW.get(how, how))
    return Call(f"theta_join({{{', '.join(names)}}}, on={on!r}, how={how!r}, **{options})", ours, oracle)


# --- many at a time -------------------------------------------------------------------------------------------------


def _texts(frame: DataFrame, number: int) -> DataFrame:
    """The rows as text in which every value is exact, NULL included, under the number of their call."""
    columns = F.struct(*[F.col(f"`{name}`") for name in frame.columns])
    return frame.select(F.lit(number).alias("call"), F.to_json(columns, {"ignoreNullFields": "false"}).alias("row"))


def _rows(frames: Sequence[DataFrame]) -> dict[int, list[str]]:
    """The rows of each frame, from one job for all of them."""
    union = reduce(lambda a, b: a.unionAll(b), [_texts(frame, at) for at, frame in enumerate(frames)])
    found: dict[int, list[str]] = {at: [] for at in range(len(frames))}
    for number, row in union.collect():
        found[number].append(row)
    return {number: sorted(rows) for number, rows in found.items()}


def differences(calls: Sequence[Call]) -> Iterator[str]:
    """What is wrong with some calls, in words; the rows of all of them are computed at once."""
    for call in calls:
        ours, oracle = (
            [(f.name, f.dataType.simpleString()) for f in frame.schema] for frame in (call.ours, call.oracle)
        )
        if ours != oracle:
            yield f"{call.note}\n  columns {ours}\n  Spark's {oracle}"
    found, meant = (_rows([getattr(call, side) for call in calls]) for side in ("ours", "oracle"))
    for number, call in enumerate(calls):
        if found[number] != meant[number]:
            missing = [row for row in meant[number] if row not in found[number]]
            extra = [row for row in found[number] if row not in meant[number]]
            counts = f"{len(found[number])} rows, Spark has {len(meant[number])}"
            yield f"{call.note}\n  {counts}\n  missing {missing[:3]}\n  extra {extra[:3]}"
