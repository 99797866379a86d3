"""`explain`: what a join will do, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explain(frame: DataFrame, *, analyzed: bool = False, sample: bool = False) -> None:
    """Print what a join will do and why; in a notebook, show it as a table.  Starts no job, unless `sample` says so.

    Parameters
    ----------
    frame : DataFrame
        The DataFrame that a join or :func:`sql` returned.
    analyzed : bool, default False
        Whether to add, after an action on a batch join, how even its work was and how many rows were sent more than
        once, each beside the least that is possible.
    sample : bool, default False
        Whether to run small jobs that count the inputs of a batch join and join samples of them, and to add estimates:
        rows and bytes of the result, with an interval of 95 %, and the seconds of each part.  :func:`metrics` then has
        them beside what was measured.

    Raises
    ------
    ArgumentError
        If no join of this library returned the frame, or if `sample` is asked of a stream or of a frame of :func:`sql`.

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
    from dovetail.spark.plan_text import measured_text, plan_text, predicted_text

    if not isinstance(sample, bool):
        raise ArgumentError(f"sample={sample!r}", accepted="True or False")
    text = plan_text(frame)
    show(text + (predicted_text(frame) if sample else "") + (measured_text(frame) if analyzed else ""))
