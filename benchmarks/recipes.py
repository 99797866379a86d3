"""The joins of docs/recipes at a size where they matter, beside the same join written for Spark alone.

    python benchmarks/recipes.py [--only ip,genes] [--write]

Both get the same Parquet files, and their results go to the no-op sink.  `--write` puts the table into recipes.md.  The
recipe on genomic intervals needs exons.parquet and fbrain.parquet in the folder that DOVETAIL_DATA names.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from _timing import console, race

import dovetail as dt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPORT = Path(__file__).with_suffix(".md")
DATA = Path(os.environ.get("DOVETAIL_DATA", "../shared/data"))


@dataclass(frozen=True)
class Recipe:
    """Two inputs as SQL or files, and the join by us and by Spark alone."""

    what: str
    left: str
    right: str
    ours: Callable[[DataFrame, DataFrame], DataFrame]
    theirs: str
    turns: int = 3
    """Runs that count; with one alone, what Spark finds is not counted besides."""


def _table(spark: SparkSession, text: str, path: Path) -> DataFrame:
    """The rows of a query as a table of four files, or of a file as it is."""
    if text.endswith(".parquet"):
        return spark.read.parquet(text)
    spark.sql(text).repartition(4).write.parquet(str(path))
    return spark.read.parquet(str(path))


_IP = "r.ip BETWEEN n.first AND n.last"
_SESSION = "e.user = s.user AND e.ts >= s.start AND e.ts < s.end"
_GENES = "e.contig = r.contig AND e.pos_start < r.pos_end AND r.pos_start < e.pos_end"
_NEAR = (
    "ABS(a.amount - b.amount) <= 0.02 AND ABS(a.day - b.day) <= 2 AND a.id < b.id AND levenshtein(a.name, b.name) <= 2"
)

RECIPES = {
    "ip": Recipe(
        "IP ranges: 100,000 addresses, 10,000 ranges",
        "SELECT id, CAST(rand(1) * 4294967296 AS BIGINT) AS ip FROM range(100000)",
        "SELECT id, id * 429496 AS first, id * 429496 + 300000 AS last FROM range(10000)",
        lambda left, right: dt.theta_join(r=left, n=right, on=_IP),
        f"SELECT * FROM l r JOIN r n ON {_IP}",
    ),
    "sessions": Recipe(
        "Events in sessions: 400,000 events, 40,000 sessions, 40 users",
        "SELECT id, id % 40 AS user, CAST(rand(1) * 40000000 AS BIGINT) AS ts FROM range(400000)",
        "SELECT id, id % 40 AS user, id * 1000 AS start, id * 1000 + 30000 AS end FROM range(40000)",
        lambda left, right: dt.theta_join(e=left, s=right, on=_SESSION),
        f"SELECT * FROM l e JOIN r s ON {_SESSION}",
    ),
    "genes": Recipe(
        "Genomic intervals: 438,694 exons, 198,621 peaks",
        str(DATA / "exons.parquet"),
        str(DATA / "fbrain.parquet"),
        lambda left, right: dt.theta_join(e=left, r=right, on=_GENES),
        f"SELECT * FROM l e JOIN r ON {_GENES}",
        turns=1,
    ),
    "duplicates": Recipe(
        "Fuzzy duplicates: 40,000 payments with themselves",
        "SELECT id, id % 365 AS day, ROUND(rand(3) * 5000, 2) AS amount, concat('payee ', id % 700) AS name "
        "FROM range(40000)",
        "SELECT id, id % 365 AS day, ROUND(rand(3) * 5000, 2) AS amount, concat('payee ', id % 700) AS name "
        "FROM range(40000)",
        lambda left, right: dt.theta_join(a=left, b=left, on=_NEAR),
        f"SELECT * FROM l a JOIN l b ON {_NEAR}",
    ),
    "best": Recipe(
        "One best row: 200,000 parcels, 2,000 vans, 10 depots",
        "SELECT id, id % 10 AS depot, CAST(rand(1) * 1000 AS INT) AS kilos FROM range(200000)",
        "SELECT id AS van, id % 10 AS depot, CAST(rand(2) * 1000 AS INT) AS capacity FROM range(2000)",
        lambda left, right: dt.asof_join(
            p=left, v=right, by="depot", time={"p": "kilos", "v": "capacity"}, direction="forward", ties="van"
        ),
        "SELECT * FROM (SELECT p.*, v.van, v.capacity, "
        "row_number() OVER (PARTITION BY p.id ORDER BY v.capacity, v.van DESC) AS nr "
        "FROM l p JOIN r v ON p.depot = v.depot AND v.capacity >= p.kilos) WHERE nr = 1",
    ),
}


def measure(spark: SparkSession, recipe: Recipe, folder: Path) -> str:
    """A row of the table: the best seconds of both, and what came out."""
    left, right = _table(spark, recipe.left, folder / "l"), _table(spark, recipe.right, folder / "r")
    left.createOrReplaceTempView("l")
    right.createOrReplaceTempView("r")

    def into_nothing(frame: DataFrame) -> int:
        frame.write.format("noop").mode("overwrite").save()
        return 0

    console.print(recipe.what)
    found = recipe.ours(left, right).count()
    if recipe.turns > 1:
        assert spark.sql(recipe.theirs).count() == found
    engines = {
        "dovetail": (lambda: into_nothing(recipe.ours(left, right)), 2),
        "spark": (lambda: into_nothing(spark.sql(recipe.theirs)), 0),
    }
    best, _ = race(engines, times=recipe.turns)
    ratio = best["spark"] / best["dovetail"]
    return f"| {recipe.what} | {found:,} | {best['dovetail']:.2f} s | {best['spark']:.2f} s | {ratio:.1f} x |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(RECIPES))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    spark = dt.session("recipes", master="local[2]", conf={"spark.ui.showConsoleProgress": False})
    rows = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(spark, RECIPES[name], Path(folder)))
            console.print(rows[-1])
    head = "| recipe | rows out | Dovetail | Spark alone | Spark / Dovetail |\n|---|---|---|---|---|\n"
    text = f"""# The recipes, measured

`python benchmarks/recipes.py --write`, 2 cores, `local[2]`, Spark {spark.version}: Parquet in, results discarded, best
of three runs in turn, after a warm-up; of the genomic intervals one run. The machine is shared and was busy: compare
only the figures of one row.

{head}{chr(10).join(rows)}
"""
    if options.write:
        REPORT.write_text(text, encoding="utf-8")
    console.print(text)
    spark.stop()


if __name__ == "__main__":
    main()
