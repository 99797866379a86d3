"""`nearest_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.api.arguments import NEAREST, takes_inputs
from dovetail.api.asof import Names
from dovetail.conditions.forms import Equality, Predicate, Term
from dovetail.conditions.join_kind import read_how
from dovetail.conditions.names import quoted
from dovetail.conditions.nearness import parse_nearness, with_keys
from dovetail.errors import ArgumentError
from dovetail.families.asof.spec import names_of
from dovetail.families.nearest.spec import Ties
from dovetail.families.window.graph import Within as TimeWindow
from dovetail.plan.asked_window import read_window
from dovetail.plan.broadcast import Broadcast
from dovetail.plan.nearest import check_inputs, plan_nearest
from dovetail.plan.nearest_plan import HOWS, Options, Within
from dovetail.plan.time_columns import check_final_times

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(NEAREST, ordered=lambda options, aliases: aliases[1:] if options.get("ties") == "first" else ())
def nearest_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column,
    k: int = 1,
    within: Within | None = None,
    by: Names | None = None,
    ties: Ties = "all",
    how: str = "inner",
    time: str | Mapping[str, str] | None = None,
    window: TimeWindow | None = None,
    partitions: int | None = None,
    broadcast: Broadcast = None,
    sample: bool = True,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Join each row of the first input with its k nearest rows of the second, however far away they are.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view; two of them.  The first may be a
        stream beside a static second one, which each micro-batch reads as it then is, and both may be streams, with
        `window`.
    on : str or Column
        The distance.  ``ABS(r.x - s.x)`` on a line, for numbers, dates, timestamps and intervals;
        ``HYPOT(r.x - s.x, r.y - s.y)`` in the plane; ``SQRT(POW(r.x - s.x, 2) + ...)``, or in short
        ``DISTANCE(r.x - s.x, r.y - s.y, r.z - s.z)``, of two or three differences, each of which may have a weight, as
        in ``DISTANCE(r.x - s.x, 2 * (r.y - s.y))``; ``HAVERSINE(r.lat, r.lon, s.lat, s.lon)`` on the Earth, from
        degrees, in metres.  Beside it, connected by AND: equalities, and conditions on one input.  ``... <= 500``
        behind the distance is the same as ``within=500``.
    k : int, default 1
        How many.
    within : number, str or timedelta, optional
        The largest distance, itself included: a number, or between times a length of time such as ``"10 minutes"``.
    by : str, list of str or dict, optional
        Columns that must be equal: a name, several, or a mapping from each alias to its own.
    ties : {"all", "first"}, default "all"
        ``all`` also gives the rows that are exactly as near as the k-th; ``first`` gives at most k, of equally near
        rows those that come first when the second input is sorted by its columns from left to right.
    how : str, default "inner"
        ``left`` also gives rows without any neighbour: of a key that the second input does not have, with nothing
        `within` the distance, or without a place.
    time : str or dict of str to str, optional
        The time column of both inputs, or a mapping from an alias to a name, for `window`.
    window : str, timedelta, int or dict, optional
        How far apart in time a row and its neighbours may be, as `within` of :func:`window_join` says it: one length
        for both directions, or ``{("r", "s"): ("-10 minutes", "0 minutes")}``, which bounds the second time less the
        first.  The k nearest are those among the rows of the window.  Two streams need it, and timestamps with a
        watermark: a row comes out once its window has closed.
    partitions : int, optional
        The number of shuffle partitions; the session's by default.
    broadcast : str or False, optional
        The alias of the second input, if it is small enough to be sent to every task whole.  By default that happens
        where Spark itself would broadcast it; where both inputs are small, one task may read both.  False never does
        it.
    sample : bool, default True
        Whether a sample of both inputs, read within the same action, may decide where rows go.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.  With the ties ``first``, the columns of the
        second input in front of the last one selected travel, too.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``nearest_join(trip=trips, station=stations, ...)``.

    Returns
    -------
    DataFrame
        A lazy frame with a struct column for each input, the ``distance`` and the ``rank``, from 1 for the nearest on;
        rows that are equally near share a rank where ties are ``all``.

    Raises
    ------
    PredicateError
        If `on` holds no distance, or a condition that is neither an equality nor about one input.
    ArgumentError
        If an argument has a value that it cannot have.
    UnknownNameError
        If an argument names an input or a column that does not exist.
    UnsupportedTypeError
        If the distance is between values of a type that has none.
    UnboundedJoinError
        If the second input is a stream beside a static one, or two streams have no `window`, or no watermark.

    See Also
    --------
    asof_join : The nearest row in time, before, after, or on either side; also between two streams.
    bestmatch_join : The best pairs by several criteria at once.

    Notes
    -----
    NULL, NaN and infinite coordinates match nothing, and neither does a latitude beyond 90 or a longitude beyond 360
    degrees.  On a line, distances of integers, decimals, dates and timestamps are exact, in the type that Spark gives
    their difference; all other distances are those of doubles, so that rows are equally near where the column
    ``distance`` is equal.

    Examples
    --------
    >>> people = spark.createDataFrame([("Ann", 1.0, 1.0), ("Bob", 9.0, 9.0)], "name string, x double, y double")
    >>> shops = spark.createDataFrame(
    ...     [("A", 1.0, 2.0), ("B", 4.0, 5.0), ("C", 90.0, 90.0)], "shop string, x double, y double")
    >>> near = dt.nearest_join({"p": people, "s": shops}, on="HYPOT(p.x - s.x, p.y - s.y)", k=2)
    >>> near.select("p.name", "s.shop", "distance", "rank").orderBy("name", "rank").show()
    +----+----+------------------+----+
    |name|shop|          distance|rank|
    +----+----+------------------+----+
    | Ann|   A|               1.0|   1|
    | Ann|   B|               5.0|   2|
    | Bob|   B|6.4031242374328485|   1|
    | Bob|   A| 10.63014581273465|   2|
    +----+----+------------------+----+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs as check_frames
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.nearest import measured_distance, nearest_frame
    from dovetail.spark.joins.theta import theta_facts
    from dovetail.spark.joins.window import input_columns
    from dovetail.spark.time_columns import time_column

    frames = check_frames(inputs, named)
    aliases = check_inputs(tuple(frames))
    options = Options(k, ties, read_how(how, HOWS), partitions)
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    columns = {alias: tuple(frame.columns) for alias, frame in frames.items()}
    asked = read_window(
        time, window, input_columns(frames), *aliases, argument="window",
        hint="for the nearest in time, on='ABS(r.ts - s.ts)' needs neither",
    )  # fmt: skip
    nearness = parse_nearness(condition_text(on, frames), columns)
    if by is not None:
        nearness = with_keys(nearness, _equalities(frames, by))
    measured = measured_distance(frames, nearness.distance)
    facts = theta_facts(frames, nearness.predicate, sized=broadcast is None)
    plan = plan_nearest(
        aliases, nearness, facts, measured, options, columns=columns, within=within, broadcast=broadcast, sample=sample,
        window=asked,
    )  # fmt: skip
    if plan.two_streams and asked is not None:
        check_final_times([time_column(alias, frames[alias], name) for alias, name in asked.columns])
    return nearest_frame(frames, plan)


def _equalities(frames: Mapping[str, DataFrame], by: Names) -> Predicate:
    """The equalities that `by` names."""
    from dovetail.spark.frames import field_of

    left, right = frames
    names = names_of(by, (left, right), argument="by", least=0)
    terms = [
        [Term(alias, f"{quoted(alias)}.{quoted(field_of(alias, frames[alias], name, 'by=').name)}") for name in some]
        for alias, some in zip(frames, names, strict=True)
    ]
    return Predicate.of([Equality(one, other) for one, other in zip(*terms, strict=True)])
