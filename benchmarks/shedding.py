"""A window join on Spark under overload: exact, harvesting and dropping rows, on the same rate-controlled streams.

    python benchmarks/shedding.py [--only rate] [--trigger 4] [--overload 12] [--calm 14] [--out artifacts] [--write]

A thread writes a file for each of three streams every second: the paper's wandering values, one row after the
other stamped with the time on the wall.  The join compares row by row (``algorithm="nested"``), so that joining is
the bottleneck on any machine.  First the rate that the exact join sustains is measured: it rises until a micro-batch
takes longer than the trigger interval.  Then five times as much arrives, then a third of it.

The parts (`rate`, `exact`, `harvest`, `drop`) may be run one at a time; what they found waits in ``shedding.json``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
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
WINDOW, SLICE = "12 seconds", "750 milliseconds"
EPSILON = 0.0005
"""So small that results are few: comparing rows is the work, not passing results on."""
TICK = 1.0
TIMES = 5.0
"""How much more arrives in the overload than the exact join sustains."""
SUSTAINS = 4
"""Trigger intervals in which the exact join is to show that it sustains the rate, before it has more of it."""
SETTLED = 5
"""Micro-batches within which the join has to settle."""
CALM = 100.0
"""Rows a second of each stream while a query gets going."""
FIRST, RISE, LEVEL = 1000.0, 1.4, 5
"""The first rate tried, the factor to the next one, and the trigger intervals of each."""
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

    def show(self, batches: list[Batch]) -> None:
        """Take over the micro-batches so far, and print the new ones: seconds, and the throttle below 1."""
        for batch in batches[len(self.batches) :]:
            mark = f" {batch.seconds:.1f}" + (f"@{batch.throttle:.3f}" if batch.throttle < 1 else "")
            console.print(mark, end="", highlight=False)
        self.batches = batches

    def between(self, begin: float, end: float) -> list[Batch]:
        """Micro-batches that began in a span of time."""
        return [batch for batch in self.batches if begin <= batch.began < end]


@dataclass(frozen=True)
class Bench:
    """One session, and how long a trigger interval is."""

    spark: SparkSession
    trigger: float

    def run(self, rates: list[tuple[int, float]], shed: Any, label: str, *, stop: bool = False) -> Course:
        """Run a join over streams of given rates, each for so many trigger intervals.

        With `stop` it ends as soon as micro-batches no longer fit into the trigger interval.
        """
        root = Path(tempfile.mkdtemp(prefix="dovetail-shedding-"))
        feed = Feed(root, CALM)
        feed.start()
        query = self._started(root, shed)
        course = Course()
        try:
            self._warm(query)
            start = time.time()
            console.print(f"  {label:<14}", end="", highlight=False)
            for intervals, rate in rates:
                feed.rate = rate
                for _ in range(intervals):
                    time.sleep(self.trigger)
                    taken = sum(progress.numInputRows for progress in query.recentProgress)
                    course.waiting.append((feed.produced - taken) / (len(NAMES) * rate))
                    course.show(_batches(query, start))
                if stop and _typical(course.batches[-3:]) > self.trigger:
                    break
            console.print(f"; waiting {course.waiting[-1]:.1f} s", highlight=False)
        finally:
            feed.stop()
            query.stop()
            shutil.rmtree(root, ignore_errors=True)
        return course

    def _warm(self, query: Any) -> None:
        """Wait until Python has started and two micro-batches are done: that is not what this is about."""
        until = time.time() + 60
        while sum(progress.numInputRows > 0 for progress in query.recentProgress) < 2:
            if time.time() > until or not query.isActive:
                raise RuntimeError(f"the query does not get going: {query.exception()}")
            time.sleep(0.1)

    def _started(self, root: Path, shed: Any) -> Any:
        streams = {
            name: self.spark.readStream.schema("ts timestamp, v double")
            .parquet(str(root / name))
            .withWatermark("ts", "0 seconds")
            for name in NAMES
        }
        on = " AND ".join(f"ABS({a}.v - {b}.v) <= {EPSILON}" for a, b in combinations(NAMES, 2))
        joined = dt.window_join(streams, on=on, time="ts", within=WINDOW, algorithm="nested", shed=shed)
        return (
            joined.writeStream.format("noop")
            .option("checkpointLocation", str(root / "checkpoint"))
            .trigger(processingTime=f"{self.trigger} seconds")
            .start()
        )

    def sustained(self) -> float:
        """The largest rate, of those tried one after the other, at which the exact join keeps up."""
        self.run([(1, CALM)], dt.Harvest(), "rehearsal")
        rates = [FIRST * RISE**at for at in range(14)]
        course = self.run([(LEVEL, rate) for rate in rates], None, "exact, rising", stop=True)
        length, good = LEVEL * self.trigger, 0.0
        for at, rate in enumerate(rates):
            # A rate is felt in full once a window of it has gone by.
            late = course.between((at + 0.5) * length, (at + 1) * length)
            if _typical(late) > self.trigger:
                break
            good = rate
        return good


def _typical(batches: list[Batch]) -> float:
    """The median length of some micro-batches; endless where there are none, since they are behind."""
    return float(np.median([batch.seconds for batch in batches])) if batches else np.inf


def _batches(query: Any, start: float) -> list[Batch]:
    batches = []
    for progress in query.recentProgress:
        began = datetime.fromisoformat(progress.timestamp).timestamp() - start
        if progress.numInputRows and began >= 0:
            observed = [v.asDict() for k, v in progress.observedMetrics.items() if k.startswith("dovetail")]
            seconds = progress.durationMs["triggerExecution"] / 1000
            batches.append(Batch(began, seconds, observed[0] if observed else {}))
    return batches


@dataclass
class Line:
    """One line of the report."""

    claim: str
    figures: str
    holds: bool


def judged(exact: Course, harvest: Course, drop: Course, trigger: float, overload: int) -> list[Line]:
    """What the runs show."""
    ends = overload * trigger
    settled = harvest.between(0.0, ends)[SETTLED:]
    calm = harvest.between(ends, np.inf)
    kept, growing = exact.between(0.0, SUSTAINS * trigger), exact.waiting[SUSTAINS:]
    rates = {}
    for name, course in (("harvest", harvest), ("drop", drop)):
        tail = course.between(0.0, ends)[SETTLED:]
        span = tail[-1].began + max(tail[-1].seconds, trigger) - tail[0].began
        rates[name] = sum(batch.metrics["results"] for batch in tail) / span
    last, recall = calm[-1].metrics, settled[-1].metrics
    shedding = [at for at, batch in enumerate(calm) if batch.throttle < 1 or batch.metrics["recall"] < 1]
    throttles = [batch.throttle for batch in settled]
    return [
        Line(
            "without shedding the lag grows without bound",
            f"micro-batches of {_typical(kept):.1f} s at the rate it sustains; in the overload "
            f"{growing[len(growing) // 2]:.0f} s of rows wait half-way, {growing[-1]:.0f} s in the end",
            _typical(kept) <= trigger and growing[-1] > 1.3 * growing[len(growing) // 2] > 1.3 * trigger,
        ),
        Line(
            f"with it micro-batches settle under the trigger interval of {trigger:g} s within five of them",
            f"{max(b.seconds for b in settled):.1f} s at most from the sixth on; throttle {min(throttles):.3f} to "
            f"{max(throttles):.3f}; recall {recall['recall']:.2f} ({recall['recall_low']:.2f} to "
            f"{recall['recall_high']:.2f})",
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
            f"throttle {calm[-1].throttle:.2f}, recall {last['recall']:.2f}; exact from micro-batch "
            f"{(shedding[-1] if shedding else -1) + 2} after the fall on",
            calm[-1].throttle == 1.0 and last["recall"] == 1.0,
        ),
    ]


class Part(StrEnum):
    """What can be run by itself."""

    rate = "rate"
    exact = "exact"
    harvest = "harvest"
    drop = "drop"


@dataclass
class Found:
    """What parts have found, kept in a file."""

    file: Path
    values: dict[str, Any]

    @classmethod
    def load(cls, file: Path) -> Found:
        """Take up what earlier parts left."""
        return cls(file, json.loads(file.read_text()) if file.exists() else {})

    def put(self, part: Part, value: Any) -> None:
        """Remember what a part found."""
        self.values[part.value] = value
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.values, indent=1))

    def course(self, part: Part) -> Course:
        """How a query of an earlier part went."""
        kept = self.values[part.value]
        return Course([Batch(**batch) for batch in kept["batches"]], kept["waiting"])


def main(
    only: Annotated[list[Part] | None, typer.Option(help="One part, may be repeated; all by default.")] = None,
    trigger: Annotated[float, typer.Option(help="The trigger interval in seconds.")] = 4.0,
    overload: Annotated[int, typer.Option(help="Trigger intervals of overload.")] = 12,
    calm: Annotated[int, typer.Option(help="Trigger intervals after it.")] = 14,
    out: Annotated[Path, typer.Option(help="Where shedding.json is kept.")] = Path("artifacts"),
    write: Annotated[bool, typer.Option(help="Write the table to shedding.md.")] = False,
) -> None:
    """Measure, and print whether each claim holds."""
    found = Found.load(out / "shedding.json")
    spark = dt.session(
        "shedding-benchmark", master=f"local[{CORES}]", driver_memory="4g", conf={"spark.sql.shuffle.partitions": CORES}
    )
    bench = Bench(spark, trigger)
    try:
        for part in only or list(Part):
            if part is Part.rate:
                found.put(part, bench.sustained())
                continue
            rate = found.values["rate"]
            phases = [(overload, TIMES * rate), (calm, rate / 3)]
            if part is Part.exact:
                course = bench.run([(SUSTAINS, rate), (overload - SUSTAINS, TIMES * rate)], None, "exact")
            elif part is Part.harvest:
                course = bench.run(phases, dt.Harvest(target=trigger, basic_window=SLICE), "Harvest")
            else:
                settled = found.course(Part.harvest).between(0.0, overload * trigger)[SETTLED:]
                throttle = float(np.mean([batch.throttle for batch in settled]))
                course = bench.run(phases[:1], dt.RandomDrop(throttle=throttle), "RandomDrop")
            found.put(part, asdict(course))
    finally:
        version = spark.version
        spark.stop()
    if not all(part.value in found.values for part in Part):
        return
    courses = [found.course(part) for part in (Part.exact, Part.harvest, Part.drop)]
    report(judged(*courses, trigger, overload), found.values["rate"], version, write=write)


def report(lines: list[Line], rate: float, version: str, *, write: bool) -> None:
    """Print the verdicts, and write them down if asked to."""
    console.print(f"the exact join sustains {rate:,.0f} rows/s of each stream; {TIMES * rate:,.0f} arrive")
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
            f"The exact join sustains {rate:,.0f} rows/s\nof each stream; {TIMES * rate:,.0f} rows/s arrive, "
            f"then {rate / 3:,.0f}.\n\n"
            "| claim | measured | holds |\n|---|---|---|\n"
        )
        (HERE / "shedding.md").write_text(head + body + "\n")


if __name__ == "__main__":
    typer.run(main)
