"""Inputs of a join as Spark sees them: checks, types, and the flat frames that the stages read.

Everything here is analysis.  It asks Spark for schemas, never for rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import POINT_PAYLOAD
from dovetail.columns.memory import width
from dovetail.columns.structs import Nested, nullable
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, UnknownNameError, UnsupportedTypeError, listing, unknown_column
from dovetail.spark.carriers import arrow_type, carried
from dovetail.spark.runtime.session import session_in_use
from dovetail.spark.runtime.versions import spark_version


@dataclass(frozen=True)
class Side:
    """A frame with one struct column per alias, and the fields of each."""

    frame: DataFrame
    fields: dict[str, T.StructType]

    @classmethod
    def of(cls, alias: str, frame: DataFrame) -> Side:
        """The side that a user's frame makes under `alias`, made once for all questions about it."""
        known = _SIDES.setdefault(frame, {})
        if alias not in known:
            columns = ", ".join(map(quoted, frame.columns))
            known[alias] = cls(frame.selectExpr(f"struct({columns}) AS {quoted(alias)}"), {alias: frame.schema})
        return known[alias]

    @property
    def payload(self) -> list[tuple[str, T.StructField]]:
        """All fields of all aliases, in order."""
        return [(alias, field) for alias, struct in self.fields.items() for field in struct.fields]

    def payload_columns(self, prefix: str = POINT_PAYLOAD) -> list[str]:
        """The payload as flat columns c0, c1 ..., in the types in which it travels.

        Text, as all columns that the stages read: a Column is several calls into the JVM, a text is none.
        """
        return [
            f"{carried(f'{quoted(alias)}.{quoted(field.name)}', field.dataType)} AS {prefix}{number}"
            for number, (alias, field) in enumerate(self.payload)
        ]

    def arrow_types(self) -> tuple[pa.DataType, ...]:
        """The payload's Arrow types, as Spark sends and expects them."""
        return tuple(arrow_type(field.dataType) for _, field in self.payload)

    def width(self) -> int:
        """About how many bytes a row takes; strings and nested values are guessed, since only rows could tell."""
        return width(self.arrow_types())

    def structs(self, prefix: str, *, present: str | None = None) -> list[str]:
        """The inverse of :meth:`payload_columns`: one struct column per alias, NULL where not `present`."""
        columns = []
        at = 0
        for alias, struct in self.fields.items():
            parts = []
            for field in struct.fields:
                parts.append(f"{prefix}{at} AS {quoted(field.name)}")
                at += 1
            row = f"struct({', '.join(parts)})"
            columns.append(f"{row if present is None else f'CASE WHEN {present} THEN {row} END'} AS {quoted(alias)}")
        return columns

    def shape(self, prefix: str, *, present: str | None = None) -> list[Nested]:
        """What :meth:`structs` makes, for a stage that makes it before its rows leave Python."""
        shapes = []
        at = 0
        for alias, struct in self.fields.items():
            names = struct.fieldNames()
            shapes.append(Nested(alias, tuple((name, f"{prefix}{at + n}") for n, name in enumerate(names)), present))
            at += len(names)
        return shapes

    def missing(self) -> list[Column]:
        """One NULL struct per alias."""
        return [F.lit(None).cast(struct).alias(alias) for alias, struct in self.fields.items()]


_SIDES: WeakKeyDictionary[DataFrame, dict[str, Side]] = WeakKeyDictionary()
"""Sides of the frames that are alive: Spark takes some milliseconds to analyse each."""


def with_structs(rows: DataFrame, structs: Sequence[str], name: str, columns: Sequence[str] = ()) -> DataFrame:
    """Flat rows as Spark's conditions see them: the inputs as structs, and all or some columns in another, `name`.

    An alias may be called c0 or R, as our own columns are.  None contains the # with which `name` begins.
    """
    kept = ", ".join(map(quoted, columns or rows.columns))
    return rows.selectExpr(*structs, f"struct({kept}) AS {quoted(name)}")


def filtered_sides(frames: Mapping[str, DataFrame], filters: Sequence[tuple[str, str]]) -> dict[str, Side]:
    """Inputs in struct form, without the rows that a condition on one input drops: (alias, condition)."""
    sides = {}
    for alias, frame in frames.items():
        side = Side.of(alias, frame)
        kept = side.frame
        for sql in (sql for filtered, sql in filters if filtered == alias):
            kept = kept.filter(F.expr(sql))
        sides[alias] = Side(kept, side.fields)
    return sides


