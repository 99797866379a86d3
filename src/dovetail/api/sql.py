"""`sql`: a statement to one frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.api.joins import JOINS
from dovetail.statements.orders import register_order
from dovetail.statements.syntax.commands import read_command
from dovetail.statements.syntax.parameters import bind
from dovetail.statements.syntax.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["register_order", "sql"]


def sql(text: str, /, args: Mapping[str, Any] | Sequence[Any] | None = None, **frames: DataFrame) -> DataFrame:
    """Run a Spark SQL statement that may use the joins of this library.

    Parameters
    ----------
    text : str
        One query.  Besides Spark SQL it may use ``WINDOW`` and ``DWINDOW`` after FROM, ``BESTMATCH JOIN``,
        ``ASOF JOIN`` and ``WITHIN MEMORY``.  Dovetail also runs plain joins on inequalities; joins with an equality
        stay with Spark.  ``INSERT``, ``CREATE TABLE ... AS`` and ``CREATE TEMPORARY VIEW ... AS`` may precede the
        query; they are carried out at once, as in Spark.
    args : dict or list, optional
        Values of the parameters: a dictionary for ``:name``, a list for ``?``.
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

    text = bind(text, args)
    command = read_command(text) if isinstance(text, str) else None
    return statement_frame(read_statement(command.query if command else text), frames, JOINS, command)
