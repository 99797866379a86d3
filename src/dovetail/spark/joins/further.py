"""One input after the other as Spark frames: tables beside streams, and theta joins with roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.conditions.names import quoted
from dovetail.conditions.predicates import parse
from dovetail.conditions.tokens import read
from dovetail.errors import UnsupportedTypeError
from dovetail.families.theta.spec import Algorithm, Options
from dovetail.plan.further import FurtherJoin, RolesPlan, ThetaRoles
from dovetail.plan.theta import plan_theta
from dovetail.spark.frames import Side, filtered_sides
from dovetail.spark.joins.theta import theta_facts, theta_frame
from dovetail.spark.metrics import Handle, attach, handle_of

_SPARK: dict[How, str] = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}
LEFT = "#joined"
"""The alias of what is there already.  No alias of a user contains a #."""


def with_tables(
    joined: DataFrame, tables: Mapping[str, DataFrame], joins: Sequence[FurtherJoin], inputs: Sequence[str]
) -> DataFrame:
    """A frame of structs with those of the tables, in the order of the inputs."""
    for join in joins:
        if join.by_key:
            joined = _by_key(joined, tables[join.alias], join)
        else:
            found = _by_values(joined, tables[join.alias], join, Options(join.how), sample=False)
            joined = _opened(found, joined, join)
    return _in_order(joined, inputs)


def _by_key(joined: DataFrame, table: DataFrame, join: FurtherJoin) -> DataFrame:
    """Spark's own join, which looks a table of any size up by key."""
    condition = F.expr(join.condition).cast("boolean")
    for alias in join.present:
        condition &= F.col(quoted(alias)).isNotNull()
    return joined.join(Side.of(join.alias, table).frame, condition, _SPARK[join.how])


def _by_values(
    joined: DataFrame, further: DataFrame, join: FurtherJoin, options: Options, *, sample: bool
) -> DataFrame:
    """The theta join of what is there, as one input, with a further one."""
    frames = {LEFT: joined, join.alias: further}
    columns = {name: joined.schema[name].dataType.fieldNames() for name in joined.columns}  # type: ignore[attr-defined]
    condition = join.nested(LEFT, {**columns, join.alias: further.columns})
    predicate = parse(condition, {alias: frame.columns for alias, frame in frames.items()})
    facts = theta_facts(frames, predicate)
    plan = plan_theta((LEFT, join.alias), predicate, facts, options, window=None, broadcast=None, sample=sample)
    return theta_frame(frames, plan)


def _opened(found: DataFrame, joined: DataFrame, join: FurtherJoin) -> DataFrame:
    """A join of two inputs with one column for each alias again."""
    before = [F.col(f"{quoted(LEFT)}.{quoted(name)}").alias(name) for name in joined.columns]
    return found.select(*before, *([F.col(quoted(join.alias))] if JoinKind.of(join.how).pairs else []))


def _in_order(joined: DataFrame, inputs: Sequence[str]) -> DataFrame:
    shown = [alias for alias in inputs if alias in joined.columns]
    return joined if joined.columns == shown else joined.select(*map(quoted, shown))


def theta_roles_frame(
    frames: Mapping[str, DataFrame], roles: ThetaRoles, options: tuple[Algorithm, int | None], how: str, *, sample: bool
) -> DataFrame:
    """The lazy frame of a theta join whose inputs play different parts."""
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    handles: list[Handle] = []
    first = {alias: frames[alias] for alias in roles.first}
    facts = theta_facts(first, roles.on)  # which refuses what Spark cannot evaluate
    if len(first) == 1:
        (alias,) = first
        texts = [*(part.sql for part in roles.on.filters), *(part.sql for part in roles.on.rests)]
        filters = [(alias, sql) for sql in texts]
        joined = filtered_sides(first, filters)[alias].frame
    else:
        plan = plan_theta(
            roles.first, roles.on, facts, Options("inner", *options), window=None, broadcast=None, sample=sample
        )
        joined = theta_frame(first, plan)
        handles.append(handle_of(joined, "theta_join"))
    for join in roles.joins:
        found = _by_values(joined, frames[join.alias], join, Options(join.how, *options), sample=sample)
        handles.append(handle_of(found, "theta_join"))
        for recorder in handles[-1].recorders:
            recorder.name = recorder.name.replace(LEFT, ",".join(joined.columns))
        joined = _opened(found, joined, join)
    words = tuple(one.plan.text().replace(f"{LEFT}.", "").replace(LEFT, "what is there") for one in handles)
    if roles.alone:
        joined = _with_unmatched_rows(_in_order(joined, tuple(frames)), frames, roles)
        words += (f"  then        the rows of {', '.join(roles.alone)} that are in no result, each alone",)
    handle = Handle(RolesPlan(tuple(frames), streams, how, words))
    handle.recorders += [recorder for one in handles for recorder in one.recorders]
    return attach(_in_order(joined, tuple(frames)), handle)


