"""Theta joins on an OR as Spark frames: a union of searches, and what none of them has a match for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.forms import Predicate, Rest
from dovetail.conditions.join_kind import How, JoinKind
from dovetail.plan.theta_either import EitherPlan
from dovetail.spark.frames import Side
from dovetail.spark.metrics import Handle, attach, handle_of


def settled(frames: Mapping[str, DataFrame], predicate: Predicate) -> Predicate:
    """The condition, in which an IN counts as equalities only where all that it compares is of one type.

    Spark compares what IN lists in one common type, which is another one than that of each equality alone where types
    differ: such an IN is left to Spark.
    """
    return replace(predicate, rests=tuple(_settled(frames, rest) for rest in predicate.rests))


def _settled(frames: Mapping[str, DataFrame], rest: Rest) -> Rest:
    if not rest.alike:
        return rest
    empty = [Side.of(alias, frame).frame.limit(0) for alias, frame in frames.items()]
    fields = reduce(DataFrame.crossJoin, empty).select(*[F.expr(sql) for sql in rest.alike]).schema.fields
    kinds = {_compared(field.dataType) for field in fields} - {"void"}
    return rest if len(kinds) == 1 else replace(rest, either=(), alike=())


def _compared(kind: T.DataType) -> str:
    """A type in which values are equal exactly where they are as they were given."""
    if isinstance(kind, T.StructType):
        return f"struct<{','.join(_compared(field.dataType) for field in kind.fields)}>"
    return "integer" if isinstance(kind, T.IntegralType) else kind.simpleString()


Join = Callable[[Mapping[str, DataFrame], str, How], DataFrame]
"""Inputs, condition and kind of join."""


def either_frame(
    frames: Mapping[str, DataFrame], either: tuple[str, ...], texts: Sequence[str], how: How, join: Join
) -> DataFrame:
    """The join on an OR; `texts` are the whole conditions of its searches, which have no pair in common."""
    kind, made = JoinKind.of(how), _Made(join)
    if kind.pairs:
        found = [made(frames, text, "inner") for text in texts]
        rows = reduce(DataFrame.unionByName, found)
        names = list(frames)
        for kept, alias in zip(kind.preserved, names, strict=False):
            if kept:
                other = next(name for name in names if name != alias)
                alone = _unmatched(made, {alias: frames[alias], other: frames[other]}, texts)
                missing = Side.of(other, frames[other]).missing()
                rows = rows.unionByName(alone.select(alias, *missing))
    elif kind.unmatched:
        rows = _unmatched(made, frames, texts)
    else:
        rows = _matched(made, frames, texts)
    handles = [handle_of(frame, "theta_join") for frame in made.frames]
    plan = EitherPlan(tuple(frames), how, either, tuple(handle.plan for handle in handles[: len(texts)]))  # type: ignore[misc]
    return attach(rows, Handle(plan, [recorder for handle in handles for recorder in handle.recorders]))


class _Made:
    """The joins that were made for one call, in their order."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self.frames: list[DataFrame] = []

    def __call__(self, frames: Mapping[str, DataFrame], text: str, how: How) -> DataFrame:
        self.frames.append(self._join(frames, text, how))
        return self.frames[-1]


def _unmatched(made: _Made, frames: Mapping[str, DataFrame], texts: Sequence[str]) -> DataFrame:
    """Rows of the first input that no search has a match for: what one search leaves, the next one looks at."""
    (first, rows), *others = frames.items()
    for number, text in enumerate(texts):
        left = made({first: rows, **dict(others)}, text, "anti")
        if number == len(texts) - 1:
            return left
        rows = left.select(f"{first}.*")
    raise AssertionError("an OR has conditions")


def _matched(made: _Made, frames: Mapping[str, DataFrame], texts: Sequence[str]) -> DataFrame:
    """Rows of the first input that a search has a match for, each by the first search that finds one."""
    (first, rows), *others = frames.items()
    found = []
    for number, text in enumerate(texts):
        found.append(made({first: rows, **dict(others)}, text, "semi"))
        if number < len(texts) - 1:
            rows = made({first: rows, **dict(others)}, text, "anti").select(f"{first}.*")
    return reduce(DataFrame.unionByName, found)
