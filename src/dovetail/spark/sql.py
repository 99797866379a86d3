"""SQL statements in Spark: the session, the schemas that decide, and texts that name frames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, StatementError, in_statement
from dovetail.plan.sql import StatementPlan
from dovetail.spark.frames import same_session
from dovetail.spark.metrics import Handle, attach, handle_of
from dovetail.spark.runtime.session import session_in_use
from dovetail.statements.rewrite import formatted, hidden_names, marked
from dovetail.statements.tasks import Facts


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
    """The lazy frame of a text with marks; Spark's complaints point into the user's `statement`."""
    used: dict[str, Any] = {name: frames[name] for name in marked(text)}
    try:
        frame = session.sql(formatted(text), None, **used)
        # Spark Connect looks at nothing before it is asked.
        frame.schema  # noqa: B018
    except AnalysisException as error:
        raise _complaint(error, statement) from error
    return frame


def _complaint(error: PySparkException, statement: str) -> StatementError:
    """Spark's message, without the plan behind it, at the place it is about."""
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
        watermarked[alias] = tuple(field.name for field in fields if "spark.watermarkDelayMs" in field.metadata)
        kinds = (T.TimestampType, T.TimestampNTZType)
        timestamps[alias] = tuple(field.name for field in fields if isinstance(field.dataType, kinds))
    streams = frozenset(alias for alias, frame in frames.items() if frame.isStreaming)
    return Facts(columns, streams, watermarked, timestamps)


def hidden(frame: DataFrame, number: int, outputs: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """A join's result under hidden names, and its columns beside the inputs."""
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
