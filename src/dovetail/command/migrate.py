"""``dovetail migrate``: a checkpoint for another number of partitions."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from dovetail.spark.checkpoint_files import CheckpointFiles, local_folder
from dovetail.spark.resume import migrate
from dovetail.spark.runtime.quiet import quiet_session


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
