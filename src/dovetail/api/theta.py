"""`theta_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from dovetail.api.arguments import CONDITION, takes_inputs
from dovetail.conditions.durations import TimeWindow, tumbling
from dovetail.conditions.either import either_of, searches
from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import HOWS, How, Spelling, read_how
from dovetail.conditions.predicates import parse
from dovetail.conditions.roles import Role, Roles
from dovetail.errors import ArgumentError
from dovetail.families.theta.spec import Algorithm, Options
from dovetail.plan.broadcast import Broadcast
from dovetail.plan.further import beside_stream, check_further, one_stream, table_roles, theta_roles
from dovetail.plan.theta import plan_theta
from dovetail.plan.time_columns import check_window_times

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(CONDITION)
def theta_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column | Sequence[str | Column],
    how: How | Spelling | Mapping[str, Role] = "inner",
    window: int | str | timedelta | None = None,
    time: str | None = None,
    algorithm: Algorithm = "auto",
    partitions: int | None = None,
    broadcast: Broadcast = None,
    sample: bool = True,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Join on inequalities, bands and equalities, two inputs or a chain of them.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view.  All static gives a static result.
        Streams need a `window`, except for one stream joined with static inputs.
    on : str, Column or list
        The condition over ``alias.column``, or a bare ``column`` that only one input has: Spark SQL, a Column such as
        ``F.col("R.x") <= F.col("S.y")``, or a list of these that must all be true; anything that Spark can evaluate.
        Comparisons of two inputs, bands, tolerances by row, distances and an OR of them find the pairs, and Spark
        evaluates all else on what they find.  Where nothing connects an input with the others, every pair is formed.
    how : str or dict of str to str, default "inner"
        ``inner``, and for two inputs also ``left``, ``right``, ``full``, ``semi`` or ``anti``, as in Spark, and in
        any spelling that Spark takes, such as ``left_outer``.  Or a mapping from an alias to what the input is, as in
        :func:`dovetail.window_join`: ``required``, ``keep``, ``optional``, ``present`` or ``absent``.
    window : int, str or timedelta, optional
        Rows join only within the same window: a number of rows (the k-th window of each input joins), or a length
        of time (tumbling windows on the column `time`).
    time : str, optional
        The event-time column of all inputs, for a window of time.
    algorithm : str, Prefap, FTJ, CFS, OBT or RBM, default "auto"
        ``auto``, or one of the published partitionings: by its name (``prefap``, ``ftj``, ``cfs``, ``obt``, ``rbm``)
        or, to choose its parameters, as a value such as ``dt.Prefap(p=20, w=1000)``.
    partitions : int, optional
        The number of shuffle partitions; the session's by default.
    broadcast : str or False, optional
        The alias of an input, if it is small enough to be sent to every task whole, which saves the shuffle.  By
        default that happens where Spark itself would broadcast it: where it estimates at most
        ``spark.sql.autoBroadcastJoinThreshold`` bytes; where both inputs are that small, one task may read both.
        False never does it.
    sample : bool, default True
        Whether a sample of both inputs, read within the same action, may decide where rows go.  Routing without a
        sample suits small inputs and inputs that are expensive to compute twice.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``theta_join(R=r, S=s, ...)``.  An input with the
        name of an option needs the mapping.

    Returns
    -------
    DataFrame
        A lazy frame with one struct column per alias (that of the left input only for ``semi`` and ``anti``).

    Raises
    ------
    PredicateError
        If `on` cannot be read or evaluated, or connects no two inputs.
    ArgumentError
        If an argument has a value that it cannot have, or two arguments contradict each other.
    UnknownNameError
        If an argument names an input or a column that does not exist.
    UnsupportedTypeError
        If the compared columns have types that cannot be compared.
    UnboundedJoinError
        If nothing bounds what a join of streams would have to remember.

    See Also
    --------
    asof_join : For each row the one row that was current at its time.
    window_join : Streams that join within windows around each row.
    Prefap, FTJ, CFS, OBT, RBM : The published partitionings with their parameters.

    Notes
    -----
    A NULL in a compared expression matches nothing.  NaN equals itself and is larger than every other number, and
    ``-0.0`` equals ``0.0``, as everywhere in Spark.  Differences of integers do not overflow.

    Examples
    --------
    >>> phones = spark.createDataFrame([("P1", 900), ("P2", 500)], "name string, price int")
    >>> laptops = spark.createDataFrame([("L1", 800), ("L2", 400), ("L3", None)], "name string, price int")
    >>> pairs = dt.theta_join({"phone": phones, "laptop": laptops}, on="phone.price > laptop.price")
    >>> pairs.select("phone.name", "laptop.name").orderBy("phone.name", "laptop.name").show()
    +----+----+
    |name|name|
    +----+----+
    |  P1|  L1|
    |  P1|  L2|
    |  P2|  L2|
    +----+----+
    <BLANKLINE>

    With `select`, columns in place of structs, and no other columns on the way:

    >>> dt.theta_join({"phone": phones, "laptop": laptops}, on="phone.price > laptop.price",
    ...     select=["phone.name", "phone.price - laptop.price AS more"]).orderBy("name", "more").show()
    +----+----+
    |name|more|
    +----+----+
    |  P1| 100|
    |  P1| 500|
    |  P2| 100|
    +----+----+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.theta import theta_facts, theta_frame
    from dovetail.spark.joins.theta_either import either_frame, settled
    from dovetail.spark.joins.theta_windows import window_frame
    from dovetail.spark.time_columns import time_column

    frames = check_inputs(inputs, named)
    roles, word = None, None
    if isinstance(how, Mapping):
        roles = Roles.of(how, tuple(frames))
        word = roles.word
    else:
        word = read_how(how, HOWS)
    # A mapping that no word says is joined step by step.
    options = Options("inner" if roles is not None and word is None else word, algorithm, partitions)  # type: ignore[arg-type]
    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    bounds = tumbling(window, time)
    columns = {alias: frame.columns for alias, frame in frames.items()}
    predicate = parse(condition_text(on, frames), columns)
    streams = sum(frame.isStreaming for frame in frames.values())
    if word is None or (bounds is None and streams == 1 and len(frames) > 2):
        check_further(how if roles is not None else options.how, windowed=bounds is not None, broadcast=broadcast)
        return _one_after_the_other(
            frames, predicate, how if isinstance(how, Mapping) else options.how, roles, options, sample=sample
        )
    if isinstance(bounds, TimeWindow):
        check_window_times(bounds.time, [time_column(alias, frame, bounds.time) for alias, frame in frames.items()])
    facts = theta_facts(frames, predicate, sized=broadcast is None)
    plan = plan_theta(tuple(frames), predicate, facts, options, window=bounds, broadcast=broadcast, sample=sample)
    predicate = settled(frames, predicate) if bounds is None else predicate
    either = either_of(predicate, columns) if bounds is None else ()
    if not either:
        return window_frame(frames, plan) if plan.mode == "window" else theta_frame(frames, plan)

    numbers = count(1)

    def search(some: Mapping[str, DataFrame], text: str, kind: How) -> DataFrame:
        condition = settled(some, parse(text, columns))
        within = either_of(condition, columns)
        if within:
            return either_frame(some, within, searches(condition, within), kind, search)
        # Unmatched rows of the second input come from a join in which it is the first, and cannot be broadcast.
        small = None if broadcast == next(iter(some)) and kind == "anti" else broadcast
        one = plan_theta(
            tuple(some), condition, theta_facts(some, condition, sized=small is None), replace(options, how=kind),
            window=None, broadcast=small, sample=sample,
        )  # fmt: skip
        return theta_frame(some, one, next(numbers))

    return either_frame(frames, either, searches(predicate, either), options.how, search)


def _one_after_the_other(
    frames: dict[str, DataFrame],
    predicate: Predicate,
    how: How | Mapping[str, Role],
    roles: Roles | None,
    options: Options,
    *,
    sample: bool,
) -> DataFrame:
    """Inputs that play different parts, or several tables beside a stream."""
    from dovetail.spark.joins.further import stream_frame, theta_roles_frame
    from dovetail.spark.joins.theta import theta_facts

    aliases = tuple(frames)
    streams = [alias for alias, frame in frames.items() if frame.isStreaming]
    text = repr(how) if roles is None else roles.text(aliases)
    theta_facts(frames, predicate)  # which refuses what Spark cannot evaluate
    if streams:
        stream = one_stream(streams)
        tables = [alias for alias in aliases if alias != stream]
        on, joins = beside_stream(predicate, aliases, stream, table_roles(how, aliases, tables))
        return stream_frame(frames, stream, on, joins, text)
    assert roles is not None
    steps = theta_roles(predicate, aliases, roles)
    return theta_roles_frame(frames, steps, (options.algorithm, options.partitions), text, sample=sample)
