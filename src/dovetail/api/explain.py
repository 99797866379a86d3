"""`explain`: what a join will do, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explain(frame: DataFrame, *, analyzed: bool = False) -> None:
    """Print what a join will do and why; in a notebook, show it as a table.  Starts no job.

    Parameters
    ----------
    frame : DataFrame
        The DataFrame that a join or :func:`sql` returned.
    analyzed : bool, default False
        Whether to add, after an action on a batch join, how even its work was and how many rows were sent more than
        once, each beside the least that is possible.

    Raises
    ------
    ArgumentError
        If no join of this library returned the frame.

    See Also
    --------
    metrics : What a join did, after it ran.

    Examples
    --------
    >>> r, s = spark.range(100), spark.range(50)
    >>> dt.explain(dt.theta_join({"R": r, "S": s}, on="ABS(R.id - S.id) <= 3", partitions=4))
    theta join, batch, how='inner'
      inputs      R, S
      join        R with S
        where     ABS(R.id - S.id) <= 3
        sides     R gives points, S gives a range of R.id
        kernel    range: sorted points, one run for each box; cost follows rows + results
        routing   cells cut at quantiles of a 1/128 sample of both sides, read within the same action; 4 shuffle partitions of packed segments
    """  # noqa: E501
    from dovetail.plan.rendering import show
    from dovetail.spark.plan_text import measured_text, plan_text

    show(plan_text(frame) + (measured_text(frame) if analyzed else ""))
