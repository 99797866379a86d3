"""`approx_join`, `estimates` and `quality`: arguments -> checked spec -> plan -> frame."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.conditions.limits import memory_limit
from dovetail.conditions.predicates import parse
from dovetail.families.approx.spec import Allocation, Options, Policy
from dovetail.plan.approx import plan_approx

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def approx_join(
    inputs: Mapping[str, DataFrame],
    *,
    on: str,
    memory: int | str | None,
    policy: Policy = "raj_hash",
    seed: int | None = None,
    allocation: Allocation = "fixed",
    strata: int | None = None,
    cells: int | None = None,
    balance: bool = True,
    detail: bool = True,
) -> DataFrame:
    """Join within a memory limit: a sample of the join, the most representative or the largest.

    Parameters
    ----------
    inputs
        A mapping from an alias to a DataFrame, all static or all streams.  Two, or with ``raj``, ``raj_hash`` and
        ``exact`` more.
    on
        The condition in Spark SQL over ``alias.column``.  All policies but ``raj`` and ``exact`` need an equality that
        reaches every input; those two also take bands and inequalities alone.  Further comparisons are checked on what
        meets, and Spark evaluates any other conjunct on the results.
    memory
        How much may be held, all cells together: a number of rows, or a size such as ``"64 MB"``.
    policy
        Which rows stay when memory is full.

        ``raj_hash``
            a uniform sample within every stratum of join values; rare values are not lost;
        ``raj``
            a uniform sample of every input;
        ``prob``, ``prob_hash``
            the rows whose value the other input brings most often: the most results;
        ``arrpj``
            the rows of values that have produced most;
        ``exact``
            every row; the query fails if they exceed `memory`, which may be None.
    seed
        Makes the choices reproducible.  None takes any.  A restarted stream goes on with the seed it began with.
    allocation
        For ``prob``: ``fixed`` gives both inputs the same part of the memory, ``variable`` lets them compete for all
        of it.
    strata
        For ``raj_hash``: into how many strata the hash divides the join values of a cell, at most (default: 1024).
    cells
        In how many independent parts the join runs (default: 16, or fewer if memory is small).
    balance
        Whether a batch join counts the rows of all cells first and shares the memory in that proportion, so that the
        results as they are represent the join.  That reads the keys of the inputs twice.  Streams share in equal parts.

    detail
        Whether results carry all that :func:`estimates` needs.  Without it they carry their weight alone, which suits
        large results whose intervals nobody asks for.

    Returns
    -------
    A lazy DataFrame with one struct column per alias, and the struct column ``sampling``: for ``raj``, ``raj_hash`` and
    ``exact`` the ``weight`` of the result, the inverse of its inclusion probability; ``cell`` and ``at`` (the moment
    within the cell); and what :func:`estimates` needs besides.

    Examples
    --------
    >>> r = spark.range(1000).selectExpr("id % 10 AS k", "id AS x")
    >>> s = spark.range(1000).selectExpr("id % 10 AS k", "id AS y")
    >>> some = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=200, seed=1)
    >>> some.columns
    ['R', 'S', 'sampling']
    >>> some.where("R.k <> S.k").count(), some.count() < 100_000
    (0, True)
    """
    from dovetail.spark.frames import check_inputs
    from dovetail.spark.joins.approx import approx_frame
    from dovetail.spark.joins.theta import theta_facts

    options = Options(
        memory=None if memory is None else memory_limit(memory),
        policy=policy,
        allocation=allocation,
        seed=secrets.randbits(63) if seed is None else seed,
        strata=strata,
        cells=cells,
        balance=balance,
        detail=detail,
    )
    frames = check_inputs(inputs)
    predicate = parse(on, {alias: frame.columns for alias, frame in frames.items()})
    plan = plan_approx(tuple(frames), predicate, theta_facts(frames, predicate), options)
    return approx_frame(frames, plan)


def estimates(
    sample: DataFrame,
    measures: Mapping[str, str] | None = None,
    *,
    by: str | Sequence[str] = (),
    confidence: float = 0.95,
) -> DataFrame:
    """Sizes, sums and averages of the complete join, from a sample of it, with confidence intervals.

    Parameters
    ----------
    sample
        What :func:`approx_join` returned under ``raj``, ``raj_hash`` or ``exact``, or rows of it that were filtered or
        stored in the meantime; its column ``sampling`` must be there.
    measures
        A name for each measure: ``count(*)``, ``count(expression)``, ``sum(expression)`` or ``avg(expression)`` over
        the columns of the sample (default: ``{"rows": "count(*)"}``).
    by
        Expressions to group by, such as ``"R.region"`` or ``"R.x > 5 AS large"``.
    confidence
        How often an interval should hold the true value.

    Returns
    -------
    A lazy DataFrame with the columns of `by`, and for each measure a struct of ``estimate``, ``error`` (the standard
    error), ``low`` and ``high``.  A group that the sample missed altogether is missing here too.

    Examples
    --------
    >>> r = spark.range(2000).selectExpr("id % 10 AS k", "id AS x")
    >>> s = spark.range(2000).selectExpr("id % 10 AS k")
    >>> some = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=400, seed=1)
    >>> found = dt.estimates(some, {"rows": "count(*)", "mean": "avg(R.x)"}).first()
    >>> found.rows.low <= 400_000 <= found.rows.high, found.mean.low <= 999.5 <= found.mean.high
    (True, True)
    """
    from dovetail.spark.joins.approx_estimates import estimates_frame

    return estimates_frame(sample, measures, by, confidence)


def quality(sample: DataFrame, complete: DataFrame | None = None, *, on: str, over: str | None = None) -> DataFrame:
    """How much of a join a sample holds, and how well it represents the rest.

    Parameters
    ----------
    sample
        Results of an approximate join.
    complete
        The complete result.  Without it, the weights of the sample say what it would look like.
    on
        The join value: an expression over the columns of `sample` and of `complete`, such as ``"R.k"``.
    over
        An expression over the columns of `sample` for the moment of a result, such as ``"sampling.at div 1000"``.
        There is then a row for every moment, and it counts all results up to it.

    Returns
    -------
    A lazy DataFrame with ``moment`` if `over` is given, ``results``, ``complete`` (rows of the complete join),
    ``share``, ``mse`` (the paper's Equation 1) and ``js`` (Equation 3, the Jensen-Shannon divergence, from 0 to ln 2).

    Examples
    --------
    >>> r = spark.range(1000).selectExpr("id % 10 AS k")
    >>> whole = dt.approx_join({"R": r, "S": r}, on="R.k = S.k", memory=None, policy="exact")
    >>> some = dt.approx_join({"R": r, "S": r}, on="R.k = S.k", memory=200, seed=1)
    >>> found = dt.quality(some, whole, on="R.k").first()
    >>> 0 < found.share < 1, found.js < 0.01, found.complete
    (True, True, 100000.0)
    """
    from dovetail.spark.joins.approx_estimates import quality_frame

    return quality_frame(sample, complete, on, over)