def _with_unmatched_rows(results: DataFrame, frames: Mapping[str, DataFrame], roles: ThetaRoles) -> DataFrame:
    """The results, and of each kept input the rows that are in none of them."""
    columns = {alias: frame.columns for alias, frame in frames.items()}
    named = {item.sql: item.alias for sql in roles.conditions for item in read(sql, columns) if item.alias}
    united = results
    for alias in roles.alone:
        side = Side.of(alias, frames[alias]).frame
        keys = [F.expr(sql) for sql, of in named.items() if of == alias]
        kinds = [field.dataType for field in side.select(*keys).schema.fields] if keys else []
        keys = [_told_apart(key, kind, alias) for key, kind in zip(keys, kinds, strict=True)]
        mine, theirs = ([key.alias(f"#{letter}{at}") for at, key in enumerate(keys)] for letter in ("mine", "theirs"))
        known = results.select(*theirs, F.lit(True).alias("#known"))
        same = reduce(
            lambda a, b: a & b,
            [F.col(f"#mine{at}").eqNullSafe(F.col(f"#theirs{at}")) for at in range(len(keys))],
            F.col("#known"),
        )
        unmatched = side.select("*", *mine).join(known if keys else known.limit(1), same, "left_anti")
        rows = [
            F.col(quoted(name)) if name == alias else F.lit(None).cast(results.schema[name].dataType).alias(name)
            for name in results.columns
        ]
        united = united.unionAll(unmatched.select(*rows))
    return united


def _told_apart(key: Column, kind: T.DataType, alias: str) -> Column:
    """A value in a form that is equal for equal values only: -0.0 is none of 0.0, nor a text one that it folds to."""
    if isinstance(kind, T.FloatType | T.DoubleType):
        return key.cast("string")
    if isinstance(kind, T.StringType):
        return key.cast("binary")
    if not _has_equality(kind):
        raise UnsupportedTypeError(
            f"the condition names a column of {alias!r} of the type {kind.simpleString()}, which has no equality, and "
            "how= keeps the rows of several inputs, or of one beside a present or absent one",
            accepted="columns of other types in the condition, or one kept input",
            hint="compute what the condition needs of the column before the join",
        )
    return key


def _has_equality(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_equality(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_has_equality(field.dataType) for field in kind.fields)
    return kind.typeName() not in ("map", "variant", "geometry", "geography", "interval", "udt")


def stream_frame(
    frames: Mapping[str, DataFrame], stream: str, on: Predicate, joins: Sequence[FurtherJoin], how: str
) -> DataFrame:
    """The lazy frame of one stream beside several tables."""
    theta_facts({stream: frames[stream]}, on)  # which refuses what Spark cannot evaluate
    texts = [*(part.sql for part in on.filters), *(part.sql for part in on.rests)]
    joined = filtered_sides({stream: frames[stream]}, [(stream, sql) for sql in texts])[stream].frame
    words = tuple(f"  then        {join.text()}" for join in joins)
    handle = Handle(RolesPlan(tuple(frames), frozenset((stream,)), how, words))
    return attach(with_tables(joined, frames, joins, tuple(frames)), handle)
