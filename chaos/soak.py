"""Streams at a constant rate for as long as you like: do memory, state and files stay flat?

Six queries run at once on a local Spark: a window join, an as-of join, a theta join in windows of time, a window join
that sheds, a best-match join and an approximate one.  The run samples the private memory of each process, the JVM's
heap after a collection, open files and sockets, the rows and bytes that the joins hold, the files of the checkpoints,
and how long micro-batches take.  Flat means: the robust slope (Theil and Sen) over the second half of the run is not
above zero with confidence, or adds up to less than a small part of the median.  Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from scipy.stats import theilslopes

import dovetail as dt
from chaos.processes import find
from dovetail.spark.runtime.quiet import quiet_session

MIB = 1 << 20
HEAP = "640m"
SAMPLES = 120
Values = npt.NDArray[np.float64]
SERIES = {
    "driver JVM": "MiB", "live heap of it": "MiB", "Python driver": "MiB", "Python workers": "MiB",
    "rows held": "rows", "bytes held": "MiB", "open files": "files", "checkpoint files": "files", "micro-batch": "s",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """One series: its median over the second half, and by how much it grew there."""

    name: str
    unit: str
    median: float
    growth: float
    low: float
    high: float
    """Growth over the second half, and the ends of its 95 % interval, in the unit."""
    flat: bool


@dataclass
class Soak:
    """The samples of a run."""

    seconds: list[float] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SERIES})
    rows: int = 0
    batches: int = 0

    def judged(self, tolerance: float) -> list[Judged]:
        """Every series, judged by its second half; growth of up to `tolerance` of the median counts as none."""
        return [judge(name, self.seconds, self.values[name], tolerance) for name in SERIES]


def judge(name: str, seconds: list[float], values: list[float], tolerance: float) -> Judged:
    """Whether a series is flat over its second half.

    Examples
    --------
    >>> times = [float(at) for at in range(40)]
    >>> judge("driver JVM", times, [100.0 + (at % 3) for at in range(40)], 0.05).flat
    True
    >>> judge("driver JVM", times, [100.0 + at for at in range(40)], 0.05).flat
    False
    >>> judge("driver JVM", times, [100.0 + at + 9 * (at % 4) for at in range(40)], 0.05).flat
    False
    >>> judge("checkpoint files", times, [100.0 + 2 * abs((at + 10) % 40 - 20) for at in range(40)], 0.05).flat
    True
    """
    half = len(seconds) // 2
    x, y = np.array(seconds[half:]), np.array(values[half:])
    slope, at_zero, low, high = map(float, theilslopes(y, x))
    wider = _widening(y - at_zero - slope * x)
    low, high = slope - wider * (slope - low), slope + wider * (high - slope)
    span, median = float(x[-1] - x[0]), float(np.median(y))
    growth = slope * span
    flat = low <= 0 or growth <= tolerance * median
    return Judged(name, SERIES[name], median, growth, low * span, high * span, flat)


def _widening(residuals: Values) -> float:
    """By how much the interval of a slope widens because samples resemble those before them.

    Theil and Sen take samples to be independent.  So many with this correlation from one to the next (r) say as much as
    (1 - r) / (1 + r) times as many that are: of files that are deleted every ten minutes, sixty samples are not many.
    """
    spread = float(residuals @ residuals)
    r = float(residuals[1:] @ residuals[:-1]) / spread if spread else 0.0
    r = min(max(r, 0.0), 0.99)
    return float(np.sqrt((1 + r) / (1 - r)))


def soak(minutes: float, rate: int, place: Path, tick: Callable[[float], None]) -> Soak:
    """Run the queries for so long, each input at `rate` rows a second; `tick` hears of the seconds that have passed."""
    # The heap is taken whole at the start, so that what grows in the JVM is not the heap getting used to its size.
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": f"-Xms{HEAP} -XX:+AlwaysPreTouch",
        "spark.sql.shuffle.partitions": 2,
        # Spark remembers its last 1000 jobs, stages and executions, and the heap grows until it has them: with fewer
        # that is over before the second half, and what still grows is worth a look.
        "spark.ui.retainedJobs": 20,
        "spark.ui.retainedStages": 20,
        "spark.ui.retainedTasks": 100,
        "spark.sql.ui.retainedExecutions": 10,
        "spark.sql.streaming.numRecentProgressUpdates": 10,
        # As many micro-batches can be gone back to; until there are as many, files of checkpoints only come.
        "spark.sql.streaming.minBatchesToRetain": 10,
        "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    }
    found = Soak()
    with quiet_session("soak", place / "spark.log", conf=conf) as spark:
        queries = [_start(frame, place / str(at)) for at, frame in enumerate(_joins(spark, rate))]
        try:
            _await_first_rows(queries)
            began, every = time.monotonic(), max(1.0, minutes * 60 / SAMPLES)
            while (passed := time.monotonic() - began) < minutes * 60:
                time.sleep(every)
                tick(passed)
                _sample(spark, queries, found, passed, place)
            found.batches = sum(int(report["batchId"]) + 1 for query in queries if (report := query.lastProgress))
            found.rows = round(rate * minutes * 60) * 2 * len(queries)
            for error in filter(None, [query.exception() for query in queries]):
                raise error
        finally:
            for query in queries:
                query.stop()
    return found


def _joins(spark: SparkSession, rate: int) -> Iterator[DataFrame]:
    def stream(number: int) -> DataFrame:
        rows = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 1).load()
        made = (f"value * {7 + 4 * number} % 997 AS k", f"value * {13 + number} % 1009 AS v", "timestamp AS ts")
        return rows.selectExpr("value AS id", *made).withWatermark("ts", "2 seconds")

    def streams() -> dict[str, DataFrame]:
        return {"A": stream(0), "B": stream(1)}

    yield dt.window_join(streams(), on="A.k = B.k", time="ts", within="10 seconds", partitions=2)
    yield dt.asof_join(streams(), by="k", time="ts", within="10 seconds", how="left")
    yield dt.theta_join(streams(), on="ABS(A.v - B.v) <= 1", window="5 seconds", time="ts", how="left")
    shed = dt.Harvest(throttle=0.5, basic_window="1 second", seed=5)
    yield dt.window_join(
        streams(), on="ABS(A.v - B.v) <= 2", time="ts", within="5 seconds", partitions=1, shed=shed
    )  # fmt: skip
    criteria = [dt.closest("ts", within="2 seconds"), dt.closest("v", within=20)]
    yield dt.bestmatch_join(streams(), on=criteria, by="k", how="left")
    yield dt.approx_join(streams(), on="A.k = B.k", memory=20_000, seed=8, partitions=2)


def _start(frame: DataFrame, place: Path) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(place))
    return writer.trigger(processingTime="10 seconds").start()


def _await_first_rows(queries: list[StreamingQuery]) -> None:
    """The clock starts once every join holds rows: before that Spark and Python are still starting."""
    patience = time.monotonic() + 300
    while not all(_held(query)[0] for query in queries):
        if time.monotonic() > patience or not all(query.isActive for query in queries):
            raise TimeoutError("the queries hold no rows yet, or have ended")
        time.sleep(0.5)


def _sample(spark: SparkSession, queries: list[StreamingQuery], found: Soak, passed: float, place: Path) -> None:
    own = psutil.Process()
    driver = find(own.pid, "driver")
    workers = find(own.pid, "worker")
    held = [_held(query) for query in queries]
    if not driver:
        return
    found.seconds.append(passed)
    values = {
        "driver JVM": _private(driver[0]),
        "live heap of it": _live_heap(spark),
        "Python driver": _private(own.pid),
        "Python workers": sum(_private(pid) for pid in workers),
        "rows held": sum(rows for rows, _ in held),
        "bytes held": sum(size for _, size in held) / MIB,
        "open files": sum(_open_files(pid) for pid in (own.pid, driver[0], *workers)),
        "checkpoint files": sum(len(files) for at in range(len(queries)) for _, _, files in os.walk(place / str(at))),
        "micro-batch": statistics.mean(map(_duration, queries)),
    }
    for name, value in values.items():
        found.values[name].append(value)


def _private(pid: int) -> float:
    """Memory that a process has written and shares with no other, in MiB: forked workers share much with their daemon.

    Pages of libraries are left out: they count as one process's own as soon as no other program uses the library.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Swap:"))) / 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def _open_files(pid: int) -> int:
    """Files, sockets and pipes that a process has open."""
    try:
        return int(psutil.Process(pid).num_fds())
    except psutil.NoSuchProcess:
        return 0


