"""Types that PySpark does not convert to Arrow, and the types in which their values travel.

A column that a join only carries may have any type.  Months and years of an interval travel as a number, texts of
declared length as texts, a calendar interval as its text, and what has no values as booleans; inside structs, arrays
and maps, too.  :func:`arrowed` puts values into that form before they go to Python, :func:`restored` gives them their
types back.  Frames of other types pass both as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dovetail.conditions.names import quoted
from dovetail.spark.runtime import versions


def arrow_type(kind: T.DataType) -> pa.DataType:
    """The Arrow type in which values of a type reach Python, and in which Spark expects them back."""
    return versions.arrow_type(carrier(kind))


def carrier(kind: T.DataType) -> T.DataType:
    """The type in which values travel: the type itself, unless Arrow has none for it.

    Parts of it may be NULL, whatever the type says: Arrow converts no list of structs with fields that may not.

    Examples
    --------
    >>> carrier(T.ArrayType(T.YearMonthIntervalType())).simpleString()
    'array<int>'
    >>> carrier(T.LongType())
    LongType()
    """
    if isinstance(kind, T.YearMonthIntervalType):
        return T.IntegerType()
    if isinstance(kind, T.CalendarIntervalType | T.CharType | T.VarcharType):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, T.NullType):
            return T.ArrayType(T.BooleanType())
        element = carrier(kind.elementType)
        return kind if element is kind.elementType else T.ArrayType(element)
    if isinstance(kind, T.MapType):
        if isinstance(kind.keyType, T.NullType):
            # No key is NULL, so such a map is empty where it is not NULL itself.
            return T.BooleanType()
        empty = isinstance(kind.valueType, T.NullType)
        key, value = carrier(kind.keyType), T.BooleanType() if empty else carrier(kind.valueType)
        same = key is kind.keyType and value is kind.valueType
        return kind if same else T.MapType(key, value)
    if isinstance(kind, T.StructType):
        fields = carried_fields(kind.fields)
        names = _names(kind)
        if names == kind.names and all(a is b for a, b in zip(fields, kind.fields, strict=True)):
            return kind
        renamed = zip(names, fields, strict=True)
        return T.StructType([T.StructField(name, field.dataType) for name, field in renamed])
    return kind


def carried_fields(fields: Sequence[T.StructField]) -> list[T.StructField]:
    """Fields with the types in which their values travel."""
    carried = []
    for field in fields:
        kind = carrier(field.dataType)
        carried.append(field if kind is field.dataType else T.StructField(field.name, kind, field.nullable))
    return carried


def carried(sql: str, kind: T.DataType, *, nullable: bool = True, depth: int = 0) -> str:
    """An expression of a type, in the form in which its values travel.

    Examples
    --------
    >>> carried("`a`", T.ArrayType(T.YearMonthIntervalType()))
    'transform(`a`, x0 -> CAST(CAST(x0 AS INTERVAL MONTH) AS INT))'
    """
    if carrier(kind) is kind:
        return sql
    if isinstance(kind, T.YearMonthIntervalType):
        return f"CAST(CAST({sql} AS INTERVAL MONTH) AS INT)"
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, T.NullType):
            return f"CAST({sql} AS ARRAY<BOOLEAN>)"
        return _elements(sql, kind, carried, depth)
    if isinstance(kind, T.MapType):
        if isinstance(kind.keyType, T.NullType):
            return f"CASE WHEN {sql} IS NOT NULL THEN TRUE END"
        empty = "CAST(NULL AS BOOLEAN)" if isinstance(kind.valueType, T.NullType) else None
        return _entries(sql, kind, carried, depth, value=empty)
    if isinstance(kind, T.StructType):
        names = _names(kind)
        if names != kind.names:
            sql = f"CAST({sql} AS {_struct_ddl(names, kind)})"
        return _struct(sql, names, names, kind, carried, depth, nullable=nullable)
    return f"CAST({sql} AS STRING)"


def original(sql: str, kind: T.DataType, *, nullable: bool = True, depth: int = 0) -> str:
    """The inverse of :func:`carried`.

    Examples
    --------
    >>> original("`a`", T.ArrayType(T.YearMonthIntervalType()))
    'transform(`a`, x0 -> CAST(CAST(x0 AS INTERVAL MONTH) AS interval year to month))'
    """
    if carrier(kind) is kind:
        return sql
    if isinstance(kind, T.YearMonthIntervalType):
        return f"CAST(CAST({sql} AS INTERVAL MONTH) AS {kind.simpleString()})"
    if isinstance(kind, T.ArrayType):
        if isinstance(kind.elementType, T.NullType):
            return f"transform({sql}, x{depth} -> NULL)"
        return _elements(sql, kind, original, depth)
    if isinstance(kind, T.MapType):
        absent = "NULL" if isinstance(kind.valueType, T.NullType) else None
        if isinstance(kind.keyType, T.NullType):
            value = absent or f"CAST(NULL AS {_ddl(kind.valueType)})"
            return f"CASE WHEN {sql} THEN transform_values(map(), (k, v) -> {value}) END"
        return _entries(sql, kind, original, depth, value=absent)
    if isinstance(kind, T.StructType):
        return _struct(sql, _names(kind), kind.names, kind, original, depth, nullable=nullable)
    return f"CAST({sql} AS {kind.simpleString()})"


def json_text(sql: str, kind: T.DataType) -> str:
    """A value as JSON, whatever its type; NULL for NULL."""
    return f"CASE WHEN {sql} IS NOT NULL THEN to_json(struct({_jsonable(sql, kind)} AS {quoted('value')})) END"


def _jsonable(sql: str, kind: T.DataType, *, nullable: bool = True, depth: int = 0) -> str:
    """A value without points and lines, which JSON has no text for, and without what cannot travel."""
    if kind.typeName() in ("geometry", "geography"):
        return f"hex(st_asbinary({sql}))"
    if isinstance(kind, T.ArrayType):
        return _elements(sql, kind, _jsonable, depth)
    if isinstance(kind, T.MapType) and not isinstance(kind.keyType, T.NullType):
        return _entries(sql, kind, _jsonable, depth)
    if isinstance(kind, T.StructType) and _names(kind) == kind.names:
        return _struct(sql, kind.names, kind.names, kind, _jsonable, depth, nullable=nullable)
    return carried(sql, kind, nullable=nullable, depth=depth)


class _Form(Protocol):
    def __call__(self, sql: str, kind: T.DataType, *, nullable: bool = True, depth: int = 0) -> str: ...


def _elements(sql: str, kind: T.ArrayType, form: _Form, depth: int) -> str:
    name = f"x{depth}"
    return f"transform({sql}, {name} -> {form(name, kind.elementType, nullable=kind.containsNull, depth=depth + 1)})"


def _entries(sql: str, kind: T.MapType, form: _Form, depth: int, *, value: str | None = None) -> str:
    """A map with other keys and values; its keys stay apart, since no two values travel in one form."""
    keys, values = f"k{depth}", f"v{depth}"
    key = form(keys, kind.keyType, nullable=False, depth=depth + 1)
    value = value or form(values, kind.valueType, nullable=kind.valueContainsNull, depth=depth + 1)
    changed = sql if value == values else f"transform_values({sql}, ({keys}, {values}) -> {value})"
    return changed if key == keys else f"transform_keys({changed}, ({keys}, {values}) -> {key})"


def _struct(
    sql: str, given: list[str], wanted: list[str], kind: T.StructType, form: _Form, depth: int, *, nullable: bool
) -> str:
    whole = sql if sql.startswith("`") or sql.isidentifier() else f"({sql})"
    parts = []
    for name, called, field in zip(given, wanted, kind.fields, strict=True):
        value = form(f"{whole}.{quoted(name)}", field.dataType, nullable=field.nullable, depth=depth)
        escaped = called.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f"'{escaped}', {value}")
    made = f"named_struct({', '.join(parts)})"
    return f"CASE WHEN {sql} IS NOT NULL THEN {made} END" if nullable else made


def _names(kind: T.StructType) -> list[str]:
    """The names of the fields, or others where names do not tell fields apart: Spark sends no such struct."""
    apart = len({name.casefold() for name in kind.names}) == len(kind.names)
    return kind.names if apart else [f"f{at}" for at in range(len(kind.names))]


def _struct_ddl(names: list[str], kind: T.StructType) -> str:
    fields = zip(names, kind.fields, strict=True)
    return f"STRUCT<{', '.join(f'{quoted(name)}: {_ddl(field.dataType)}' for name, field in fields)}>"


def _ddl(kind: T.DataType) -> str:
    """A type as SQL spells it, whatever its fields are called."""
    if isinstance(kind, T.StructType):
        return _struct_ddl(kind.names, kind)
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()


def is_carried(fields: Sequence[T.StructField]) -> bool:
    """Whether a value of some field travels in another type."""
    return any(carrier(field.dataType) is not field.dataType for field in fields)


def arrowed(frame: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    """A frame with these of its columns in the form in which they travel."""
    return _changed(frame, fields, carried)


def restored(frame: DataFrame, fields: Sequence[T.StructField]) -> DataFrame:
    """The frame that came back from Python in the types of :func:`carried_fields`, in those of `fields`."""
    return _changed(frame, fields, original)


def _changed(frame: DataFrame, fields: Sequence[T.StructField], form: _Form) -> DataFrame:
    if not is_carried(fields):
        return frame
    kinds = {field.name: field for field in fields}
    columns = []
    for name in frame.columns:
        column, field = quoted(name), kinds.get(name)
        sql = column if field is None else form(column, field.dataType, nullable=field.nullable)
        columns.append(f"{sql} AS {column}")
    return frame.selectExpr(*columns)