def nested_fields(flat: Sequence[T.StructField], shape: Sequence[Nested], *, whole: bool) -> list[T.StructField]:
    """The structs of a shape as Spark's fields, with the types of the flat columns.

    `whole` says that no row of NULLs travels among the others, as the row of the counters does.  Then columns that the
    flat fields declare never NULL stay so, and so do structs that are always present, and Spark does not check them.
    """
    kinds = {field.name: field.dataType for field in flat}
    certain = never_null(flat) if whole else None

    def kind(part: str | Nested) -> T.DataType:
        if isinstance(part, str):
            return kinds[part]
        return T.StructType([field(name, inner) for name, inner in part.fields])

    def field(name: str, part: str | Nested) -> T.StructField:
        return T.StructField(name, kind(part), nullable(part, certain))

    return [field(struct.name, struct) for struct in shape]


def never_null(flat: Sequence[T.StructField]) -> frozenset[str]:
    """The flat columns that are declared to have no NULL."""
    return frozenset(field.name for field in flat if not field.nullable)


_INPUTS = "a mapping from an alias to a Spark DataFrame or the name of a table, such as {'R': r, 'S': s}"
_CONVERSIONS = {
    "pandas": "spark.createDataFrame(frame)",
    "polars": "spark.createDataFrame(frame.to_arrow())",
    "pyarrow": "spark.createDataFrame(table)",
    "duckdb": "spark.createDataFrame(relation.to_arrow_table())",
}
"""How a table of another package becomes a Spark DataFrame, by the package's name."""


def check_inputs(
    inputs: Mapping[str, DataFrame | str] | None, named: Mapping[str, DataFrame | str] | None = None, *, least: int = 2
) -> dict[str, DataFrame]:
    """The inputs as frames, or an error that says what is wrong with them; `named` came as keywords."""
    frames = frames_of(inputs, named, least=least)
    for alias, frame in frames.items():
        _check_columns(alias, frame)
    return frames


def frames_of(
    inputs: Mapping[str, DataFrame | str] | None, named: Mapping[str, DataFrame | str] | None = None, *, least: int = 2
) -> dict[str, DataFrame]:
    """The inputs as frames whose columns nobody has looked at: not all of them need to take part."""
    accepted = _INPUTS
    if named and inputs is not None:
        raise ArgumentError(
            f"inputs are given in a mapping, and {listing(named)} as keywords", accepted="a mapping or keywords"
        )
    if inputs is None and named:
        inputs = named
    if not isinstance(inputs, Mapping):
        raise ArgumentError(
            "the call has no inputs" if inputs is None else f"inputs is a {type(inputs).__name__}",
            accepted=f"{accepted}, or keywords: R=r, S=s",
        )
    if len(inputs) < least:
        raise ArgumentError(f"inputs holds {len(inputs)} input(s); a join needs at least {least}", accepted=accepted)
    frames: dict[str, DataFrame] = {}
    folded: dict[str, str] = {}
    for alias, given in inputs.items():
        if not isinstance(alias, str) or not alias.isidentifier():
            raise ArgumentError(
                f"the alias {alias!r} cannot be written in a condition",
                accepted="a name of letters, digits and underscores that does not begin with a digit",
            )
        if alias.casefold() in folded:
            raise ArgumentError(
                f"the aliases {folded[alias.casefold()]!r} and {alias!r} differ only in case",
                accepted="aliases that differ, since Spark SQL ignores case",
            )
        folded[alias.casefold()] = alias
        frame = _table(alias, given, inputs, keyword=inputs is named) if isinstance(given, str) else given
        if not isinstance(frame, DataFrame):
            raise ArgumentError(
                f"the input {alias!r} is a {type(frame).__name__}", accepted=accepted, hint=_conversion(frame)
            )
        frames[alias] = frame
    return frames


def is_frame(value: object) -> bool:
    """Whether a value is a table, of Spark or of a package that people use with it."""
    return isinstance(value, DataFrame) or _conversion(value) is not None


def _conversion(value: object) -> str | None:
    """A hint for a table of another package; by the name of its module, for nobody has to have the package."""
    package, _, rest = type(value).__module__.partition(".")
    if package == "pyspark" and rest.startswith("pandas"):
        return "a pandas-on-Spark frame becomes a Spark DataFrame with frame.to_spark()"
    if package == "_duckdb":
        package = "duckdb"
    named = type(value).__name__ in ("DataFrame", "LazyFrame", "Table", "RecordBatch", "DuckDBPyRelation")
    if not named or package not in _CONVERSIONS:
        return None
    return f"turn it into a Spark DataFrame first: {_CONVERSIONS[package]}"


