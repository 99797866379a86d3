"""`bestmatch_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from dovetail.api.arguments import BESTMATCH, takes_inputs
from dovetail.conditions.criteria import Closest, Criterion, Extreme, Overlap, Prefer, Within, Youngest
from dovetail.conditions.durations import duration
from dovetail.conditions.join_kind import Spelling, read_how
from dovetail.conditions.limits import memory_limit
from dovetail.errors import ArgumentError
from dovetail.families.bestmatch.spec import HOWS, How, Materialisation, Options, Unmatched
from dovetail.plan.bestmatch import StreamOptions, plan_bestmatch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(BESTMATCH)
def bestmatch_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: Sequence[Criterion],
    how: How | Spelling = "inner",
    by: str | Sequence[str] | None = None,
    unmatched: Unmatched = "drop",
    order: str | None = None,
    read_ahead: int | None = None,
    punctuation: str | None = None,
    lateness: Within | None = None,
    max_age: str | timedelta | None = None,
    time: str | None = None,
    every: str | timedelta | None = None,
    memory: int | str | None = None,
    materialise: Materialisation = "standard",
    partitions: int | None = None,
    sample: bool = True,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Find the pairs that no other pair beats, on several criteria at once.

    A pair beats another if it is at least as good on every criterion and better on one; equally good pairs all stay.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        The inputs by alias, DataFrames or names of tables and views: two static inputs, or two streams.
    on : list of Criterion
        The criteria: :func:`closest`, :func:`least`, :func:`most`, :func:`overlap`, :func:`youngest`, :func:`prefer`.
    how : str, optional
        ``inner`` (default) finds the best of all pairs; ``left``, ``right`` and ``full`` find the best pairs of each
        row of the left, the right or either input.
    by : str or list of str, optional
        Columns of both inputs that must be equal; pairs compete within each key.
    unmatched : str, optional
        What happens to a row without any candidate in a left, right or full join: ``drop`` (default), as in the paper,
        or ``keep``, with NULL for the other input.
    order : str, optional
        For streams: the column of the criterion (with ``within``) by which they are ordered (default: the first).
    read_ahead : int, optional
        For streams without a watermark: once that many consecutive rows lie above a value, no row below it is still to
        come; 1 for streams in order.
    punctuation : str, optional
        For streams without a watermark: a column in which a value promises that no smaller one comes after it, on a row
        of its own or on any other.
    lateness : int, float, decimal.Decimal, str or datetime.timedelta, optional
        For streams without a watermark, on any column with distances: no row lies further than this behind the largest
        value of its stream so far.  ``"grid"`` for streams in epsilon-grid order: those of one cell of the ordering
        criterion, ``within`` wide and counted from 0 (1970 for times), before those of the next, in any order within.
    max_age : str or datetime.timedelta, optional
        Only rows of that age or younger take part, by the column `time`.  The join is evaluated at every time at which
        a row of either input arrives, and the result has that time in the column ``_time``.
    time : str, optional
        The time column for `max_age`.
    every : str or datetime.timedelta, optional
        Evaluate the join at multiples of this length of time instead, all at which some row is young enough.
    memory : int or str, optional
        How much of its windows a left, right or full join may hold at a time: a number of rows, or a size such as
        ``"64 MB"``.  Larger windows go to local disk, in pages.
    materialise : str, optional
        How windows are written to disk: ``standard`` (default) or ``grid``.
    partitions : int, optional
        The number of shuffle partitions (default: the session's).
    sample : bool, optional
        Whether a sample of both inputs, read within the same action, may decide where rows go (default: True).
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``bestmatch_join(R=r, S=s, ...)``.  An input with the
        name of an option needs the mapping.

    Returns
    -------
    :class:`pyspark.sql.DataFrame`
        Lazy, with one struct column per alias.  An inner join of streams also has the column ``_change``: ``insert``
        for a pair that is now among the best, ``retract`` for one that no longer is.

    Raises
    ------
    ArgumentError
        If an argument has a value that the join does not take.
    UnboundedJoinError
        If nothing says when the best pairs of a stream are final.
    UnsupportedTypeError
        If a criterion names a column of a type that it cannot compare.

    See Also
    --------
    asof_join : The nearest row in time, one for each row.

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

    frames = check_inputs(inputs, named)
    if len(frames) != 2:
        raise ArgumentError(f"inputs holds {len(frames)} inputs", accepted="two")
    criteria = _criteria(on)
    limit = None if memory is None else memory_limit(memory)
    options = Options(read_how(how, HOWS), unmatched, partitions, limit, materialise)
    stream = StreamOptions(
        order,
        read_ahead,
        punctuation,
        None if max_age is None else duration(max_age, argument="max_age"),
        time,
        None if every is None else duration(every, argument="every"),
        lateness,
    )
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    facts = best_facts(frames, criteria, _keys(by), punctuation=punctuation, time=time)
    plan = plan_bestmatch(tuple(frames), criteria, facts, options, stream, sample=sample)
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
    for criterion in on:
        if not isinstance(criterion, Closest | Extreme | Overlap | Prefer | Youngest):
            raise ArgumentError(f"on has {criterion!r}, which is not a criterion", accepted=accepted)
    return list(on)
