"""How rows enter a streaming join, for rows that another definition of it has held: the way that new rows take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.changing import GIVEN, Adoption
from dovetail.conditions.names import quoted
from dovetail.inventory import StateLayout
from dovetail.spark.frames import Side


@dataclass(frozen=True)
class Intake:
    """What a join does with rows before and while it stores them."""

    pack: Callable[[Mapping[str, DataFrame]], list[DataFrame]]
    """Packs rows for the cells.  It takes for each input a frame of its columns and :data:`GIVEN` behind them."""
    adopt: Callable[[Mapping[str, Any]], Adoption]
    """How cells store what they get, once it is known what they are told."""
    schemas: Mapping[str, T.StructType]
    """The columns of each input."""
    sql: tuple[str, ...]
    """The conditions of the join, in which every column is spelled ```alias`.`column```."""


def held_side(alias: str, frame: DataFrame, filters: Sequence[str] = ()) -> Side:
    """Held rows as the side of a join, beside the mark that they carry; without those that a condition drops."""
    columns = ", ".join(quoted(name) for name in frame.columns if name != GIVEN)
    rows = frame.selectExpr(f"struct({columns}) AS {quoted(alias)}", quoted(GIVEN))
    for sql in filters:
        rows = rows.filter(F.expr(sql))
    return Side(rows, {alias: T.StructType([field for field in frame.schema.fields if field.name != GIVEN])})


def with_types(layout: StateLayout, frames: Mapping[str, DataFrame]) -> StateLayout:
    """A layout with the types of the columns, as Spark spells them."""
    types = {
        alias: {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for alias, frame in frames.items()
    }
    return layout.typed(types)
