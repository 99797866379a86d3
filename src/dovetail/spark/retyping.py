"""Columns of rows that are held, as the columns that their input has now: kept, cast to a wider type, or NULL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.changing import refused
from dovetail.conditions.names import quoted
from dovetail.inventory import HeldInput

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


@dataclass(frozen=True)
class Kept:
    """A column of an input, and where it comes from."""

    field: T.StructField
    place: int | None
    """The position in the rows that are held; None for a column that they lack."""
    kind: T.DataType
    """The type that it has there."""

    def expression(self, name: str | None) -> Column:
        """The column, from the one of that name among those that are held."""
        if name is None:
            return F.lit(None).cast(self.field.dataType).alias(self.field.name)
        column = F.col(name)
        return (column if self.kind == self.field.dataType else column.cast(self.field.dataType)).alias(self.field.name)


def kept_columns(held: HeldInput, types: Sequence[str], schema: T.StructType, sql: Sequence[str]) -> list[Kept]:
    """The columns of an input as its held rows get them; refuses those that they cannot have.

    `types` are those of the held columns as Spark spells them, `sql` the conditions of the new join.
    """
    known = {name.casefold(): at for at, name in enumerate(held.columns)}
    kept = []
    for field in schema.fields:
        place = known.get(field.name.casefold())
        if place is None:
            _check_added(held.name, field, sql)
            kept.append(Kept(field, None, field.dataType))
            continue
        now = field.dataType.simpleString()
        if types[place] != now and not widens(types[place], now):
            raise refused(
                f"the column {held.name}.{field.name} was of type {types[place]} and is of type {now}",
                "values that are held may not fit",
            )
        kind = field.dataType if types[place] == now else T.DataType.fromDDL(types[place])
        kept.append(Kept(field, place, kind))
    return kept


def _check_added(alias: str, field: T.StructField, sql: Sequence[str]) -> None:
    """Refuse a new column that rows which are held would have to have."""
    name = f"{quoted(alias)}.{quoted(field.name)}".casefold()
    if any(name in text.casefold() for text in sql):
        raise refused(
            f"the condition compares {alias}.{field.name}", f"rows of {alias} that are held do not have that column"
        )
    if not field.nullable:
        raise refused(f"the column {alias}.{field.name} is new and never NULL", "in rows that are held it is NULL")


def widens(old: str, new: str) -> bool:
    """Whether every value of a type is one of another, so that a cast loses nothing.

    Examples
    --------
    >>> widens("int", "bigint"), widens("int", "double"), widens("bigint", "double"), widens("float", "double")
    (True, True, False, True)
    >>> widens("decimal(10,2)", "decimal(12,2)"), widens("decimal(10,2)", "decimal(11,3)"), widens("int", "string")
    (True, True, False)
    >>> widens("date", "timestamp_ntz"), widens("bigint", "int"), widens("varchar(5)", "string")
    (True, False, True)
    """
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if new == "double":
        return old in ("tinyint", "smallint", "int", "float")
    if new == "float":
        return old in ("tinyint", "smallint")
    if new.startswith("decimal("):
        precision, scale = _digits(new)
        if old in _DIGITS:
            return precision - scale >= _DIGITS[old]
        if old.startswith("decimal("):
            old_precision, old_scale = _digits(old)
            return scale >= old_scale and precision - scale >= old_precision - old_scale
    if new == "string":
        return old.startswith(("varchar(", "char("))
    return (old, new) == ("date", "timestamp_ntz")


def _digits(decimal: str) -> tuple[int, int]:
    precision, scale = decimal.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
