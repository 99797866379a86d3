"""A window join on Spark under overload: exact, harvesting and dropping rows, on the same rate-controlled streams.

    python benchmarks/shedding.py [--rate 0] [--trigger 4] [--overload 16] [--calm 14] [--write]

A thread writes a file for each of three streams twice a second: the paper's wandering values, one row after the
other stamped with the time on the wall.  The join compares row by row (``algorithm="nested"``), so that joining is
the bottleneck on any machine.  First the rate that the exact join sustains is measured, then five times as much
arrives, then a third of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import dovetail as dt

CORES = 2
NAMES = "ABC"
LAGS = {"A": 0.0, "B": 2.0, "C": 5.0}
KAPPAS = {"A": 2.0, "B": 2.0, "C": 20.0}
DOMAIN, PERIOD = 1000.0, 50.0
WINDOW, SLICE = "8 seconds", "250 milliseconds"
EPSILON = 0.005
"""So small that results are few: comparing rows is the work, not passing results on."""
TICK = 0.5
TIMES = 5.0
"""How much more arrives in the overload than the exact join sustains."""
HERE = Path(__file__).parent
console = Console()


@dataclass
class Feed:
    """Writes files at a rate that can be changed while it runs."""

    root: Path
    rate: float
    produced: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Make the folders and begin."""
        for name in NAMES:
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").mkdir()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        random, number, begin = np.random.default_rng(3), 0, time.time()
        while not self._stop.is_set():
            end = begin + TICK
            time.sleep(max(0.0, end - time.time()))
            for name in NAMES:
                self._write(name, number, begin, end, random)
            begin, number = end, number + 1

    def _write(self, name: str, number: int, begin: float, end: float, random: np.random.Generator) -> None:
        count = round(self.rate * (end - begin))
        at = np.linspace(begin, end, count, endpoint=False)
        values = DOMAIN / PERIOD * (at + LAGS[name]) + KAPPAS[name] * random.standard_normal(count)
        ts = pa.array((at * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"ts": ts, "v": np.mod(values, DOMAIN)})
        hidden = self.root / "tmp" / f"{name}{number}.parquet"
        pq.write_table(table, hidden)
        hidden.rename(self.root / name / f"{number:06d}.parquet")
        self.produced += count


@dataclass
class Batch:
    """One micro-batch: when it began after the start of the query, how long it took, and its metrics."""

    began: float
    seconds: float
    metrics: dict[str, Any]

    @property
    def throttle(self) -> float:
        """The part of the full work that it did."""
        return float(self.metrics.get("throttle", 1.0))


@dataclass
class Course:
    """How a query went: its micro-batches, and how many seconds of rows were waiting after each trigger interval."""

    batches: list[Batch] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)


def run(spark: SparkSession, rates: list[tuple[int, float]], trigger: float, shed: Any, label: str) -> Course:
    """Run a join over streams of given rates, each for so many trigger intervals."""
    root = Path(tempfile.mkdtemp(prefix="dovetail-shedding-"))
    feed = Feed(root, rates[0][1])
    feed.start()
    streams = {
        name: spark.readStream.schema("ts timestamp, v double")
        .parquet(str(root / name))
        .withWatermark("ts", "0 seconds")
        for name in NAMES
    }
    on = " AND ".join(f"ABS({a}.v - {b}.v) <= {EPSILON}" for a, b in combinations(NAMES, 2))
    joined = dt.window_join(streams, on=on, time="ts", within=WINDOW, algorithm="nested", shed=shed)
    query = (
        joined.writeStream.format("noop")
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(processingTime=f"{trigger} seconds")
        .start()
    )
    course = Course()
    try:
        for intervals, rate in rates:
            feed.rate = rate
            for _ in range(intervals):
                time.sleep(trigger)
                taken = sum(progress.numInputRows for progress in query.recentProgress)
                course.waiting.append((feed.produced - taken) / (len(NAMES) * rate))
        course.batches = _batches(query)
    finally:
        feed.stop()
        query.stop()
        shutil.rmtree(root, ignore_errors=True)
    shown = " ".join(f"{b.seconds:.1f}" + (f"@{b.throttle:.2f}" if shed is not None else "") for b in course.batches)
    console.print(f"  {label:<22} {shown}; waiting {course.waiting[-1]:.1f} s", highlight=False)
    return course


def _batches(query: Any) -> list[Batch]:
    batches, start = [], None
    for progress in query.recentProgress:
        if not progress.numInputRows:
            continue
        began = time.mktime(time.strptime(progress.timestamp[:19], "%Y-%m-%dT%H:%M:%S"))
        start = began if start is None else start
        observed = [v.asDict() for k, v in progress.observedMetrics.items() if k.startswith("dovetail")]
        seconds = progress.durationMs["triggerExecution"] / 1000
        batches.append(Batch(began - start, seconds, observed[0] if observed else {}))
    return batches


