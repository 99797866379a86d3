"""`approx_join`, `estimates` and `quality`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.api.arguments import APPROX, takes_inputs
from dovetail.conditions.limits import memory_limit
from dovetail.conditions.predicates import parse
from dovetail.families.approx.spec import Allocation, Options, Policy, Ties
from dovetail.plan.approx import plan_approx
from dovetail.plan.estimates import plan_estimates

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@takes_inputs(APPROX)
def approx_join(
    inputs: Mapping[str, DataFrame | str] | None = None,
    *,
    on: str | Column | Sequence[str | Column],
    memory: int | str | None,
    policy: Policy = "raj_hash",
    seed: int | None = None,
    allocation: Allocation = "fixed",
    strata: int | None = None,
    discard: int = 1,
    ties: Ties = "random",
    partitions: int | None = None,
    balance: bool = True,
    detail: bool = True,
    results: int | None = None,
    select: str | Column | Sequence[str | Column] | None = None,
    **named: DataFrame | str,
) -> DataFrame:
    """Join within a memory limit: the result is a sample of the join, the most representative or the largest.

    `memory` bounds what is held, not what comes out: a thousand held rows of a frequent value meet every row of that
    value, and each time that makes a thousand results.  `results` bounds what comes out.

    Parameters
    ----------
    inputs : dict of str to DataFrame or str
        The inputs by alias, DataFrames or names of tables and views, all static or all streams.  Two, or more with the
        policies ``raj``, ``raj_hash`` and ``exact``.
    on : str, Column or list
        The condition in Spark SQL over ``alias.column``, as text, Column or a list, as in :func:`theta_join`.  All
        policies but ``raj`` and ``exact`` need an equality that includes every input; those two also take bands and
        inequalities alone.  Further comparisons are checked on the pairs that meet, and Spark evaluates any other
        conjunct on the results.
    memory : int or str or None
        How much may be held, all partitions together: a number of rows, or a size such as ``"64 MB"``.  None, for
        ``exact`` only, sets no limit.
    policy : str, optional
        Which rows stay when memory is full.

        ``raj_hash`` (default)
            a uniform sample within every stratum of join values, so that rare values are not lost;
        ``raj``
            a uniform sample of every input;
        ``prob``, ``prob_hash``
            the rows whose value occurs most often in the other input: the most results;
        ``arrpj``
            the rows of values that have produced the most results;
        ``exact``
            every row; the query fails if they exceed `memory`;
        ``raj_printed``, ``raj_hash_printed``, ``prob_printed``, ``prob_hash_printed``
            the same four as the paper prints them, to compare with: two inputs, memory in rows, no weights.  With
            ``partitions=1`` the whole join is one run of the paper's algorithm.
    seed : int, optional
        Makes the choices reproducible; without it they are random.  A restarted stream continues with the seed that it
        started with.
    allocation : str, optional
        For ``prob`` and ``prob_printed``: ``fixed`` (default) gives both inputs the same part of the memory,
        ``variable`` lets them compete for all of it.
    strata : int, optional
        For ``raj_hash``: into how many strata, at most, the hash divides the join values of a partition (default:
        1024).  For ``raj_hash_printed`` the number of sub-reservoirs, for ``prob_hash_printed`` that of queues, of each
        input (default: 64).
    discard : int, optional
        For ``prob_printed`` and ``prob_hash_printed``: how many rows leave whenever memory is full (default: 1).
    ties : str, optional
        For ``prob_printed`` and ``prob_hash_printed``: which of the rows with the least priority leaves first, any one
        (``random``, default) or the ``oldest``.
    partitions : int, optional
        Into how many independent parts the join is divided (default: 16, or fewer if memory is small; one for static
        inputs that are small by Spark's estimate, unless there is a seed).  Each has its part of the memory.
    balance : bool, optional
        Whether a batch join first counts the rows of all partitions and divides the memory in that proportion, so that
        unweighted results represent the join (default: True).  That reads the keys of the inputs twice.  Streams divide
        it equally.
    detail : bool, optional
        Whether results carry all that :func:`estimates` needs (default: True).  Otherwise they carry only their weight,
        which suits large results of which no confidence intervals are needed.
    results : int, optional
        How many rows may come out at most (default: all that are found), not counting what Spark still filters.  They
        are a uniform sample of what each partition finds, and their weights say so.  On static inputs it bounds the
        whole result, on streams that of every micro-batch.
    select : str, Column or list, optional
        What the rows of the result have in place of the structs, as a list of SQL or of ``DataFrame.select``:
        ``["t.id", "q.bid - t.price AS gap"]`` gives the columns ``id`` and ``gap``.
        ``t.*``, ``t.* EXCEPT (x)`` and Columns such as ``F.col("t.id")`` work, too.  Only columns that some argument
        names travel through the join, which matters for wide inputs.  Name ``sampling``, too, for :func:`estimates`.
    **named : DataFrame or str
        The inputs as keywords in place of the mapping, as in ``approx_join(R=r, S=s, ...)``.  An input with the
        name of an option needs the mapping.

    Returns
    -------
    :class:`pyspark.sql.DataFrame`
        Lazy, with one struct column per alias, and the struct column ``sampling``: for ``raj``, ``raj_hash`` and
        ``exact`` the ``weight`` of the result, which is the inverse of its inclusion probability; ``cell`` and ``at``
        (the partition, and the number of arrivals in it so far); and whatever else :func:`estimates` needs.

    Raises
    ------
    ArgumentError
        If an argument has a value that the join does not take.
    PredicateError
        If the condition cannot be read, or the policy needs an equality that it does not have.

    See Also
    --------
    estimates : Sizes, sums and averages of the complete join, from a sample.
    quality : How well a sample represents the complete join.

    Examples
    --------
    >>> r = spark.range(1000).selectExpr("id % 10 AS k", "id AS x")
    >>> s = spark.range(1000).selectExpr("id % 10 AS k", "id AS y")
    >>> sample = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=200, seed=1)
    >>> sample.columns
    ['R', 'S', 'sampling']
    >>> sample.where("R.k <> S.k").count(), sample.count() < 100_000
    (0, True)
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.approx import approx_frame
    from dovetail.spark.joins.conditions import condition_text
    from dovetail.spark.joins.theta import theta_facts

    options = Options(
        memory=None if memory is None else memory_limit(memory),
        policy=policy,
        allocation=allocation,
        seed=secrets.randbits(63) if seed is None else seed,
        strata=strata,
        discard=discard,
        ties=ties,
        partitions=partitions,
        balance=balance,
        detail=detail,
        results=results,
    )
    frames = check_inputs(inputs, named)
    columns = {alias: frame.columns for alias, frame in frames.items()}
    predicate = parse(condition_text(on, frames), columns)
    # What a seed chooses depends on the number of cells, so that must not follow from an estimate.
    facts = theta_facts(frames, predicate, sized=seed is None and partitions is None)
    plan = plan_approx(columns, predicate, facts, options)
    return approx_frame(frames, plan)