def _duration(query: StreamingQuery) -> float:
    """Seconds of a usual one of the last micro-batches that had rows."""
    reports = [report for report in query.recentProgress if report["numInputRows"]]
    return statistics.median(report["durationMs"]["triggerExecution"] for report in reports) / 1000 if reports else 0.0


def _live_heap(spark: SparkSession) -> float:
    """What is left of the heap after a collection.  A measuring tool may ask the JVM; the library never does."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.gc()
    return float(jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()) / MIB


def _held(query: StreamingQuery) -> tuple[int, int]:
    """Rows and bytes that a join held after the last micro-batch that had rows."""
    for report in reversed(query.recentProgress):
        counts = next((one.asDict() for one in report["observedMetrics"].values()), {})
        if counts.get("rows"):
            rows = [value for name, value in counts.items() if name.startswith("held_rows")]
            size = [value for name, value in counts.items() if name.startswith(("held_bytes", "state_bytes"))]
            return sum(rows), sum(size)
    return 0, 0


def draw(found: Soak, file: Path) -> None:
    """The series over time, as a picture."""
    panels = (
        ("driver JVM", "live heap of it"), ("Python driver", "Python workers"), ("rows held",),
        ("open files", "checkpoint files"), ("micro-batch",),
    )  # fmt: skip
    drawn = Figure(figsize=(8, 10), layout="constrained")
    axes = drawn.subplots(len(panels), 1, sharex=True)
    for axis, names in zip(axes, panels, strict=True):
        for name in names:
            axis.plot(np.array(found.seconds) / 60, found.values[name], label=name)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(SERIES[names[0]])
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    drawn.savefig(file, dpi=110)
