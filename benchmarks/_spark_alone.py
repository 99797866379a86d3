"""Spark's own exact join in a process of its own, one run for each line on standard input.

A JVM that runs one kind of query compiles better code for it, and Spark's default collector suits its joins better
than the one that `dt.session` takes: a peer gets the settings that are best for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

CORES = 2


class SparkAlone:
    """The process, from the other end."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._said()

    def __enter__(self) -> SparkAlone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def join(self) -> int:
        """The join once; it does not count its rows."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        self._said()
        return -1

    def _said(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "done\n":
            raise SystemExit("Spark's own join failed")


def main(folder: Path) -> None:
    """Join the two Parquet files of a folder on ``k`` for every line."""
    from pyspark.sql import functions as F

    import dovetail as dt

    spark = dt.session(
        master=f"local[{CORES}]",
        driver_memory="3g",
        conf={"spark.sql.shuffle.partitions": 2 * CORES, "spark.driver.defaultJavaOptions": "-XX:+UseG1GC"},
    )
    print("done", flush=True)
    for _ in sys.stdin:
        r, s = (spark.read.parquet(str(folder / f"{side}.parquet")).alias(side.upper()) for side in "rs")
        r.join(s, F.expr("R.k = S.k")).write.format("noop").mode("overwrite").save()
        print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
