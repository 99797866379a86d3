"""`aggregate_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.api.arguments import AGGREGATE, takes_inputs
from dovetail.conditions.join_kind import read_how
from dovetail.conditions.predicates import parse
from dovetail.errors import ArgumentError
from dovetail.plan.aggregate import HOWS, Options, check_by, plan_aggregate
from dovetail.plan.aggregate_calls import read_calls
from dovetail.plan.broadcast import Broadcast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(AGGREGATE)
def aggregate_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column | Sequence[str | Column],
    by: str,
    agg: Mapping[str, str],
    how: str = "left",
    partitions: int | None = None,
    broadcast: Broadcast = None,
    sample: bool = True,
    **named: DataFrame | str,
) -> DataFrame:
    """Aggregate, for each row of one input, over the rows of another that it matches, without forming the pairs.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view; two of them.  The input `by` may be a
        stream beside a static one.
    on : str, Column or list
        The condition over ``alias.column``, as in :func:`theta_join`: equalities, and up to two ranges of the matched
        input, such as a comparison, a band, or the overlap of two intervals.
    by : str
        The alias of the input whose rows come out, each once.
    agg : dict of str to str
        Aggregates over the matched rows, by the name of their column: ``count``, ``sum``, ``avg``, ``min``, ``max``,
        ``min_by``, ``max_by``, ``stddev``, ``variance`` and their forms ``_samp`` and ``_pop``, ``count_if``,
        ``bool_or``, ``bool_and``, each over any expression of Spark SQL over the matched input.
    how : str, default "left"
        ``left`` keeps rows without a match, with a count of 0 and NULL for the rest; ``inner`` leaves them out.
    partitions : int, optional
        The number of shuffle partitions; the session's by default.
    broadcast : str or False, optional
        The alias of the matched input, if what the condition and the aggregates need of it is small enough to be sent
        to every task whole.  By default that happens where Spark itself would broadcast those columns.  False never
        does it.
    sample : bool, default True
        Whether a sample of both inputs, read within the same action, may decide where rows go.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``aggregate_join(t=trades, q=quotes, ...)``.

    Returns
    -------
    DataFrame
        A lazy frame with a struct column for the input `by`, and a column for each aggregate, in Spark's type for it.

    Raises
    ------
    PredicateError
        If `on` cannot be read, or holds something that only Spark can evaluate.
    ArgumentError
        If an argument has a value that it cannot have, such as an aggregate that is not taken.
    UnknownNameError
        If an argument names an input or a column that does not exist.
    UnsupportedTypeError
        If an aggregate is over a type that it does not take.

    See Also
    --------
    theta_join : The pairs themselves.
    explain : How each aggregate is computed.

    Notes
    -----
    The cost follows the rows of both inputs, however many matches they have.  The answers are those of Spark's own left
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
    from dovetail.spark.joins.aggregate import aggregate_frame, narrowed, typed_calls
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.theta import theta_facts

    frames = check_inputs(inputs, named)
    by = check_by(tuple(frames), by)
    options = Options(read_how(how, HOWS), partitions)
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    columns = {alias: frame.columns for alias, frame in frames.items()}
    calls = read_calls(agg, columns, by=by)
    predicate = parse(condition_text(on, frames), columns)
    facts = theta_facts(frames, predicate)
    other = next(alias for alias in frames if alias != by)
    typed = typed_calls(frames, other, calls)
    if broadcast is None and partitions is None and other not in facts.sizes:
        facts = narrowed({other: frames[other]}, facts, predicate, typed)
    plan = plan_aggregate(
        tuple(frames), by, predicate, facts, typed, options,
        broadcast=broadcast, sample=sample, ansi=is_ansi(frames),
    )  # fmt: skip
    return aggregate_frame(frames, plan)
