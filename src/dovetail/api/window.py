"""`window_join`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.api.arguments import WINDOW, takes_inputs
from dovetail.conditions.forms import Predicate
from dovetail.conditions.join_kind import HOWS, How, Spelling, read_how
from dovetail.conditions.predicates import parse
from dovetail.conditions.roles import Role, Roles, implied
from dovetail.errors import ArgumentError
from dovetail.families.shedding.spec import Harvest, RandomDrop, Shed
from dovetail.families.window.graph import Length, Within, window_graph
from dovetail.families.window.spec import Algorithm, Approach, Options
from dovetail.plan.further import FurtherJoin, check_windows, divided, table_roles, tables_among
from dovetail.plan.window import plan_window, read_delays, read_times, wait

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(WINDOW)
def window_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column | Sequence[str | Column] | None = None,
    time: str | Mapping[str, str],
    within: Within,
    how: How | Spelling | Mapping[str, Role] = "inner",
    algorithm: Algorithm = "auto",
    approach: Approach = "local",
    lateness: Length | Mapping[str, Length] | None = None,
    idle_timeout: Length | None = None,
    partitions: int | None = None,
    shed: Shed | None = None,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Join n inputs whose rows match and lie within a window of time of each other.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        A mapping from an alias to a DataFrame, or to the name of a table or view: all streams, all static, or streams
        beside tables, which are static inputs that `time` leaves out.
    on : str, Column or list, optional
        The condition in Spark SQL over ``alias.column``, as text, Column or a list, as in :func:`theta_join`.
        Equalities, bands (``ABS(A.v - B.v) <= 1``) and inequalities between two inputs find the matches; Spark
        evaluates any other conjunct on the matches found.  No equality is needed, and no condition at all where the
        windows say everything.
    time : str or dict of str to str
        The time column of all inputs, or a mapping from an alias to a name: timestamps, dates or whole numbers.  Beside
        timestamps, a date is midnight in the time zone of the session.
    within : str, timedelta, int, dict or Path
        One length for all pairs, such as ``"5 seconds"`` or a timedelta (a number for numeric times); a mapping from
        pairs of aliases to windows, ``{("A", "B"): "5 seconds", ("B", "C"): dt.after("10 seconds")}``, where a pair
        ``(low, high)`` bounds the second time less the first; or ``dt.path("A -> B -> C", "5 seconds")``.  Windows
        include their ends.  Pairs without a window are bounded by the shortest path between them.
    how : str or dict of str to str, default "inner"
        ``inner``, and for two inputs ``left``, ``right``, ``full``, ``semi`` or ``anti``.  Or, for any number of
        inputs, a mapping from an alias to what the input is: ``required`` (unless named), ``keep`` (rows without a
        match come out alone), ``optional`` (NULL where no row completes a match), ``present`` or ``absent`` (some row,
        or none, completes it).  In a stream a row without a match, and a match that lacks an input, come out once their
        windows have closed.
    algorithm : str, default "auto"
        ``auto``, or one of the published algorithms: ``pipeline`` (the nested loop as printed), ``nested`` (without
        intermediate results), ``hash``, ``merge``.  All give the same result.
    approach : str, default "local"
        How a published algorithm handles windows that differ: ``global``, ``local`` or ``path``.
    lateness : str, timedelta, int or dict, optional
        For streams: how late rows may come, for all inputs or by alias.  By default the delay of the input's own
        ``withWatermark``.  Later rows are dropped and counted.
    idle_timeout : str, timedelta or int, optional
        For streams: an input whose times fall behind those of another by more than this is no longer waited for.
    partitions : int, optional
        Cells of a stream, which must stay the same between runs on one checkpoint; shuffle partitions in batch.
        By default the session's ``spark.sql.shuffle.partitions``.
    shed : Harvest or RandomDrop, optional
        For streams: what to do when more arrives than can be joined.  ``dt.Harvest()`` looks only where matches are
        likely; ``dt.RandomDrop()`` drops rows.  Results are then a subset of the exact ones, and the metrics estimate
        how large a part.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``window_join(A=a, B=b, ...)``.  An input with the
        name of an option needs the mapping.

    Returns
    -------
    DataFrame
        A lazy frame with one struct column per alias (only the left one for ``semi`` and ``anti``, none for an input
        that is ``present`` or ``absent``).

    Raises
    ------
    ArgumentError
        If an argument is wrong, or does not go with another one.
    PredicateError
        If Spark cannot evaluate the condition.
    UnboundedJoinError
        If a stream has no watermark and no ``lateness``.
    UnknownNameError
        If an alias or a column does not exist.
    UnsupportedTypeError
        If times or compared values have a type that does not fit.

    See Also
    --------
    after : A window in one direction.
    path : Windows along a path of inputs.
    Harvest : Shed load by looking where matches are likely.
    watermarked : Give streams their watermarks without rows from the future.

    Notes
    -----
    A row with a NULL time or a NULL in a compared expression matches nothing.  Each input has a watermark of its own:
    its largest time so far less its lateness.  State keeps the rows of the inputs, never partial results, and evicts
    a row once no row that may still come can be within its windows.

    Examples
    --------
    >>> a = spark.createDataFrame([(1, 0), (2, 3)], "obj int, t int")
    >>> b = spark.createDataFrame([(1, 4), (2, 9)], "obj int, t int")
    >>> c = spark.createDataFrame([(1, 9), (1, 20)], "obj int, t int")
    >>> seen = dt.window_join(
    ...     {"A": a, "B": b, "C": c},
    ...     on="A.obj = B.obj AND B.obj = C.obj",
    ...     time="t",
    ...     within={("A", "B"): 5, ("B", "C"): dt.after(10)},
    ... )
    >>> seen.select("A.obj", "A.t", "B.t", "C.t").show()
    +---+---+---+---+
    |obj|  t|  t|  t|
    +---+---+---+---+
    |  1|  0|  4|  9|
    +---+---+---+---+
    <BLANKLINE>
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.theta import theta_facts
    from dovetail.spark.joins.window import beside_tables, input_columns, watermark_delays, window_join_frame

    if shed is not None and not isinstance(shed, Harvest | RandomDrop):
        raise ArgumentError(f"shed={shed!r}", accepted="dt.Harvest(...), dt.RandomDrop(...) or None")
    frames = check_inputs(inputs, named)
    aliases = tuple(frames)
    streaming = [alias for alias, frame in frames.items() if frame.isStreaming]
    static = [alias for alias in frames if alias not in streaming]
    tables = tables_among(static, streaming, tuple(time) if isinstance(time, Mapping) else None)
    inner = {alias: frame for alias, frame in frames.items() if alias not in tables}
    columns = input_columns(frames)
    names = {alias: known.names for alias, known in columns.items()}
    predicate = Predicate("TRUE") if on is None else parse(condition_text(on, frames), names)
    meant = how if isinstance(how, Mapping) else read_how(how, HOWS)
    joins: tuple[FurtherJoin, ...] = ()
    if tables:
        check_windows(within, tables)
        theta_facts(frames, predicate)  # which refuses what Spark cannot evaluate
        roles = table_roles(meant, aliases, tables)
        predicate, joins = divided(predicate, aliases, tables, roles)
        meant = {alias: role for alias, role in zip(aliases, roles.roles, strict=True) if alias not in tables}
    options = Options(_meant(meant, tuple(inner)), algorithm, approach, partitions)
    columns = {alias: columns[alias] for alias in inner}
    times, numeric = read_times(time, columns)
    graph = window_graph(within, tuple(inner), numeric=numeric, roles=options.roles)
    if options.roles is not None:
        predicate = implied(predicate, tuple(inner), options.roles)
    facts = theta_facts(inner, predicate)
    streams = [alias for alias in inner if alias in facts.streams]
    delays = read_delays(lateness, watermark_delays(inner, times), times, streams, numeric=numeric)
    idle = None if idle_timeout is None else wait(idle_timeout, "idle_timeout", numeric=numeric)
    plan = plan_window(
        tuple(inner), predicate, facts, options, graph, columns=columns,
        times=tuple(times.values()), numeric=numeric, delays=delays, idle=idle, shed=shed, tables=joins,
    )  # fmt: skip
    return beside_tables(frames, plan, aliases) if tables else window_join_frame(inner, plan)


def _meant(how: How | Mapping[str, Role], aliases: tuple[str, ...]) -> How | Roles:
    """What ``how=`` means; a mapping that a word says, too, is that word."""
    if not isinstance(how, Mapping):
        return how
    roles = Roles.of(how, aliases)
    return roles.word or roles
