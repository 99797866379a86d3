"""Which projects suit whom?  For each job seeker the projects that no other project beats in skills, money and start.

python examples/bestmatch_projects.py [folder] [--seekers 60]

More common skills are better, and so are a rate further below the budget and a start closer to the day on which the
seeker is free.  Sets of skills of which neither contains the other are incomparable, so several projects may be best.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets import seekers_and_projects


def main(folder: Path, seekers: int) -> None:
    spark = dt.session("projects", conf={"spark.sql.shuffle.partitions": 2})
    people, projects = (spark.createDataFrame(table) for table in seekers_and_projects(seekers, seekers))
    best = dt.bestmatch_join(
        {"seeker": people, "project": projects},
        on=[
            dt.overlap("skills", "needs"),
            dt.least("seeker.rate - project.budget"),
            dt.closest("free_from", "begins", within="30 days"),
        ],
        how="left",
    )
    dt.explain(best)
    target = folder / "suited"
    best.selectExpr(
        "seeker.name",
        "project.title",
        "array_intersect(seeker.skills, project.needs) AS shared",
        "project.budget - seeker.rate AS left_over",
        "datediff(project.begins, seeker.free_from) AS days",
    ).write.mode("overwrite").parquet(str(target))
    found = spark.read.parquet(str(target))
    print(f"{found.count()} pairs for {found.select('name').distinct().count()} people, written to {target}")
    found.orderBy("name", "title").show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--seekers", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.seekers)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.seekers)
