"""What is compared, as columns: cast to the type of the comparison, hashed, or found among the payload."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.columns.layout import KEY, KEY_HASH, Source
from dovetail.conditions.comparison import Key
from dovetail.conditions.names import quoted
from dovetail.spark.frames import Side


def key_columns(keys: Sequence[Key], prefix: str = KEY, *, only: str | None = None) -> list[Column]:
    """Key columns k0, k1 ..., each cast to the type of its comparison; NULL on rows for which `only` does not hold."""
    casts = [f"CAST(({key.sql}) AS {key.ddl})" for key in keys]
    if only is not None:
        casts = [f"CASE WHEN {only} THEN {cast} END" for cast in casts]
    return [F.expr(f"{cast} AS {prefix}{at}") for at, cast in enumerate(casts)]


_MOVED = re.compile(r"(?P<column>`.+`)(?: ?(?P<sign>[+-]) ?(?P<number>\d+(?:\.\d*)?|\.\d+))?")


def payload_source(side: Side, key: Key) -> Source | None:
    """Where in the payload a key is, if it is there: a bare column, or a double moved by a number.

    Adding a number to a double gives the same bits in NumPy as in Spark, and saves the way through Arrow.
    """
    moved = _MOVED.fullmatch(key.sql)
    if moved is None:
        return None
    for at, (alias, field) in enumerate(side.payload):
        if moved["column"] == f"{quoted(alias)}.{quoted(field.name)}":
            if moved["number"] is None:
                return Source(at) if ddl_of(field.dataType) == key.ddl else None
            if key.ddl == "DOUBLE" and isinstance(field.dataType, T.DoubleType):
                shift = float(moved["number"])
                return Source(at, -shift if moved["sign"] == "-" else shift)
    return None


def ddl_of(kind: T.DataType) -> str:
    """A type in the spelling of :class:`~dovetail.conditions.comparison.KeyType`."""
    return kind.simpleString().replace("decimal", "DECIMAL").upper()


def hash_column(keys: Sequence[Key], name: str = KEY_HASH) -> Column:
    """The hash of the equality keys; ``-0.0`` and ``0.0`` are equal, so they hash alike."""
    parts = []
    for key in keys:
        sql = f"CAST(({key.sql}) AS {key.ddl})"
        parts.append(f"{sql} + CAST(0 AS {key.ddl})" if key.ddl in ("DOUBLE", "FLOAT") else sql)
    return F.expr(f"xxhash64({', '.join(parts)}) AS {name}")
