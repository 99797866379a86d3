"""SQL statements on Spark: the joins that Dovetail runs, and one text for Spark around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, DovetailError, StatementError, UnboundedJoinError, in_statement
from dovetail.plan.selection import Travelling
from dovetail.plan.sql import JoinPlan, SelectPlan, StatementPlan
from dovetail.spark.frames import same_session
from dovetail.spark.metrics import Handle, attach, handle_of
from dovetail.spark.runtime.session import session_in_use
from dovetail.spark.runtime.versions import natural_ignores_case
from dovetail.spark.selection import pruned
from dovetail.spark.watermarks import watermark_delay
from dovetail.statements.attributes import Offer, offered
from dovetail.statements.calls import Facts, JoinCall, JoinInput, refuse_doubles
from dovetail.statements.decide import decide, has_clause, left_to_spark
from dovetail.statements.pruning import pruned_facts, used_columns
from dovetail.statements.rewrite import (
    Edits,
    concealed,
    edit_block,
    from_clause,
    hidden_names,
    holders,
    input_query,
    placeholder,
    placeholders,
    scoped,
    template,
)
from dovetail.statements.syntax.commands import Command, View
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import Block, Relation, Scope, Statement, check_frame_names


def statement_frame(
    statement: Statement,
    frames: Mapping[str, DataFrame],
    joins: Mapping[str, Callable[..., DataFrame]],
    command: Command | None = None,
) -> DataFrame:
    """The frame of a statement: lazy for a query, an empty one where a command has been carried out.

    Parameters
    ----------
    statement : Statement
        The statement, read.
    frames : mapping of str to DataFrame
        Frames by the names of the tables that they are in the statement.
    joins : mapping of str to callable
        The function that makes a join of each family; they live above this package.
    command : Command, optional
        What is done with the query.

    Returns
    -------
    DataFrame
        The frame, with the plan that explains it and the counters of its joins.
    """
    check_frame_names(statement, frames)
    session = session_of(frames)
    if command is not None and command.kind == "view" and command.view is None:
        return view_by_spark(session, statement, command, frames)
    left: dict[int, str] = {}
    # With this setting a name in backquotes is a pattern, and means columns that it does not name.
    prune = session.conf.get("spark.sql.parser.quotedRegexColumnNames") != "true"
    # A plain join that Dovetail cannot take is Spark's, so every failure leaves at least one more SELECT to Spark.
    while True:
        lowering = _Lowering(statement, session, frames, joins, left, prune=prune)
        try:
            frame = lowering.frame(command.head if command and command.kind == "write" else "")
        except UnboundedJoinError:
            raise
        except DovetailError as error:
            if lowering.pruned:
                prune = False  # so that the message knows all columns
                continue
            taken = lowering.taken
            if not taken:
                raise
            left |= dict.fromkeys(taken, f"Dovetail cannot run it: {error.given.splitlines()[0]}")
        else:
            return frame if command is None or command.view is None else create_view(frame, command.view)


class _Lowering:
    """A statement on its way to one frame: its joins become frames, the rest one text for Spark."""

    def __init__(
        self,
        statement: Statement,
        session: SparkSession,
        frames: Mapping[str, DataFrame],
        joins: Mapping[str, Callable[..., DataFrame]],
        left: Mapping[int, str],
        *,
        prune: bool = True,
    ) -> None:
        self._statement = statement
        self._session = session
        self._case_sensitive = session.conf.get("spark.sql.caseSensitive") == "true"
        self._join_functions = joins
        self._left = left
        """Why a SELECT's plain joins stay with Spark, by its number."""
        self.taken: list[int] = []
        """SELECTs with plain joins that Dovetail runs or is trying to run: the last one only, while it tries."""
        self._prune = prune
        self.pruned = False
        """Whether some relation lost columns that the statement does not use."""
        self._tables = {name.lower(): frame for name, frame in frames.items()}
        self._spelled = {name.lower(): name for name in frames}
        self._edits = Edits(statement.text)
        self._made: dict[str, DataFrame] = {f"__table_{name}": frame for name, frame in self._tables.items()}
        self._joins: list[DataFrame] = []
        self._shared: dict[Slice, DataFrame | None] = {}
        """Common table expressions that are named more than once; None where one cannot be a frame of its own."""
        self._concealed: dict[Slice, tuple[list[str], Offer]] = {}
        """Columns that ``*`` does not mean, by the part of FROM that a join replaced, and what that part offers."""

    def frame(self, head: str = "") -> DataFrame:
        """The frame of the whole statement behind the head of a command, with its plan."""
        taken: list[int] = []
        selects = []
        for number, block in enumerate(self._statement.blocks):
            self.taken = [] if number in self._left else [number]
            selects.append(self._select(number, block))
            if selects[-1].joins and (not has_clause(block) or number not in self._left):
                taken.append(number)
        self.taken = taken
        text = self._statement.text.rstrip().rstrip(";")
        offset, has_with = self._statement.opening
        tables = self._named_tables()
        if tables:
            self._edits.replace(Slice(offset, offset), f"{tables}, " if has_with else f"WITH {tables} ")
        result = self._run(head + self._edits.render(Slice(0, len(text))))
        return finished(result, StatementPlan(tuple(selects), result.isStreaming), self._joins)

    def _named_tables(self) -> str:
        """The user's frames as common table expressions, so that their names mean them everywhere in the text."""
        return ", ".join(
            f"{quoted(name)} AS (SELECT * FROM {placeholder(f'__table_{key}')})" for key, name in self._spelled.items()
        )

    def _run(self, text: str) -> DataFrame:
        return run_text(self._session, text, self._made, self._statement)

    def _query(self, query: str, scopes: tuple[Scope, ...]) -> DataFrame:
        """The frame of a query that sees what a SELECT sees."""
        text = scoped(query, scopes, self._edits)
        tables = self._named_tables()
        return self._run(f"WITH {tables} SELECT * FROM ({text})" if tables else text)

    def _share(self, scopes: tuple[Scope, ...]) -> None:
        """Make common table expressions with several references one frame each, so that all see the same values."""
        for depth, scope in enumerate(scopes):
            for at, (table, name) in enumerate(zip(scope.tables, scope.names, strict=True)):
                if scope.recursive or table in self._shared or self._statement.words[name.lower()] < 3:
                    continue
                self._shared[table] = None
                seen = Scope(False, scope.tables[: at + 1], scope.names[: at + 1])
                try:
                    frame = self._query(f"SELECT * FROM {quoted(name)}", (*scopes[:depth], seen))
                except StatementError:
                    continue  # it looks at a row of an outer query
                self._shared[table] = frame
                key = f"__with_{len(self._made)}"
                self._made[key] = frame
                self._edits.replace(table, f"{quoted(name)} AS (SELECT * FROM {placeholder(key)})")

    def _select(self, number: int, block: Block) -> SelectPlan:
        text = self._statement.text
        aliases = tuple(relation.alias for relation in block.relations)
        clause = has_clause(block)
        why = left_to_spark(block, text) or (None if clause else self._left.get(number))
        if why is not None:
            self.taken = []
            return SelectPlan(block.line, aliases, (), why)
        self._share(block.scopes)
        relations = {one.alias: self._relation(one, block) for one in block.relations if one.separate}
        if not clause and self._shares_random_values(block):
            self.taken = []
            return SelectPlan(block.line, aliases, (), "a WITH clause draws random values that several places share")
        facts = facts_of(relations)
        refuse_doubles(block, text, facts)
        decision = decide(block, text, facts, plain=number not in self._left)
        kept = used_columns(self._statement, block, decision.calls, facts) if self._prune else None
        widths = {alias: len(names) for alias, names in facts.columns.items()}
        if kept is not None and decision.calls:
            self.pruned = True
            relations = {alias: pruned(frame, kept[alias]) for alias, frame in relations.items()}
            facts = pruned_facts(facts, kept)
        joins = [self._join(call, block, relations, facts) for call in decision.calls]
        if not joins:
            return SelectPlan(block.line, aliases, (), decision.why)
        moved = frozenset[Slice]().union(*(call.moved for call in decision.calls))
        outermost = [
            call for number, call in enumerate(decision.calls) if not _is_within(call, decision.calls[number + 1 :])
        ]
        replaced = [self._concealed[call.slice] for call in outermost]
        own_columns = [name for names, _ in replaced for name in names]
        edit_block(self._edits, block, moved, own_columns, [offer for _, offer in replaced])
        evaluated = tuple(conjunct.of(text) for conjunct in block.conjuncts if conjunct in moved)
        travelling = {alias: Travelling(tuple(names), widths[alias]) for alias, names in facts.columns.items()}
        return SelectPlan(block.line, aliases, tuple(joins), decision.why, evaluated, travelling)

    def _shares_random_values(self, block: Block) -> bool:
        """Whether a relation is a non-deterministic WITH clause with other references, which Spark computes once."""
        for relation in block.relations:
            name = (relation.table or "").lower()
            for scope in block.scopes:
                for table, other in zip(scope.tables, scope.names, strict=True):
                    frame = self._shared.get(table)
                    if other.lower() == name and frame is not None and not is_deterministic(frame):
                        return True
        return False

    def _relation(self, relation: Relation, block: Block) -> DataFrame:
        name = (relation.table or "").lower()
        shadowed = any(name == other.lower() for scope in block.scopes for other in scope.names)
        if name in self._tables and not shadowed:
            return self._tables[name]
        return self._query(f"SELECT * FROM {self._edits.render(relation.slice)}", block.scopes)

    def _join(self, call: JoinCall, block: Block, relations: Mapping[str, DataFrame], facts: Facts) -> JoinPlan:
        """Make a join, and put its result in place of what it joins."""
        inputs = {one.alias: self._input(one, block, relations, facts) for one in call.inputs}
        joined = self._join_functions[call.family](inputs, **call.options)
        number = len(self._joins)
        self._joins.append(joined)
        offer = self._offered(block, call.slice, facts)
        frame, further = hidden(joined, number, call, offer)
        self._made[f"__dovetail_{number}"] = frame
        self._edits.replace(call.slice, from_clause(call, number, offer, further))
        self._concealed[call.slice] = (concealed(call, number, offer, further), offer)
        return JoinPlan(call.family, call.why, handle_of(joined, "sql").plan)

    def _offered(self, block: Block, within: Slice, facts: Facts) -> Offer:
        # Spark is asked only where it matters.
        asked = not self._case_sensitive and any(join.natural for join in block.joins)
        ignores_case = not asked or natural_ignores_case(self._session)
        return offered(
            block,
            within,
            facts.columns,
            case_sensitive=self._case_sensitive,
            natural_ignores_case=ignores_case,
        )

    def _input(self, one: JoinInput, block: Block, relations: Mapping[str, DataFrame], facts: Facts) -> DataFrame:
        if one.prefix is not None:
            offer = self._offered(block, one.prefix, facts)
            source = self._edits.render(one.prefix)
            query = input_query(one, source, offer, facts.columns, whole=not self.pruned)
            return self._query(query, block.scopes)
        if not one.nested and not one.keys and not one.conditions:
            return relations[one.members[0]]
        sources = []
        for member in one.members:
            name = f"__input_{len(self._made)}"
            self._made[name] = relations[member]
            sources.append(f"{placeholder(name)} AS {quoted(member)}")
        return self._run(input_query(one, ", ".join(sources), Offer(()), facts.columns))


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


