"""`sql`: a statement -> what Dovetail takes of it -> joins -> one text for Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dovetail.api.approx import approx_join
from dovetail.api.asof import asof_join
from dovetail.api.bestmatch import bestmatch_join
from dovetail.api.theta import theta_join
from dovetail.api.window import window_join
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, closest, listing
from dovetail.plan.sql import Part, StatementPlan, Taken
from dovetail.statements.decide import decide, worth_a_look
from dovetail.statements.grammar import Slice
from dovetail.statements.orders import register_order
from dovetail.statements.rewrite import Edits, edit_block, from_text, hidden_names, input_query, mark, scoped
from dovetail.statements.statement import Block, Relation, Statement, read_statement
from dovetail.statements.tasks import Facts, Input, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["register_order", "sql"]

_JOINS: dict[str, Callable[..., Any]] = {
    "approx": approx_join,
    "asof": asof_join,
    "bestmatch": bestmatch_join,
    "theta": theta_join,
    "window": window_join,
}


def sql(text: str, /, **frames: DataFrame) -> DataFrame:
    """Run a query of Spark SQL in which the joins of this library have clauses of their own.

    Parameters
    ----------
    text
        One query.  Besides Spark SQL it may have ``WINDOW`` and ``DWINDOW`` behind FROM, ``BESTMATCH JOIN``,
        ``ASOF JOIN`` and ``WITHIN MEMORY``.  Plain joins on inequalities are taken, too; joins with an equality stay
        Spark's.
    frames
        DataFrames by the name of the table that they are in the statement.  Other names are tables and views of
        the session.

    Returns
    -------
    A lazy DataFrame, static or streaming as its inputs.  :func:`explain` tells which joins Dovetail takes.

    Raises
    ------
    StatementError
        If the text cannot be read, or Spark refuses it; the message shows the line and points at the place.

    Notes
    -----
    Spark gets the text as it is written, except for the joins that Dovetail takes: select list, filters, groups,
    orders, subqueries and set operations are Spark's own.

    Examples
    --------
    >>> phones = spark.createDataFrame([("P1", 900), ("P2", 500)], "name string, price int")
    >>> laptops = spark.createDataFrame([("L1", 800), ("L2", 400)], "name string, price int")
    >>> dearer = dt.sql(
    ...     "SELECT p.name, count(*) AS cheaper FROM phones p, laptops l WHERE p.price > l.price GROUP BY p.name",
    ...     phones=phones,
    ...     laptops=laptops,
    ... )
    >>> dearer.orderBy("name").show()
    +----+-------+
    |name|cheaper|
    +----+-------+
    |  P1|      2|
    |  P2|      1|
    +----+-------+
    <BLANKLINE>
    """
    from dovetail.spark.sql import session_of

    statement = read_statement(text)
    _check_names(statement, frames)
    return _Run(statement, session_of(frames), frames).frame()


def _check_names(statement: Statement, frames: Mapping[str, object]) -> None:
    for name in frames:
        if name.lower() not in statement.names:
            raise ArgumentError(
                f"the statement does not name the table {name!r}",
                accepted="frames by the names of tables in the statement",
                hint=closest(name, statement.names),
            )
        if name.lower() in statement.defined:
            raise ArgumentError(f"WITH defines {name!r}, which is also given as a frame", accepted="one of the two")
    folded = [name.lower() for name in frames]
    if len(set(folded)) < len(folded):
        raise ArgumentError(f"frames whose names differ only in case: {listing(frames)}", accepted="names that differ")


class _Run:
    """A statement on its way to one frame."""

    def __init__(self, statement: Statement, session: SparkSession, frames: Mapping[str, DataFrame]) -> None:
        self._statement = statement
        self._session = session
        self._tables = {name.lower(): frame for name, frame in frames.items()}
        self._spelled = {name.lower(): name for name in frames}
        self._edits = Edits(statement.text)
        self._made: dict[str, DataFrame] = {f"__table_{name}": frame for name, frame in self._tables.items()}
        self._joins: list[DataFrame] = []
        self._concealed: dict[Slice, list[str]] = {}
        """Hidden names by the part of FROM that a join replaced."""

    def frame(self) -> DataFrame:
        """The frame of the whole statement, with its plan."""
        from dovetail.spark.sql import finished

        parts = [self._part(block) for block in self._statement.blocks]
        text = self._statement.text.rstrip().rstrip(";")
        whole = Slice(0, len(text))
        at, has_with = self._statement.opening
        tables = self._named_tables()
        if tables:
            self._edits.replace(Slice(at, at), f"{tables}, " if has_with else f"WITH {tables} ")
        result = self._run(self._edits.render(whole))
        return finished(result, StatementPlan(tuple(parts), result.isStreaming), self._joins)

    def _named_tables(self) -> str:
        """The user's frames as common table expressions, so that their names mean them wherever they stand."""
        return ", ".join(
            f"{quoted(name)} AS (SELECT * FROM {mark(f'__table_{key}')})" for key, name in self._spelled.items()
        )

    def _run(self, text: str) -> DataFrame:
        from dovetail.spark.sql import run_text

        return run_text(self._session, text, self._made, self._statement.text)

    def _query(self, query: str, block: Block) -> DataFrame:
        """The frame of a query that sees what a SELECT sees."""
        text = scoped(query, block.scopes, self._edits)
        tables = self._named_tables()
        return self._run(f"WITH {tables} SELECT * FROM ({text})" if tables else text)

    def _part(self, block: Block) -> Part:
        from dovetail.spark.sql import facts_of

        text = self._statement.text
        aliases = tuple(relation.alias for relation in block.relations)
        why = worth_a_look(block, text)
        if why is not None:
            return Part(block.line, aliases, (), why)
        relations = {one.alias: self._relation(one, block) for one in block.relations if one.separate}
        facts = facts_of(relations)
        decision = decide(block, text, facts)
        taken = [self._take(task, block, relations, facts) for task in decision.tasks]
        if not taken:
            return Part(block.line, aliases, (), decision.why)
        moved = frozenset[Slice]().union(*(task.moved for task in decision.tasks))
        last = [task for at, task in enumerate(decision.tasks) if not _swallowed(task, decision.tasks[at + 1 :])]
        concealed = [name for task in last for name in self._concealed[task.at]]
        edit_block(self._edits, block, moved, concealed)
        said = tuple(place.of(text) for place in block.conjuncts if place in moved)
        return Part(block.line, aliases, tuple(taken), decision.why, said)

    def _relation(self, relation: Relation, block: Block) -> DataFrame:
        name = (relation.table or "").lower()
        shadowed = any(name in scope.names for scope in block.scopes)
        if name in self._tables and not shadowed:
            return self._tables[name]
        return self._query(f"SELECT * FROM {self._edits.render(relation.at)}", block)

    def _take(self, task: Task, block: Block, relations: Mapping[str, DataFrame], facts: Facts) -> Taken:
        """Make a join and put it in the place of what it joins."""
        from dovetail.spark.metrics import handle_of
        from dovetail.spark.sql import hidden

        inputs = {one.alias: self._input(one, block, relations) for one in task.inputs}
        joined = _JOINS[task.family](inputs, **task.options)
        number = len(self._joins)
        self._joins.append(joined)
        frame, further = hidden(joined, number, [one.alias for one in task.outputs])
        self._made[f"__dovetail_{number}"] = frame
        self._edits.replace(task.at, from_text(task, number, facts.columns, further))
        self._concealed[task.at] = hidden_names(number, len(task.outputs) + len(further))
        return Taken(task.family, task.why, handle_of(joined, "sql").plan)

    def _input(self, one: Input, block: Block, relations: Mapping[str, DataFrame]) -> DataFrame:
        if one.prefix is not None:
            return self._query(input_query(one, self._edits.render(one.prefix)), block)
        if not one.nested and not one.keys and not one.conditions:
            return relations[one.members[0]]
        sources = []
        for member in one.members:
            name = f"__input_{len(self._made)}"
            self._made[name] = relations[member]
            sources.append(f"{mark(name)} AS {quoted(member)}")
        return self._run(input_query(one, ", ".join(sources)))


def _swallowed(task: Task, later: tuple[Task, ...]) -> bool:
    return any(one.at.start <= task.at.start and task.at.stop <= one.at.stop for one in later)
