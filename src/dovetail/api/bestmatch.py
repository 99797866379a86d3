"""`bestmatch_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from dovetail.conditions.criteria import Closest, Criterion, Extreme, Overlap, Prefer, Youngest
from dovetail.conditions.durations import duration
from dovetail.errors import ArgumentError
from dovetail.families.bestmatch.spec import How, Materialisation, Options, Unmatched
from dovetail.plan.bestmatch import Stream, plan_bestmatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bestmatch_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: Sequence[Criterion],
    how: How = "inner",
    by: str | Sequence[str] | None = None,
    unmatched: Unmatched = "drop",
    order: str | None = None,
    read_ahead: int | None = None,
    punctuation: str | None = None,
    max_age: str | timedelta | None = None,
    time: str | None = None,
    every: str | timedelta | None = None,
    memory: int | None = None,
    materialise: Materialisation = "standard",
    partitions: int | None = None,
    sample: bool = True,
) -> DataFrame:
    """Find the pairs that no other pair beats, on several criteria at once.

    A pair beats another if it is at least as good on every criterion and better on one; equally good pairs all stay.

    Parameters
    ----------
    inputs
        A mapping from an alias to a DataFrame: two static inputs, or two streams.
    on
        The criteria: :func:`closest`, :func:`least`, :func:`most`, :func:`overlap`, :func:`youngest`, :func:`prefer`.
    how
        ``inner``: the best of all pairs.  ``left``, ``right``, ``full``: the best pairs of each row of one or either
        input.
    by
        Columns of both inputs on which the rows of a pair agree; pairs compete within each key.
    unmatched
        What becomes of a row without any candidate in a left, right or full join: ``drop``, as in the paper, or
        ``keep`` it beside NULL.
    order, read_ahead, punctuation
        For streams: the column of the criterion (with ``within``) by which they are ordered, by default the first,
        and what tells how far a stream has come.  By default Spark's watermark does.  ``read_ahead=c``: once c
        consecutive rows lie above a value, nothing below it is still to come; 1 for streams in order.
        ``punctuation="p"``: a value in the column p promises that no smaller one comes after it, on a row of its own
        or on any other.
    max_age, time, every
        Only rows of the last `max_age` take part, by the column `time`.  The join is evaluated at every time at which a
        row arrives, or every so often, and the result has that time in the column ``_time``.
    memory, materialise
        Rows of a window that the join may hold at a time.  Larger windows go to local disk, in pages, by ``standard``
        or ``grid`` materialisation.
    partitions
        The number of shuffle partitions (default: the session's).
    sample
        Whether a sample of both inputs, read within the same action, may decide where rows go.

    Returns
    -------
    A lazy DataFrame with one struct column per alias.  An inner join of streams has ``_change`` beside them:
    ``insert`` for a pair that is now among the best, ``retract`` for one that no longer is.

    Notes
    -----
    A pair is no candidate if a criterion has no value for it (NULL), or if it is further apart than ``within``
    allows.  NaN is larger than every other number, as everywhere in Spark: a distance of NaN is the worst.

    Examples
    --------
    >>> cheap = dt.least("R.cost + S.cost")
    >>> light = dt.least("R.weight + S.weight")
    >>> r = spark.createDataFrame([("r1", 5, 3), ("r2", 4, 9)], "part string, cost int, weight int")
    >>> s = spark.createDataFrame([("s1", 2, 2), ("s2", 1, 8), ("s3", 3, 8)], "part string, cost int, weight int")
    >>> best = dt.bestmatch_join({"R": r, "S": s}, on=[cheap, light])
    >>> best.select("R.part", "S.part").orderBy("R.part", "S.part").show()
    +----+----+
    |part|part|
    +----+----+
    |  r1|  s1|
    |  r1|  s2|
    |  r2|  s1|
    |  r2|  s2|
    +----+----+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.bestmatch import best_frame
    from dovetail.spark.joins.bestmatch_facts import best_facts

    frames = check_inputs(inputs)
    if len(frames) != 2:
        raise ArgumentError(f"inputs holds {len(frames)} inputs", accepted="two")
    criteria = _criteria(on)
    options = Options(how, unmatched, partitions, memory, materialise)
    stream = Stream(
        order,
        read_ahead,
        punctuation,
        None if max_age is None else duration(max_age, argument="max_age"),
        None if every is None else duration(every, argument="every"),
    )
    if (max_age is None) != (time is None):
        raise ArgumentError("max_age= without time=, or time= without max_age=", accepted="both or neither")
    for name, value in (("order", order), ("punctuation", punctuation), ("time", time)):
        if value is not None and not isinstance(value, str):
            raise ArgumentError(f"{name}={value!r}", accepted="the name of a column of both inputs")
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    keys = _keys(by)
    typed, facts = best_facts(frames, criteria, keys, punctuation=punctuation, time=time, order=order)
    plan = plan_bestmatch(tuple(frames), typed, facts, options, stream, sample=sample)
    return best_frame(frames, plan)


def _keys(by: object) -> list[str]:
    if by is None:
        return []
    names = [by] if isinstance(by, str) else list(by) if isinstance(by, list | tuple) else [by]
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"by={by!r}", accepted="the name of a column of both inputs, or a list of names")
    return [name for name in names if isinstance(name, str)]


def _criteria(on: object) -> list[Criterion]:
    accepted = "a list of criteria, such as [closest('t', within='10 minutes'), least('R.cost + S.cost')]"
    if isinstance(on, Closest | Extreme | Overlap | Prefer | Youngest):
        return [on]
    if isinstance(on, str) or not isinstance(on, Sequence) or not on:
        raise ArgumentError(f"on={on!r}", accepted=accepted)
    for one in on:
        if not isinstance(one, Closest | Extreme | Overlap | Prefer | Youngest):
            raise ArgumentError(f"on holds {one!r}, which is not a criterion", accepted=accepted)
    return list(on)