def view_by_spark(
    session: SparkSession, statement: Statement, command: Command, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Let Spark create a view; it stores the text, which can hold neither frames nor clauses of the dialect."""
    if frames or any(map(has_clause, statement.blocks)):
        raise StatementError(
            f"{command.head.strip()} a query with {'frames' if frames else 'a join of Dovetail'}, "
            "of which Spark would store the text",
            accepted="CREATE [OR REPLACE] [GLOBAL] TEMPORARY VIEW name [(columns)] AS query, or CREATE TABLE ... AS",
        )
    created = run_text(session, command.head + command.query, {}, None)
    return finished(created, StatementPlan((), streaming=False), [])


def create_view(frame: DataFrame, view: View) -> DataFrame:
    """Create a temporary view; the statement's plan comes with an empty frame, as Spark returns for commands."""
    handle = handle_of(frame, "sql")
    named = frame.toDF(*view.columns) if view.columns else frame
    create = {
        (False, False): named.createTempView, (False, True): named.createOrReplaceTempView,
        (True, False): named.createGlobalTempView, (True, True): named.createOrReplaceGlobalTempView,
    }  # fmt: skip
    try:
        create[view.shared, view.replace](view.name)
    except AnalysisException as error:
        raise _complaint(error, view.name) from error
    return attach(frame.limit(0).select(), Handle(handle.plan, handle.recorders))


def run_text(
    session: SparkSession, text: str, frames: Mapping[str, DataFrame], statement: Statement | None
) -> DataFrame:
    """The lazy frame of a text with placeholders; Spark's complaints point into the user's `statement`."""
    used: dict[str, Any] = {name: frames[name] for name in placeholders(text)}
    try:
        frame = session.sql(template(text), None, **used)
        # Spark Connect looks at nothing before it is asked.
        frame.schema  # noqa: B018
    except AnalysisException as error:
        if isinstance(error, ParseException) and statement is not None and statement.unread is not None:
            raise statement.unread from error
        raise _complaint(error, text if statement is None else statement.text) from error
    return frame


def _complaint(error: PySparkException, statement: str) -> StatementError:
    """Spark's message, without the plan behind it and without our names, at the position it is about."""
    lines = re.split(r"\n\s*\n|;\n|\n'|\n== SQL|; line \d+ pos", str(error), maxsplit=1)[0]
    message = re.sub(r"\s*SQLSTATE: \w+", "", lines).strip()
    message = re.sub(r"(, )?\[?`__dovetail_[^,\]]*(?=[,\]])", "", message).replace("[, ", "[")
    for context in error.getQueryContext():
        at = statement.find(context.fragment()) if context.fragment() else -1
        if at >= 0:
            return in_statement(statement, at, f"Spark refuses this: {message}")
    return StatementError(f"Spark refuses the statement: {message}")


def is_deterministic(frame: DataFrame) -> bool:
    """Whether a frame has the same rows each time it is computed; taken for granted where Spark cannot be asked."""
    plan = getattr(frame, "_jdf", None)  # Spark Connect has none
    return plan is None or bool(plan.queryExecution().analyzed().deterministic())


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


def hidden(frame: DataFrame, number: int, call: JoinCall, offer: Offer) -> tuple[DataFrame, list[str]]:
    """A join's result under hidden names, and the columns that it has besides those of the inputs.

    Columns that USING hides are fields of a column with the name of their relation, so that ``c.id`` finds them.
    """
    outputs = [one.alias for one in call.outputs]
    further = [name for name in frame.columns if name not in outputs]
    names = hidden_names(number, len(outputs) + len(further))
    columns = [F.col(quoted(name)).alias(new) for name, new in zip([*outputs, *further], names, strict=True)]
    places = holders(call, [*outputs, *further], offer)
    for alias in dict.fromkeys(attribute.alias for attribute in offer.hidden):
        fields = [
            F.col(".".join(map(quoted, places[attribute]))).alias(attribute.name)
            for attribute in offer.hidden
            if attribute.alias == alias
        ]
        columns.append(F.struct(*fields).alias(str(alias)))
    return frame.select(*columns), further


def finished(frame: DataFrame, plan: StatementPlan, joins: Sequence[DataFrame]) -> DataFrame:
    """The statement's frame with what explain and metrics need."""
    handles = [handle_of(join, "sql") for join in joins]
    return attach(frame, Handle(plan, [recorder for handle in handles for recorder in handle.recorders]))
