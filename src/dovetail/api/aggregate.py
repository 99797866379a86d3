"""`aggregate_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.api.arguments import AGGREGATE, takes_inputs
from dovetail.api.theta import theta_join
from dovetail.conditions.join_kind import read_how
from dovetail.conditions.predicates import parse
from dovetail.errors import ArgumentError
from dovetail.families.window.graph import Within
from dovetail.plan.aggregate import HOWS, Options, check_by, check_small, plan_aggregate
from dovetail.plan.aggregate_calls import read_calls
from dovetail.plan.aggregate_pairs import check_compared, reasons_for_pairs, used_columns
from dovetail.plan.asked_window import AskedWindow, check_two_streams, read_window
from dovetail.plan.broadcast import Broadcast
from dovetail.plan.time_columns import check_final_times

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(AGGREGATE)
def aggregate_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column | Sequence[str | Column] | None = None,
    by: str,
    agg: Mapping[str, str],
    how: str = "left",
    time: str | Mapping[str, str] | None = None,
    within: Within | None = None,
    partitions: int | None = None,
    broadcast: Broadcast = None,
    sample: bool = True,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Aggregate, for each row of one input, over the rows of another that it matches, without forming the pairs.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view; two of them.  The input `by` may be a
        stream beside a static one, and both may be streams, with `within`.
    on : str, Column or list
        The condition over ``alias.column``, as in :func:`theta_join`.  Equalities and up to two ranges of the matched
        input, such as a comparison, a band, or the overlap of two intervals, need no pairs; others do.  May be left
        out beside `within`.
    by : str
        The alias of the input whose rows come out, each once.
    agg : dict of str to str
        Aggregates over the matched rows, by the name of their column: ``count``, ``sum``, ``avg``, ``min``, ``max``,
        ``min_by``, ``max_by``, ``first(x ORDER BY y)``, ``last(x ORDER BY y)``, ``stddev``, ``variance`` and their
        forms ``_samp`` and ``_pop``, ``count_if``, ``bool_or``, ``bool_and``, ``median``, ``percentile``,
        ``percentile_approx``, ``count(DISTINCT x)`` and ``approx_count_distinct``, each over any expression of the
        matched input.  Any other aggregate of Spark, such as ``mode`` or ``slice(collect_list(x), 1, 10)``, and these
        over other types, such as the sum of durations, are computed from the pairs.
    how : str, default "left"
        ``left`` keeps rows without a match, with a count of 0 and NULL for the rest; ``inner`` leaves them out.
    time : str or dict of str to str, optional
        The time column of both inputs, or a mapping from an alias to a name, for `within`.
    within : str, timedelta, int or dict, optional
        How far apart in time a row and its matches may be, beside `on`, as in :func:`window_join`: one length for both
        directions, or ``{("t", "q"): ("-10 seconds", "0 seconds")}``, which bounds the second time less the first.  Two
        streams need it, and timestamps with a watermark: a row comes out once its window has closed.
    partitions : int, optional
        The number of shuffle partitions; the session's by default.
    broadcast : str or False, optional
        The alias of the matched input, if what the condition and the aggregates need of it is small enough to be sent
        to every task whole.  By default that happens where Spark itself would broadcast those columns; where both
        inputs are small, one task may read both.  False never does it.
    sample : bool, default True
        Whether a sample of both inputs, read within the same action, may decide where rows go.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "n", "mean"]`` gives the columns ``id``, ``n`` and ``mean``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``aggregate_join(t=trades, q=quotes, ...)``.

    Returns
    -------
    DataFrame
        A lazy frame with a struct column for the input `by`, and a column for each aggregate, in Spark's type for it.

    Raises
    ------
    PredicateError
        If `on` cannot be read, or Spark cannot evaluate it.
    ArgumentError
        If an argument has a value that it cannot have, such as an aggregate that is not taken.
    UnboundedJoinError
        If two streams have no `within`, or one of them no watermark.
    UnknownNameError
        If an argument names an input or a column that does not exist.
    UnsupportedTypeError
        If the join depends on a column whose type has no equality.

    See Also
    --------
    theta_join : The pairs themselves.
    explain : How each aggregate is computed.

    Notes
    -----
    The cost follows the rows of both inputs, however many matches they have, unless :func:`explain` says that the pairs
    are formed.  The answers are those of Spark's own left
    join, grouped by the rows of `by`: NULL in a compared value matches nothing, NaN is the largest number.  Sums of
    doubles are exact to about 106 bits, so they do not depend on the order or the partitions of the rows.  Sums of
    integers and decimals that overflow are an error under ANSI; without it integers wrap, and decimals are NULL.  Of
    rows between which ``min_by`` cannot decide, the one with the smallest value counts.

    Examples
    --------
    >>> trades = spark.createDataFrame([("A", 10), ("A", 20), ("B", 20)], "sym string, at int")
    >>> quotes = spark.createDataFrame([("A", 8, 1.0), ("A", 9, 2.0), ("A", 19, 4.0)], "sym string, at int, bid double")
    >>> means = dt.aggregate_join({"t": trades, "q": quotes}, by="t",
    ...     on="q.sym = t.sym AND q.at BETWEEN t.at - 5 AND t.at", agg={"n": "count(*)", "mean": "avg(q.bid)"})
    >>> means.select("t.*", "n", "mean").orderBy("sym", "at").show()
    +---+---+---+----+
    |sym| at|  n|mean|
    +---+---+---+----+
    |  A| 10|  2| 1.5|
    |  A| 20|  1| 4.0|
    |  B| 20|  0|NULL|
    +---+---+---+----+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs, is_ansi
    from dovetail.spark.joins.aggregate import aggregate_frame, narrowed, settled, typed_calls
    from dovetail.spark.joins.aggregate_pairs import check_calls, pairs_frame
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.theta import theta_facts
    from dovetail.spark.joins.window import input_columns
    from dovetail.spark.time_columns import time_column

    frames = check_inputs(inputs, named)
    by = check_by(tuple(frames), by)
    options = Options(read_how(how, HOWS), partitions)
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    columns = {alias: frame.columns for alias, frame in frames.items()}
    other = next(alias for alias in frames if alias != by)
    window = read_window(
        time, within, input_columns(frames), by, other,
        hint="a condition such as q.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts needs neither",
    )  # fmt: skip
    calls = read_calls(agg, columns, by=by)
    typed = typed_calls(frames, other, [call for call in calls if call.function is not None])
    calls = settled(calls, typed)
    text = _condition(None if on is None else condition_text(on, frames), window)
    predicate = parse(text, columns)
    facts = theta_facts(frames, predicate, sized=broadcast is None and partitions is None)
    check_compared(predicate, facts)
    check_small(other, by, facts, broadcast)
    reasons = reasons_for_pairs(by, other, predicate, facts, calls)
    streams = len(facts.streams) == 2
    if streams:
        window = check_two_streams(window, by, other, reasons)
        check_final_times([time_column(alias, frames[alias], name) for alias, name in window.columns])
    if reasons:

        def pairs(some: Mapping[str, DataFrame]) -> DataFrame:
            return theta_join(some, on=text, partitions=partitions, broadcast=broadcast, sample=sample)

        check_calls(frames, calls)
        return pairs_frame(frames, by, used_columns(text, calls, columns), calls, options.how, reasons, pairs)
    if broadcast is None and partitions is None and other not in facts.sizes:
        facts = narrowed({other: frames[other]}, facts, predicate, typed)
    plan = plan_aggregate(
        tuple(frames), by, predicate, facts, typed, options, broadcast=broadcast, sample=sample, ansi=is_ansi(frames),
        window=window if streams else None,
    )  # fmt: skip
    return aggregate_frame(frames, plan)


def _condition(on: str | None, window: AskedWindow | None) -> str:
    """The condition and the window as one."""
    if window is None:
        if on is not None:
            return on
        raise ArgumentError("aggregate_join needs on=, the condition over both inputs", accepted="on=, or within=")
    return window.condition if on is None else f"({on}) AND {window.condition}"