def _table(alias: str, name: str, inputs: Mapping[str, object], *, keyword: bool) -> DataFrame:
    """The table or view of that name, in the session of the other inputs or in the active one."""
    sessions = [given.sparkSession for given in inputs.values() if isinstance(given, DataFrame)]
    session = sessions[0] if sessions else session_in_use()
    if session is None:
        raise ArgumentError(
            f"the input {alias!r} is the name {name!r}, and there is no session to look it up in",
            accepted="names of tables and views while a session is active",
            hint="start one with dt.session()",
        )
    try:
        name.encode()  # Half a character would break the connection to the JVM.
        table = session.table(name)
        _ = table.schema  # Spark Connect looks a name up once somebody asks
    except (PySparkException, UnicodeError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        raise UnknownNameError(
            f"the input {alias!r} is {name!r}, and Spark has no such table or view",
            accepted=_INPUTS,
            hint=f"{alias}= is no option, and so it was read as an input" if keyword else reason,
        ) from error
    return table


def check_frame(argument: str, frame: object) -> None:
    """Refuse what is not a DataFrame."""
    if not isinstance(frame, DataFrame):
        raise ArgumentError(f"{argument} is a {type(frame).__name__}", accepted="a Spark DataFrame")


def _check_columns(alias: str, frame: DataFrame) -> None:
    seen: dict[str, str] = {}
    for field in frame.schema.fields:
        if field.name.casefold() in seen:
            raise ArgumentError(
                f"the input {alias!r} has two columns named {field.name!r}",
                accepted="columns whose names differ in more than case",
                hint="rename one with withColumnRenamed before the join",
            )
        seen[field.name.casefold()] = field.name
        try:
            arrow_type(field.dataType)
        except (
            PySparkException,
            ValueError,
        ) as error:  # the latter from Arrow, for arrays and maps without an element type
            raise UnsupportedTypeError(
                f"the column {alias}.{field.name} has the type {field.dataType.simpleString()}, "
                f"which {spark_version()} cannot send as Arrow",
                accepted="any type that PySpark converts to Arrow",
                hint="cast the column, or drop it before the join",
            ) from error


def conjunction(conditions: Sequence[str]) -> Column:
    """All conditions in one; the cast is for NULL as the only one, whose type a filter does not take."""
    return F.expr(" AND ".join(f"({sql})" for sql in conditions)).cast("boolean")


def identity(frames: Mapping[str, DataFrame], join: Mapping[str, str]) -> dict[str, str]:
    """What must stay the same between two runs of a stream on one checkpoint: the join, and the columns it stores."""
    columns = {
        f"columns of {alias}": ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema.fields)
        for alias, frame in frames.items()
    }
    return {**join, **columns}


def same_session(frames: Mapping[str, DataFrame]) -> None:
    """Refuse inputs that belong to different sessions."""
    # Classic sessions of one process share a context and may be mixed, as in foreachBatch, whose frames belong to a
    # session of their own.  Sessions of Spark Connect have nothing in common.
    sessions = {getattr(frame.sparkSession, "session_id", None): alias for alias, frame in frames.items()}
    if len(sessions) > 1:
        raise ArgumentError(
            f"the inputs {listing(sessions.values())} belong to different Spark sessions",
            accepted="inputs of one session",
        )


def field_of(alias: str, frame: DataFrame, name: str, where: str) -> T.StructField:
    """A column of an input by its name, in any case; `where` is the argument that named it."""
    for field in frame.schema.fields:
        if field.name.casefold() == str(name).casefold():
            return field
    raise unknown_column(str(name), alias, frame.columns, where=where)


def shuffle_partitions(frames: Mapping[str, DataFrame]) -> int:
    """How many partitions the session gives a shuffle."""
    session = next(iter(frames.values())).sparkSession
    return int(session.conf.get("spark.sql.shuffle.partitions") or 200)


def is_ansi(frames: Mapping[str, DataFrame]) -> bool:
    """Whether the session follows ANSI SQL, which decides in which type Spark compares some numbers."""
    return _is_on(next(iter(frames.values())), "spark.sql.ansi.enabled")


def is_adaptive(frame: DataFrame) -> bool:
    """Whether the session changes static plans while they run."""
    return _is_on(frame, "spark.sql.adaptive.enabled")


def _is_on(frame: DataFrame, setting: str) -> bool:
    return str(frame.sparkSession.conf.get(setting)).lower() == "true"
