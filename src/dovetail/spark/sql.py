"""SQL statements on Spark: the joins that Dovetail runs, and one text for Spark around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, StatementError, in_statement
from dovetail.plan.sql import JoinPlan, SelectPlan, StatementPlan
from dovetail.spark.frames import same_session
from dovetail.spark.metrics import Handle, attach, handle_of
from dovetail.spark.runtime.session import session_in_use
from dovetail.spark.watermarks import watermark_delay
from dovetail.statements.calls import Facts, JoinCall, JoinInput
from dovetail.statements.decide import decide, left_to_spark
from dovetail.statements.grammar import Slice
from dovetail.statements.rewrite import (
    Edits,
    edit_block,
    from_clause,
    hidden_names,
    input_query,
    placeholder,
    placeholders,
    scoped,
    template,
)
from dovetail.statements.statement import Block, Relation, Statement, check_frame_names


def statement_frame(
    statement: Statement, frames: Mapping[str, DataFrame], joins: Mapping[str, Callable[..., DataFrame]]
) -> DataFrame:
    """The lazy frame of a statement.

    Parameters
    ----------
    statement : Statement
        The statement, read.
    frames : mapping of str to DataFrame
        Frames by the names of the tables that they are in the statement.
    joins : mapping of str to callable
        The function that makes a join of each family; they live above this package.

    Returns
    -------
    DataFrame
        The frame, with the plan that explains it and the counters of its joins.
    """
    check_frame_names(statement, frames)
    return _Lowering(statement, session_of(frames), frames, joins).frame()


class _Lowering:
    """A statement on its way to one frame: its joins become frames, the rest one text for Spark."""

    def __init__(
        self,
        statement: Statement,
        session: SparkSession,
        frames: Mapping[str, DataFrame],
        joins: Mapping[str, Callable[..., DataFrame]],
    ) -> None:
        self._statement = statement
        self._session = session
        self._join_functions = joins
        self._tables = {name.lower(): frame for name, frame in frames.items()}
        self._spelled = {name.lower(): name for name in frames}
        self._edits = Edits(statement.text)
        self._made: dict[str, DataFrame] = {f"__table_{name}": frame for name, frame in self._tables.items()}
        self._joins: list[DataFrame] = []
        self._concealed: dict[Slice, list[str]] = {}
        """Hidden names by the part of FROM that a join replaced."""

    def frame(self) -> DataFrame:
        """The frame of the whole statement, with its plan."""
        selects = [self._select(block) for block in self._statement.blocks]
        text = self._statement.text.rstrip().rstrip(";")
        offset, has_with = self._statement.opening
        tables = self._named_tables()
        if tables:
            self._edits.replace(Slice(offset, offset), f"{tables}, " if has_with else f"WITH {tables} ")
        result = self._run(self._edits.render(Slice(0, len(text))))
        return finished(result, StatementPlan(tuple(selects), result.isStreaming), self._joins)

    def _named_tables(self) -> str:
        """The user's frames as common table expressions, so that their names mean them everywhere in the text."""
        return ", ".join(
            f"{quoted(name)} AS (SELECT * FROM {placeholder(f'__table_{key}')})" for key, name in self._spelled.items()
        )

    def _run(self, text: str) -> DataFrame:
        return run_text(self._session, text, self._made, self._statement.text)

    def _query(self, query: str, block: Block) -> DataFrame:
        """The frame of a query that sees what a SELECT sees."""
        text = scoped(query, block.scopes, self._edits)
        tables = self._named_tables()
        return self._run(f"WITH {tables} SELECT * FROM ({text})" if tables else text)

    def _select(self, block: Block) -> SelectPlan:
        text = self._statement.text
        aliases = tuple(relation.alias for relation in block.relations)
        why = left_to_spark(block, text)
        if why is not None:
            return SelectPlan(block.line, aliases, (), why)
        relations = {one.alias: self._relation(one, block) for one in block.relations if one.separate}
        facts = facts_of(relations)
        decision = decide(block, text, facts)
        joins = [self._join(call, block, relations, facts) for call in decision.calls]
        if not joins:
            return SelectPlan(block.line, aliases, (), decision.why)
        moved = frozenset[Slice]().union(*(call.moved for call in decision.calls))
        outermost = [
            call for number, call in enumerate(decision.calls) if not _is_within(call, decision.calls[number + 1 :])
        ]
        concealed = [name for call in outermost for name in self._concealed[call.slice]]
        edit_block(self._edits, block, moved, concealed)
        evaluated = tuple(conjunct.of(text) for conjunct in block.conjuncts if conjunct in moved)
        return SelectPlan(block.line, aliases, tuple(joins), decision.why, evaluated)

    def _relation(self, relation: Relation, block: Block) -> DataFrame:
        name = (relation.table or "").lower()
        shadowed = any(name in scope.names for scope in block.scopes)
        if name in self._tables and not shadowed:
            return self._tables[name]
        return self._query(f"SELECT * FROM {self._edits.render(relation.slice)}", block)

    def _join(self, call: JoinCall, block: Block, relations: Mapping[str, DataFrame], facts: Facts) -> JoinPlan:
        """Make a join, and put its result in place of what it joins."""
        inputs = {one.alias: self._input(one, block, relations) for one in call.inputs}
        joined = self._join_functions[call.family](inputs, **call.options)
        number = len(self._joins)
        self._joins.append(joined)
        frame, further = hidden(joined, number, [one.alias for one in call.outputs])
        self._made[f"__dovetail_{number}"] = frame
        self._edits.replace(call.slice, from_clause(call, number, facts.columns, further))
        self._concealed[call.slice] = hidden_names(number, len(call.outputs) + len(further))
        return JoinPlan(call.family, call.why, handle_of(joined, "sql").plan)

    def _input(self, one: JoinInput, block: Block, relations: Mapping[str, DataFrame]) -> DataFrame:
        if one.prefix is not None:
            return self._query(input_query(one, self._edits.render(one.prefix)), block)
        if not one.nested and not one.keys and not one.conditions:
            return relations[one.members[0]]
        sources = []
        for member in one.members:
            name = f"__input_{len(self._made)}"
            self._made[name] = relations[member]
            sources.append(f"{placeholder(name)} AS {quoted(member)}")
        return self._run(input_query(one, ", ".join(sources)))


