"""Joined rows as pairs of row numbers."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def numbers(joined: DataFrame) -> DataFrame:
    """The joined rows as pairs of row numbers; a missing struct and a struct of NULLs are told apart."""
    gone = F.lit(None).cast("int")
    return joined.select(
        *(
            F.when(F.col(a).isNotNull(), F.coalesce(F.col(f"{a}.id"), F.lit(-1))) if a in joined.columns else gone
            for a in "RS"
        )
    )


def several(joins: dict[str, DataFrame]) -> dict[str, Counter]:
    """The pairs of many joins from one action, which is far quicker than an action for each."""
    found: dict[str, Counter] = {name: Counter() for name in joins}
    union = None
    for name, joined in joins.items():
        part = numbers(joined).toDF("r", "s").select(F.lit(name).alias("name"), "r", "s")
        union = part if union is None else union.unionAll(part)
    for name, r, s in union.collect():
        found[name][r, s] += 1
    return found
