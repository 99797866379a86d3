"""What is compared, as the text of columns: cast to the type of the comparison, hashed, or found among the payload."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as T

from dovetail.columns.layout import KEY, KEY_HASH, Source, key_source
from dovetail.conditions.comparison import Key
from dovetail.conditions.names import quoted
from dovetail.spark.frames import Side


def key_columns(keys: Sequence[Key], prefix: str = KEY, *, only: str | None = None) -> list[str]:
    """Key columns k0, k1 ..., each cast to the type of its comparison; NULL on rows for which `only` does not hold."""
    casts = [f"CAST(({key.sql}) AS {key.ddl})" for key in keys]
    if only is not None:
        casts = [f"CASE WHEN {only} THEN {cast} END" for cast in casts]
    return [f"{cast} AS {prefix}{at}" for at, cast in enumerate(casts)]


def payload_source(side: Side, key: Key) -> Source | None:
    """Where in the payload of a side a key is, if it is there."""
    payload = [(f"{quoted(alias)}.{quoted(field.name)}", ddl_of(field.dataType)) for alias, field in side.payload]
    return key_source(payload, key)


def ddl_of(kind: T.DataType) -> str:
    """A type in the spelling of :class:`~dovetail.conditions.comparison.KeyType`."""
    return kind.simpleString().replace("decimal", "DECIMAL").upper()


def hash_column(keys: Sequence[Key], name: str = KEY_HASH) -> str:
    """The hash of the equality keys; ``-0.0`` and ``0.0`` are equal, so they hash alike."""
    parts = []
    for key in keys:
        sql = f"CAST(({key.sql}) AS {key.ddl})"
        parts.append(f"{sql} + CAST(0 AS {key.ddl})" if key.ddl in ("DOUBLE", "FLOAT") else sql)
    return f"xxhash64({', '.join(parts)}) AS {name}"
