"""As-of joins with several inputs to look up in, as Spark frames: one join after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.conditions.join_kind import How
from dovetail.conditions.names import quoted
from dovetail.plan.asof import AsofPlan
from dovetail.plan.asof_several import Lookup, SeveralPlan
from dovetail.spark.metrics import Handle, attach, handle_of

Join = Callable[[Mapping[str, DataFrame], Lookup], DataFrame]
"""The as-of join of two inputs."""


def several_frame(frames: Mapping[str, DataFrame], lookups: Sequence[Lookup], how: How, join: Join) -> DataFrame:
    """The first input beside its match in each of the others; matches travel as columns of its rows."""
    first = next(iter(frames))
    own = frames[first].columns
    joined, handles = frames[first], []
    travelling: dict[str, str] = {}
    for lookup in lookups:
        found = join({first: joined, lookup.alias: frames[lookup.alias]}, lookup)
        handles.append(handle_of(found, "asof_join"))
        rows = [F.col(f"{quoted(first)}.*")]
        if lookup.how != "semi":
            name = travelling[lookup.alias] = _unused(f"#{lookup.alias}", [*own, *travelling.values()])
            rows.append(F.col(quoted(lookup.alias)).alias(name))
        joined = found.select(*rows)
    row = F.struct(*[F.col(quoted(name)) for name in own]).alias(first)
    if how == "anti":
        missing = reduce(lambda a, b: a | b, [F.col(quoted(name)).isNull() for name in travelling.values()])
        joined = joined.filter(missing).select(row)
    else:
        matches = [F.col(quoted(travelling[alias])).alias(alias) for alias in frames if alias in travelling]
        joined = joined.select(row, *matches)
    plans = tuple(cast(AsofPlan, handle.plan) for handle in handles)
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    plan = SeveralPlan(tuple(frames), streams, how, plans)
    return attach(joined, Handle(plan, [recorder for handle in handles for recorder in handle.recorders]))


def _unused(name: str, names: Sequence[str]) -> str:
    while name in names:
        name += "#"
    return name
