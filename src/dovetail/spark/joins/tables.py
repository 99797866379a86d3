"""Tables beside streams as Spark frames: one join after the other with what the streams give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.conditions.join_kind import How
from dovetail.conditions.names import quoted
from dovetail.conditions.predicates import parse
from dovetail.families.theta.spec import Options
from dovetail.plan.tables import TableJoin
from dovetail.plan.theta import plan_theta
from dovetail.spark.frames import Side
from dovetail.spark.joins.theta import theta_facts, theta_frame

_SPARK: dict[How, str] = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}


def with_tables(
    joined: DataFrame, tables: Mapping[str, DataFrame], joins: Sequence[TableJoin], inputs: Sequence[str]
) -> DataFrame:
    """A frame of structs with those of the tables, in the order of the inputs."""
    for join in joins:
        by = _by_key if join.by_key else _by_values
        joined = by(joined, tables[join.alias], join)
    shown = [alias for alias in inputs if alias in joined.columns]
    return joined if joined.columns == shown else joined.select(*map(quoted, shown))


def _by_key(joined: DataFrame, table: DataFrame, join: TableJoin) -> DataFrame:
    """Spark's own join, which looks a table of any size up by key."""
    condition = F.expr(join.condition).cast("boolean")
    for alias in join.present:
        condition &= F.col(quoted(alias)).isNotNull()
    return joined.join(Side.of(join.alias, table).frame, condition, _SPARK[join.how])


def _by_values(joined: DataFrame, table: DataFrame, join: TableJoin) -> DataFrame:
    """The theta join of a stream and a table; what is there already is one input of it."""
    left = "#joined"
    while left in joined.columns:
        left += "#"
    frames = {left: joined, join.alias: table}
    columns = {name: joined.schema[name].dataType.fieldNames() for name in joined.columns}  # type: ignore[attr-defined]
    condition = join.nested(left, {**columns, join.alias: table.columns})
    predicate = parse(condition, {alias: frame.columns for alias, frame in frames.items()})
    plan = plan_theta(
        (left, join.alias), predicate, theta_facts(frames, predicate), Options(join.how), window=None, broadcast=None,
        sample=False,
    )  # fmt: skip
    found = theta_frame(frames, plan)
    before = [F.col(f"{quoted(left)}.{quoted(name)}").alias(name) for name in joined.columns]
    return found.select(*before, *([F.col(quoted(join.alias))] if join.how in ("inner", "left") else []))
