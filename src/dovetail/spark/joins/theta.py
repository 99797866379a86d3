"""A theta plan as a Spark frame: the steps one after the other, with their counters observed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.conditions.forms import Band, Equality, Inequality, Predicate, Term
from dovetail.families.theta.join_stages import METRICS
from dovetail.plan.theta import Facts, ThetaPlan, ThetaStep
from dovetail.spark.batch import join_step
from dovetail.spark.frames import Side, filtered_sides, same_session, shuffle_partitions
from dovetail.spark.metrics import Handle, Recorder, attach
from dovetail.spark.types import check_rest, expression_types, typed_conjuncts


def theta_facts(frames: Mapping[str, DataFrame], predicate: Predicate) -> Facts:
    """What the planner needs to know of the inputs; refuses conditions that Spark cannot evaluate."""
    same_session(frames)
    types: dict[Term, T.DataType] = {}
    terms: dict[str, list[Term]] = {alias: [] for alias in frames}
    parts: list[Equality | Inequality | Band] = [*predicate.equalities, *predicate.inequalities, *predicate.bands]
    for part in parts:
        for term in (part.left, part.right):
            terms[term.alias].append(term)
    for alias, frame in frames.items():
        types |= expression_types(alias, frame, terms[alias])
    for condition in predicate.filters:
        check_rest(Side.of(condition.alias, frames[condition.alias]).frame, condition.sql)
    for rest in predicate.rests:
        # A condition over no input at all is checked over the first.
        named = [alias for alias in frames if alias in rest.aliases] or list(frames)[:1]
        empty = [Side.of(alias, frames[alias]).frame.limit(0) for alias in named]
        check_rest(reduce(lambda a, b: a.crossJoin(b), empty), rest.sql)
    session = next(iter(frames.values())).sparkSession
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    equalities, comparisons = typed_conjuncts(predicate, types, zone=zone)
    return Facts(
        streams=frozenset(alias for alias, frame in frames.items() if frame.isStreaming),
        equalities=tuple(equalities),
        comparisons=tuple(comparisons),
        shuffle_partitions=shuffle_partitions(frames),
    )


def theta_frame(frames: Mapping[str, DataFrame], plan: ThetaPlan) -> DataFrame:
    """The lazy frame that a plan describes, one struct column per alias."""
    handle = Handle(plan)
    sides = filtered_sides(frames, plan.filters)
    joined = sides[plan.steps[0].left[0]]
    for step in plan.steps:
        joined = _observed_step(joined, sides[step.right], step, handle, streaming=plan.mode == "beside")
    # The inputs may have been joined in another order than the user listed them.
    names = [alias for alias in plan.inputs if alias in joined.fields]
    result = joined.frame if list(joined.fields) == names else joined.frame.select(*names)
    return attach(result, handle)


def _observed_step(left: Side, right: Side, step: ThetaStep, handle: Handle, *, streaming: bool) -> Side:
    name = f"dovetail({','.join([*step.left, step.right])})"
    recorder = Recorder(name, step.shuffle_partitions, streaming=streaming, names=METRICS)
    handle.recorders.append(recorder)
    result = join_step(left, right, step, recorder)
    fields = dict(left.fields)
    if step.options.how not in ("semi", "anti"):
        fields.update(right.fields)
    return Side(result, fields)