def sustained(spark: SparkSession, trigger: float) -> float:
    """The largest rate, of those tried, at which the exact join's micro-batches fit into the trigger interval."""
    rate, good = 600.0, 0.0
    while rate < 20_000:
        batches = run(spark, [(9, rate)], trigger, None, f"exact, {rate:g} rows/s").batches
        late = [batch.seconds for batch in batches[2:]] or [np.inf]
        if max(late) > 0.9 * trigger:
            break
        good, rate = rate, rate * 1.5
    return good


@dataclass
class Line:
    """One line of the report."""

    claim: str
    figures: str
    holds: bool


def judged(exact: Course, harvest: Course, drop: Course, trigger: float, overload: int) -> list[Line]:
    """What the runs show."""
    ends = overload * trigger
    loaded = [batch for batch in harvest.batches if batch.began < ends - trigger]
    settled = loaded[5:]
    calm = [batch for batch in harvest.batches if batch.began > ends + 2 * trigger]
    growing = exact.waiting
    rates = {}
    for name, batches in (("harvest", loaded), ("drop", [b for b in drop.batches if b.began < ends - trigger])):
        tail = batches[5:]
        span = tail[-1].began + max(tail[-1].seconds, trigger) - tail[0].began
        rates[name] = sum(batch.metrics["results"] for batch in tail) / span
    last = calm[-1].metrics
    recall = settled[-1].metrics
    return [
        Line(
            "without shedding the lag grows without bound",
            f"{growing[len(growing) // 2]:.0f} s of rows wait half-way, {growing[-1]:.0f} s in the end",
            growing[-1] > 1.5 * growing[len(growing) // 2] > 3 * trigger,
        ),
        Line(
            f"with it micro-batches settle under the trigger interval of {trigger:g} s within five of them",
            f"{max(b.seconds for b in settled):.1f} s at most from the sixth on; throttle {settled[-1].throttle:.3f}; "
            f"recall {recall['recall']:.2f} ({recall['recall_low']:.2f} to {recall['recall_high']:.2f})",
            max(batch.seconds for batch in settled) <= trigger,
        ),
        Line(
            "output is ahead of RandomDrop at the same throttle",
            f"{rates['harvest']:,.0f} results/s against {rates['drop']:,.0f}: "
            f"{rates['harvest'] / rates['drop']:.1f} times",
            rates["harvest"] > rates["drop"],
        ),
        Line(
            "when the load falls the join is exact again",
            f"throttle {calm[-1].throttle:.2f}, recall {last['recall']:.2f}; "
            f"{sum(b.throttle < 1 for b in calm)} of {len(calm)} micro-batches after the fall still shed",
            calm[-1].throttle == 1.0 and last["recall"] == 1.0,
        ),
    ]


def main(
    rate: Annotated[float, typer.Option(help="Rows a second that the exact join sustains; 0 to measure it.")] = 0.0,
    trigger: Annotated[float, typer.Option(help="The trigger interval in seconds.")] = 4.0,
    overload: Annotated[int, typer.Option(help="Trigger intervals of overload.")] = 16,
    calm: Annotated[int, typer.Option(help="Trigger intervals after it.")] = 14,
    write: Annotated[bool, typer.Option(help="Write the table to shedding.md.")] = False,
) -> None:
    """Measure, and print whether each claim holds."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    spark = dt.session(
        "shedding-benchmark", master=f"local[{CORES}]", memory="4g", conf={"spark.sql.shuffle.partitions": CORES}
    )
    try:
        run(spark, [(8, 50.0)], trigger, dt.Harvest(), "rehearsal")
        good = rate or sustained(spark, trigger)
        console.print(f"the exact join sustains {good:g} rows/s of each stream; {TIMES * good:g} arrive")
        phases = [(overload, TIMES * good), (calm, good / 3)]
        exact = run(spark, phases[:1], trigger, None, "exact")
        harvest = run(spark, phases, trigger, dt.Harvest(target=trigger, basic_window=SLICE), "Harvest")
        settled = [batch.throttle for batch in harvest.batches if batch.began < (overload - 1) * trigger][5:]
        drop = run(spark, phases[:1], trigger, dt.RandomDrop(throttle=float(np.mean(settled))), "RandomDrop")
        lines = judged(exact, harvest, drop, trigger, overload)
    finally:
        version = spark.version
        spark.stop()
    table = Table("claim", "measured", "holds")
    for line in lines:
        table.add_row(line.claim, line.figures, "yes" if line.holds else "NO")
    console.print(table)
    if write:
        body = "\n".join(f"| {x.claim} | {x.figures} | {'yes' if x.holds else 'no'} |" for x in lines)
        head = (
            "# Load shedding\n\n"
            f"`python benchmarks/shedding.py --write` wrote this table on {time.strftime('%Y-%m-%d')}: {CORES} cores, "
            f"`local[{CORES}]`, Spark {version}. Three streams,\nwindows of {WINDOW}, compared row by row. "
            f"The exact join sustains {good:g} rows/s\nof each stream; {TIMES * good:g} rows/s arrive, "
            f"then {good / 3:.0f}.\n\n"
            "| claim | measured | holds |\n|---|---|---|\n"
        )
        (HERE / "shedding.md").write_text(head + body + "\n")


if __name__ == "__main__":
    typer.run(main)
