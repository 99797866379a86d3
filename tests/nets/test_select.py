"""``select=`` beside Spark's own join followed by ``select``: columns left out on the way change nothing.

The calls are those of the other nets.  Each is drawn with its oracle, made once more with a drawn selection, and held
against the same selection of the oracle's rows.  ``NET_SEED=n`` replays a dozen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tests.nets import calls, calls_by_time
from tests.nets.calls import Call, differences, net_table, theta_call
from tests.nets.calls_by_time import POLICIES, asof_call, window_call
from tests.nets.conditions import AnyConditionWriter
from tests.nets.sessions import drawn_settings, seeds, settings

import dovetail as dt

DOZEN = 12


@dataclass
class Recording:
    """Stands for the package in a net, and remembers the last join that was asked for."""

    last: tuple[Any, Any, dict[str, Any]] | None = field(default=None)

    def __getattr__(self, name: str) -> Any:
        made = getattr(dt, name)
        if not name.endswith("_join"):
            return made

        def call(inputs: Any, **options: Any) -> DataFrame:
            self.last = (made, inputs, options)
            return made(inputs, **options)

        return call


def selection(draw: random.Random, oracle: DataFrame) -> tuple[list[Any], list[Any]]:
    """Items for `select=`, and the same for a frame with a struct for each input."""
    aliases = oracle.columns
    fields = [(alias, one.name) for alias in aliases for one in oracle.schema[alias].dataType.fields]
    owners: dict[str, int] = {}
    for _, name in fields:
        owners[name.casefold()] = owners.get(name.casefold(), 0) + 1
    ours: list[Any] = []
    meant: list[Any] = []
    for number in range(draw.choice([1, 2, 3, 5])):
        alias, name = draw.choice(fields)
        other = ".".join(draw.choice(fields))
        shape = draw.choice(["column", "column", "column", "expression", "bare", "Column", "star", "whole"])
        if shape == "bare" and (owners[name.casefold()] > 1 or name.casefold() in map(str.casefold, aliases)):
            shape = "column"
        if shape == "column":
            ours.append(f"{alias}.{name} AS o{number}")
            meant.append(ours[-1])
        elif shape == "bare":
            ours.append(f"{name} IS NULL AS o{number}")
            meant.append(f"{alias}.{name} IS NULL AS o{number}")
        elif shape == "expression":
            ours.append(f"concat_ws('{alias}.x', string({alias}.{name} IS NULL), string({other} IS NULL)) AS o{number}")
            meant.append(ours[-1])
        elif shape == "Column":
            column = F.coalesce(F.col(f"{alias}.{name}").isNull(), F.col(other).isNotNull()).alias(f"o{number}")
            ours.append(column)
            meant.append(column)
        elif shape == "star" and number == 0:
            own = [one.name for one in oracle.schema[alias].dataType.fields]
            left_out = draw.sample(own, draw.randint(0, len(own) - 1))
            ours.append(f"{alias}.* EXCEPT ({', '.join(left_out)})" if left_out else f"{alias}.*")
            meant += [f"{alias}.{one}" for one in own if one not in left_out]
        else:
            ours.append(f"{alias} AS o{number}" if draw.random() < 0.5 else F.col(alias).alias(f"o{number}"))
            meant.append(F.col(alias).alias(f"o{number}"))
    return ours, meant


def check(spark, monkeypatch, family: str, seed: int) -> None:
    """A dozen calls of one family."""
    draw = random.Random(f"select {family} {seed}")
    conf = drawn_settings(f"select {family}", seed)
    any_case = conf["spark.sql.caseSensitive"] != "true"
    recording = Recording()
    monkeypatch.setattr(calls, "dt", recording)
    monkeypatch.setattr(calls_by_time, "dt", recording)
    with settings(spark, conf):
        tables = [net_table(spark, draw, draw.choice([0, 1, 5, 9, 14])) for _ in range(3)]
        tables.append(net_table(spark, draw, 14))
        drawn = []
        for _ in range(DOZEN):
            if family == "window":
                call = window_call(draw, tables, any_case=any_case)
            elif family == "asof":
                call = asof_call(draw, tables, draw.choice(POLICIES))
            else:
                write = AnyConditionWriter if family == "conditions" else calls.Writer
                call = theta_call(draw, tables, any_case=any_case, write=write)
            join, inputs, options = recording.last
            ours, meant = selection(draw, call.oracle)
            columns = [F.expr(one) if isinstance(one, str) else one for one in meant]
            note = f"{call.note}, select={ours}"
            drawn.append(Call(note, join(inputs, **options, select=ours), call.oracle.select(*columns)))
        wrong = list(differences(drawn))
    assert not wrong, "\n".join([f"NET_SEED={seed}, {family}, {conf}", *wrong])


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", seeds(0, 2))
@pytest.mark.parametrize("family", ["theta", "conditions", "window", "asof"])
def test_selected_columns_are_those_of_the_join(spark, monkeypatch, family, seed):
    check(spark, monkeypatch, family, seed)


COLUMNS = ["a", "at", "b", "c", "d", "k"]


def tied(spark, draw: random.Random, rows: int) -> DataFrame:
    """Rows of which most have a time in common with others."""
    schema = T.StructType([T.StructField(name, T.IntegerType()) for name in COLUMNS])
    return spark.createDataFrame([[draw.choice([0, 1, 2, None]) for _ in COLUMNS] for _ in range(rows)], schema)


@pytest.mark.parametrize("seed", seeds(0, 3))
def test_what_is_selected_does_not_change_which_row_matches(spark, seed):
    """The last of the rows of one time, by all columns from left to right, whichever of them are looked at."""
    draw = random.Random(f"ties {seed}")
    left, right = tied(spark, draw, 15), tied(spark, draw, 40)
    rows = left.collect()
    others = right.where("at IS NOT NULL AND k IS NOT NULL").collect()

    def order(row: Any) -> list[tuple[bool, Any]]:
        return [(value is not None, value) for value in (row.at, *row)]

    for _ in range(4):
        shown = draw.sample(COLUMNS, draw.choice([1, 2, 3]))
        found = dt.asof_join(
            {"l": left, "r": right}, time="at", by="k", how="left",
            select=[*(f"l.{name} AS l_{name}" for name in COLUMNS), *(f"r.{name} AS r_{name}" for name in shown)],
        )  # fmt: skip
        meant = []
        for row in rows:
            near = [one for one in others if row.at is not None and one.k == row.k and one.at <= row.at]
            match = max(near, key=order, default=None)
            meant.append((*row, *(None if match is None else match[name] for name in shown)))
        assert sorted(map(str, map(tuple, found.collect()))) == sorted(map(str, meant)), shown
