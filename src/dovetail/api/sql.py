"""`sql`: a statement to one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.api.joins import JOINS
from dovetail.statements.orders import register_order
from dovetail.statements.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["register_order", "sql"]


def sql(text: str, /, **frames: DataFrame) -> DataFrame:
    """Run a Spark SQL query that may use the joins of this library.

    Parameters
    ----------
    text : str
        One query.  Besides Spark SQL it may use ``WINDOW`` and ``DWINDOW`` after FROM, ``BESTMATCH JOIN``,
        ``ASOF JOIN`` and ``WITHIN MEMORY``.  Dovetail also runs plain joins on inequalities; joins with an equality
        stay with Spark.
    **frames : DataFrame
        DataFrames by the table names that the statement uses for them.  Other names are tables and views of the
        session.

    Returns
    -------
    DataFrame
        A lazy DataFrame, static or streaming like its inputs.  :func:`explain` tells which joins Dovetail runs.

    Raises
    ------
    StatementError
        If the text cannot be read, or Spark refuses it; the message shows the line and points at the position.
    ArgumentError
        If a frame is not a DataFrame, or the statement does not name it.

    See Also
    --------
    explain : Which joins of the statement Dovetail runs, and why.
    register_order : An order of your own for ``BESTMATCH JOIN``.

    Notes
    -----
    Spark gets the text as it is written, except for the joins that Dovetail runs: the select list, filters, groups,
    orders, subqueries and set operations are Spark's own.

    Examples
    --------
    >>> phones = spark.createDataFrame([("P1", 900), ("P2", 500)], "name string, price int")
    >>> laptops = spark.createDataFrame([("L1", 800), ("L2", 400)], "name string, price int")
    >>> cheaper = dt.sql(
    ...     "SELECT p.name, count(*) AS cheaper FROM phones p, laptops l WHERE p.price > l.price GROUP BY p.name",
    ...     phones=phones,
    ...     laptops=laptops,
    ... )
    >>> cheaper.orderBy("name").show()
    +----+-------+
    |name|cheaper|
    +----+-------+
    |  P1|      2|
    |  P2|      1|
    +----+-------+
    <BLANKLINE>
    """
    from dovetail.spark.sql import statement_frame

    return statement_frame(read_statement(text), frames, JOINS)