def estimates(
    frame: DataFrame,
    measures: Mapping[str, str] | None = None,
    *,
    by: str | Sequence[str] = (),
    confidence: float = 0.95,
) -> DataFrame:
    """Estimate sizes, sums and averages of the complete join from a sample of it, with confidence intervals.

    Parameters
    ----------
    frame : :class:`pyspark.sql.DataFrame`
        Results of :func:`approx_join` with the policy ``raj``, ``raj_hash`` or ``exact``.  They may have been filtered,
        or stored and read again, as long as the column ``sampling`` is there.
    measures : dict of str to str, optional
        The measures by name: ``count(*)``, ``count(expression)``, ``sum(expression)`` or ``avg(expression)`` over the
        columns of `frame` (default: ``{"rows": "count(*)"}``).
    by : str or list of str, optional
        Expressions to group by, such as ``"R.region"`` or ``"R.x > 5 AS large"``.
    confidence : float, optional
        How often an interval should contain the true value (default: 0.95).

    Returns
    -------
    :class:`pyspark.sql.DataFrame`
        Lazy, with the columns of `by`, and for each measure a struct of ``estimate``, ``error`` (the standard error),
        ``low`` and ``high``.  The last three are NULL where the sample cannot tell: for fewer than ten results that
        stand for others, and where rows were left out that no held row stands for.  A group that has no row in the
        sample is missing.

    Raises
    ------
    ArgumentError
        If `frame` is a stream or carries no weights, or an argument has a value that is not taken.
    PredicateError
        If Spark cannot evaluate a measure or a group.

    See Also
    --------
    approx_join : A sample of a join within a memory limit.

    Examples
    --------
    >>> r = spark.range(2000).selectExpr("id % 10 AS k", "id AS x")
    >>> s = spark.range(2000).selectExpr("id % 10 AS k")
    >>> sample = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=400, seed=1)
    >>> figures = dt.estimates(sample, {"rows": "count(*)", "mean": "avg(R.x)"}).first()
    >>> figures.rows.low <= 400_000 <= figures.rows.high, figures.mean.low <= 999.5 <= figures.mean.high
    (True, True)
    """
    from dovetail.spark.frames import check_frame
    from dovetail.spark.joins.approx_estimates import estimates_frame

    check_frame("frame", frame)
    return estimates_frame(frame, plan_estimates(measures, by, confidence, streaming=frame.isStreaming))


def quality(frame: DataFrame, complete: DataFrame | None = None, *, on: str, over: str | None = None) -> DataFrame:
    """Measure how much of a join a sample contains, and how well it represents the rest.

    Parameters
    ----------
    frame : :class:`pyspark.sql.DataFrame`
        Results of :func:`approx_join`.
    complete : :class:`pyspark.sql.DataFrame`, optional
        The complete result.  Without it, the weights of the sample estimate it.
    on : str
        The join value: an expression over the columns of `frame` and of `complete`, such as ``"R.k"``.
    over : str, optional
        An expression over the columns of `frame` for the moment of a result, such as ``"sampling.at div 1000"``.
        There is then a row for every moment, which counts all results up to it.

    Returns
    -------
    :class:`pyspark.sql.DataFrame`
        Lazy, with ``moment`` if `over` is given, ``results``, ``complete`` (rows of the complete join), ``share``,
        ``mse`` (the paper's Equation 1) and ``js`` (Equation 3, the Jensen-Shannon divergence, from 0 to ln 2).

    Raises
    ------
    ArgumentError
        If `frame` carries no weights and `complete` is not given.
    PredicateError
        If Spark cannot evaluate `on` or `over`.

    See Also
    --------
    approx_join : A sample of a join within a memory limit.

    Examples
    --------
    >>> r = spark.range(1000).selectExpr("id % 10 AS k")
    >>> complete = dt.approx_join({"R": r, "S": r}, on="R.k = S.k", memory=None, policy="exact")
    >>> sample = dt.approx_join({"R": r, "S": r}, on="R.k = S.k", memory=200, seed=1)
    >>> measured = dt.quality(sample, complete, on="R.k").first()
    >>> 0 < measured.share < 1, measured.js < 0.01, measured.complete
    (True, True, 100000.0)
    """
    from dovetail.spark.frames import check_frame
    from dovetail.spark.joins.approx_estimates import quality_frame

    check_frame("frame", frame)
    if complete is not None:
        check_frame("complete", complete)
    return quality_frame(frame, complete, on, over)