def _is_within(call: JoinCall, later: tuple[JoinCall, ...]) -> bool:
    return any(one.slice.start <= call.slice.start and call.slice.stop <= one.slice.stop for one in later)


def session_of(frames: Mapping[str, DataFrame]) -> SparkSession:
    """The session of the frames, or the one in use."""
    for name, frame in frames.items():
        given: object = frame
        if not isinstance(given, DataFrame):
            raise ArgumentError(
                f"the table {name!r} is a {type(given).__name__}",
                accepted="Spark DataFrames by the name that the statement gives them, such as dt.sql(text, A=a, B=b)",
            )
    if frames:
        same_session(frames)
        return next(iter(frames.values())).sparkSession
    found = session_in_use()
    if found is None:
        raise ArgumentError(
            "a statement without frames, and there is no Spark session",
            accepted="frames by name, or tables and views of a session",
            hint="spark = dt.session() starts one",
        )
    return found


def run_text(session: SparkSession, text: str, frames: Mapping[str, DataFrame], statement: str) -> DataFrame:
    """The lazy frame of a text with placeholders; Spark's complaints point into the user's `statement`."""
    used: dict[str, Any] = {name: frames[name] for name in placeholders(text)}
    try:
        frame = session.sql(template(text), None, **used)
        # Spark Connect looks at nothing before it is asked.
        frame.schema  # noqa: B018
    except AnalysisException as error:
        raise _complaint(error, statement) from error
    return frame


def _complaint(error: PySparkException, statement: str) -> StatementError:
    """Spark's message, without the plan behind it, at the position it is about."""
    lines = re.split(r"\n\s*\n|;\n|\n'|\n== SQL|; line \d+ pos", str(error), maxsplit=1)[0]
    message = re.sub(r"\s*SQLSTATE: \w+", "", lines).strip()
    for context in error.getQueryContext():
        at = statement.find(context.fragment()) if context.fragment() else -1
        if at >= 0:
            return in_statement(statement, at, f"Spark refuses this: {message}")
    return StatementError(f"Spark refuses the statement: {message}")


def facts_of(frames: Mapping[str, DataFrame]) -> Facts:
    """What the decisions need to know of relations, from their schemas."""
    columns, watermarked, timestamps = {}, {}, {}
    for alias, frame in frames.items():
        fields = frame.schema.fields
        columns[alias] = tuple(field.name for field in fields)
        watermarked[alias] = tuple(field.name for field in fields if watermark_delay(field) is not None)
        kinds = (T.TimestampType, T.TimestampNTZType)
        timestamps[alias] = tuple(field.name for field in fields if isinstance(field.dataType, kinds))
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    return Facts(columns, streams, watermarked, timestamps)


def hidden(frame: DataFrame, number: int, outputs: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """A join's result under hidden names, and the columns that it has besides those of the inputs."""
    further = [name for name in frame.columns if name not in outputs]
    names = hidden_names(number, len(outputs) + len(further))
    columns = [
        F.col(quoted(name)).alias(concealed) for name, concealed in zip([*outputs, *further], names, strict=True)
    ]
    return frame.select(*columns), further


def finished(frame: DataFrame, plan: StatementPlan, joins: Sequence[DataFrame]) -> DataFrame:
    """The statement's frame with what explain and metrics need."""
    handles = [handle_of(join, "sql") for join in joins]
    return attach(frame, Handle(plan, [recorder for handle in handles for recorder in handle.recorders]))
