"""`asof_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.api.arguments import ASOF, takes_inputs
from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import HOWS, How, Spelling, read_how
from dovetail.conditions.predicates import parse
from dovetail.errors import ArgumentError
from dovetail.families.asof.spec import Direction, Options, Within, names_of
from dovetail.plan.asof import plan_asof
from dovetail.plan.asof_columns import Columns
from dovetail.plan.asof_several import Lookup, lookups
from dovetail.plan.broadcast import Broadcast

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Names = str | Sequence[str] | Mapping[str, str | Sequence[str]]


def _ordered(options: Mapping[str, Any], aliases: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs whose columns all decide between rows of one time: those for which `ties` names none."""
    ties = options.get("ties")
    if isinstance(ties, Mapping):
        return tuple(alias for alias in aliases[1:] if not ties.get(alias))
    return () if ties else aliases[1:]


@takes_inputs(ASOF, ordered=_ordered)
def asof_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    time: str | Mapping[str, str],
    by: Names | None = None,
    direction: Direction = "backward",
    within: Within | Mapping[str, Within] | None = None,
    how: How | Spelling = "inner",
    allow_exact_matches: bool = True,
    ties: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    on: str | None = None,
    broadcast: Broadcast = None,
    partitions: int | None = None,
    sample: bool | None = None,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Join each row of the first input with the row of the second that was current at its time.

    With further inputs, each row of the first comes with the row of each of them that was current at its time.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view, two or more of them.  All static; two
        streams with a watermark on `time`; or a stream, or two, followed by static inputs, which are read as they are
        in each micro-batch.
    time : str or dict of str to str
        The column that is compared: one name, or a mapping from each alias to its own.  Timestamps, dates, day-time
        intervals or numbers.
    by : str, list of str or dict, optional
        Columns that must be equal: a name, several, or a mapping from each alias to its own.  Structs and arrays are
        equal where Spark says so: NULL inside them equals NULL.  Of three and more inputs, a mapping may leave out the
        first, whose columns are then called alike, and inputs without keys.
    direction : {"backward", "forward", "nearest"}, default "backward"
        ``backward`` takes the latest row at or before, ``forward`` the earliest at or after, ``nearest`` the nearer of
        the two, and the earlier one where both are equally near.
    within : str, timedelta, number or dict, optional
        The largest distance allowed, itself included: a length of time such as ``"10 seconds"``, or a number where
        the time columns are numbers.  Of three and more inputs, one for all or a mapping from alias to distance.
    how : {"inner", "left", "right", "full", "semi", "anti"}, default "inner"
        The pairs are always those of a row of the first input with its match.  ``inner`` gives these; ``left`` also the
        rows of the first input without a match, ``right`` the rows of the second that no row of the first has for a
        match, and ``full`` both, with NULL for the other input.  ``semi`` gives the rows of the first input that have a
        match, ``anti`` those that have none.  Of three and more inputs, ``inner`` and ``semi`` ask for a match in each,
        ``left`` gives NULL for those without one, ``anti`` the rows that lack one somewhere; no ``right`` and ``full``.
    allow_exact_matches : bool, default True
        Whether a row at exactly the same time matches.
    ties : str or list of str, optional
        Columns of the second input that decide between its rows with equal keys and times: the largest wins.  All its
        columns, from left to right, decide what these leave open.
    on : str, optional
        Further conditions over the aliases, in Spark SQL, such as ``"trade.price > quote.bid AND quote.kind <> 'x'"``.
        The match is the best of the rows that satisfy them.  ``a.k <=> b.k`` is a key for which NULL equals NULL.
    broadcast : str or False, optional
        The alias of the second input, if it is small enough to be sent to every task whole, which saves the shuffle.
        By default that happens where Spark itself would broadcast it: where it estimates at most
        ``spark.sql.autoBroadcastJoinThreshold`` bytes; where both inputs are that small, one task may read both.
        False never does it.
    partitions : int, optional
        The number of shuffle partitions; the session's by default.
    sample : bool, optional
        Whether a sample of both inputs, read within the same action, decides where times are cut.  By default it does
        where there are no keys; with keys ``True`` helps where a few of them have most of the rows.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.  The match is the same as without `select`:
        the columns of the second input in front of the last one selected travel, too, since they decide between its
        rows of one time.  With `ties` they need not: what `ties` leaves open, the selected columns decide.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``asof_join(trade=trades, quote=quotes, ...)``.  An
        input with the name of an option needs the mapping.

    Returns
    -------
    DataFrame
        A lazy frame with one struct column per alias.

    Raises
    ------
    ArgumentError
        If an argument has a value that it cannot have, or two arguments contradict each other.
    UnknownNameError
        If an argument names an input or a column that does not exist.
    UnsupportedTypeError
        If the columns have types that cannot be compared, or `within` does not fit the type of `time`.
    PredicateError
        If `on` is no condition on rows, or Spark cannot evaluate it.
    UnboundedJoinError
        If nothing bounds how long a row of a stream would have to wait.

    See Also
    --------
    bestmatch_join : The best pairs by several criteria.
    theta_join : All pairs that satisfy a condition.

    Notes
    -----
    NULL in `by` or `time` matches nothing.  NaN equals itself and is later than every other number, at a distance
    beyond any `within`.  Each row of the first input comes out at most once.  In a right or full join, a row of the
    second comes out beside every row that has it for a match, or once without one.

    Examples
    --------
    >>> trades = spark.createDataFrame([("A", 5, 100), ("A", 9, 200), ("B", 4, 50)], "item string, t int, size int")
    >>> quotes = spark.createDataFrame([("A", 3, 1.5), ("A", 9, 1.6), ("B", 7, 8.0)], "item string, t int, bid double")
    >>> priced = dt.asof_join({"trade": trades, "quote": quotes}, by="item", time="t", how="left")
    >>> priced.select("trade.*", "quote.bid").orderBy("item", "t").show()
    +----+---+----+----+
    |item|  t|size| bid|
    +----+---+----+----+
    |   A|  5| 100| 1.5|
    |   A|  9| 200| 1.6|
    |   B|  4|  50|NULL|
    +----+---+----+----+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.asof_several import several_frame

    frames = check_inputs(inputs, named)
    aliases = tuple(frames)
    options = Options(direction, read_how(how, HOWS), allow_exact_matches, partitions, sample, broadcast)
    columns_of = {alias: frame.columns for alias, frame in frames.items()}
    predicate = None if on is None else parse(on, columns_of)
    if len(frames) > 2:
        streams = [alias for alias, frame in frames.items() if frame.isStreaming]
        steps = lookups(
            aliases, streams, options.how, time=time, by=by, ties=ties, within=within, on=predicate, broadcast=broadcast
        )

        def join(two: Mapping[str, DataFrame], lookup: Lookup) -> DataFrame:
            # An alias is for one input; False is for all of them.
            small = broadcast if broadcast in (False, lookup.alias) else None
            told = replace(options, how=lookup.how, broadcast=small)
            where = None if lookup.on is None else parse(lookup.on, {alias: columns_of[alias] for alias in two})
            return _joined(two, lookup.columns, where, told, lookup.within)

        return several_frame(frames, steps, options.how, join)
    if isinstance(within, Mapping):
        raise ArgumentError(f"within={within!r} of two inputs", accepted="one distance, such as '10 seconds'")
    left, right = aliases
    times = names_of(time, (left, right), argument="time")
    if len(times[0]) != 1:
        raise ArgumentError(f"time={time!r} names {len(times[0])} columns", accepted="one column of each input")
    columns = Columns(
        time=(times[0][0], times[1][0]),
        by=((), ()) if by is None else names_of(by, (left, right), argument="by"),
        ties=() if ties is None else names_of(ties, (left, right), argument="ties")[1],
    )
    return _joined(frames, columns, predicate, options, within)


def _joined(
    frames: Mapping[str, DataFrame],
    columns: Columns,
    predicate: Predicate | None,
    options: Options,
    within: Within | None,
) -> DataFrame:
    """The as-of join of two inputs."""
    from dovetail.spark.joins.asof import asof_facts, asof_frame

    left, right = frames
    columns, facts = asof_facts(frames, columns, predicate)
    return asof_frame(frames, plan_asof((left, right), columns, facts, options, within))
