"""``dovetail migrate``: a checkpoint for another number of partitions, or for a job whose join has changed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from dovetail.jobs.build import BuiltJob
from dovetail.jobs.job import Job
from dovetail.spark.checkpoint_files import CheckpointFiles, local_folder
from dovetail.spark.resume import migrate, resume
from dovetail.spark.runtime.quiet import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(console: Console, old: str, new: str, partitions: int, log: Path) -> None:
    """Make the new checkpoint, and say how to go on from it."""
    # What files alone tell is told before Spark starts.
    batch = CheckpointFiles(local_folder(old, "OLD")).check()
    local_folder(new, "NEW")
    with quiet_session("dovetail-migrate", log) as spark:
        began = time.monotonic()
        migrate(spark, old, new, partitions)
        took = time.monotonic() - began
    said = f"{new}: as {old} after micro-batch {batch}, in {partitions} partitions ({took:.0f} s)"
    console.print(said, soft_wrap=True, highlight=False)
    console.print(
        f"start the query there, a window join with partitions={partitions}; never start both", highlight=False
    )


def change(console: Console, old: str, new: str, job: Job, partitions: int | None, log: Path) -> None:
    """Make the new checkpoint for the join of a job, and say what has changed and since when results are complete."""
    CheckpointFiles(local_folder(old, "OLD")).check()
    local_folder(new, "NEW")
    with quiet_session("dovetail-migrate", log, conf=job.session.conf) as spark:
        changed(console, spark, old, new, job, partitions)


def changed(console: Console, spark: SparkSession, old: str, new: str, job: Job, partitions: int | None) -> None:
    """What :func:`change` does, in a session."""
    said = resume(BuiltJob(job, spark).joined, old, new, partitions=partitions)
    for text in (f"{new}: made from {old}", str(said), f"let the job {job.name} start there; never start both"):
        console.print(text, soft_wrap=True, highlight=False, markup=False)
