"""Which meetings does a repair disturb?  An interval overlap as a left join, written to Parquet.

python examples/theta_bookings.py [folder] [--meetings 2000]

A meeting that no repair disturbs stays in the result, with NULL as its repair.  So does a meeting that has no times
yet: NULL overlaps nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets import meetings_and_repairs

OVERLAP = "meeting.room = repair.room AND meeting.start < repair.end AND repair.start < meeting.end"


def main(folder: Path, meetings: int) -> None:
    spark = dt.session("bookings")
    tables = meetings_and_repairs(meetings, max(1, meetings // 20), rooms=max(1, meetings // 50))
    planned, repairs = (spark.createDataFrame(table) for table in tables)

    disturbed = dt.theta_join({"meeting": planned, "repair": repairs}, on=OVERLAP, how="left")
    dt.explain(disturbed)

    flat = disturbed.selectExpr(
        "meeting.id AS meeting",
        "meeting.room",
        "meeting.start",
        "meeting.end",
        "repair.id AS repair",
        # greatest() and least() skip NULLs, so without a repair they would give the meeting's own times.
        "if(repair IS NULL, NULL, greatest(meeting.start, repair.start)) AS disturbed_from",
        "if(repair IS NULL, NULL, least(meeting.end, repair.end)) AS disturbed_to",
    )
    target = folder / "disturbed_meetings"
    flat.write.mode("overwrite").parquet(str(target))

    counts = dt.metrics(disturbed)
    print(f"{counts['results']} rows, {counts['comparisons']} pairs compared one by one, written to {target}")
    spark.read.parquet(str(target)).where("repair IS NOT NULL").orderBy("disturbed_from", "meeting").show(5)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--meetings", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.meetings)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.meetings)
