"""``dovetail warm``: compile every kernel into the cache, and keep the classes of the JVM, before anybody waits for it.

Joins of every family run on a few rows, several at a time: each worker of Spark compiles for itself, and finds what
another one has compiled.  The JVM writes the classes that it has loaded when it ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dovetail.columns.numba_cache import always_compiled
from dovetail.errors import SetupError
from dovetail.spark.runtime.classes import archive, recording_options
from dovetail.spark.runtime.gateway import end_jvm
from dovetail.spark.runtime.java import check_java
from dovetail.spark.runtime.quiet import quiet_session
from dovetail.spark.runtime.session import JAVA_OPTIONS, build_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Inputs = dict[str, DataFrame]
    Join = Callable[[Inputs], DataFrame]

_ROWS = 400
_COLUMNS = (
    "id", "id % 9 AS k", "CAST(id % 5 AS INT) AS i", "CAST(id % 83 AS DOUBLE) AS x", "CAST(id % 71 AS DOUBLE) AS y",
    "CAST(id % 83 + 3 AS DOUBLE) AS z", "CAST(id % 9 AS STRING) AS s", "timestamp_seconds(id) AS t",
)  # fmt: skip
_SCHEMA = "id long, k long, i int, x double, y double, z double, s string, t timestamp"


@dataclass(frozen=True)
class _Calls:
    """The joins that use each kernel at least once, by what they are called on the screen."""

    batch: dict[str, Join]
    stream: dict[str, Join]


def run(console: Console, log: Path, *, classes: bool = True) -> None:
    """Compile, with a progress bar; `classes` says whether to keep those of the JVM."""
    began = time.perf_counter()
    kept = archive(check_java()) if classes else None
    temporary = tempfile.TemporaryDirectory(prefix="dovetail-warm-")
    with always_compiled(), _recording(kept) as conf, temporary as folder:
        with console.status("Starting Spark ..."):
            starting = quiet_session("dovetail-warm", log, conf=conf)
            spark = starting.__enter__()
        try:
            _compile(console, spark, Path(folder))
        finally:
            starting.__exit__(None, None, None)
        if kept is not None:
            with console.status("Keeping the classes of the JVM ..."):
                end_jvm()
    console.print(f"Every kernel is compiled ({time.perf_counter() - began:.0f} s).")
    if kept is not None and kept.is_file():
        console.print(f"dovetail.session() starts the JVM with its classes from {kept}", soft_wrap=True)


def _compile(console: Console, spark: SparkSession, folder: Path) -> None:
    calls = _calls()
    rows = spark.range(_ROWS).selectExpr(*_COLUMNS)
    rows.repartition(2).write.parquet(str(folder / "rows"))
    static = {alias: spark.read.parquet(str(folder / "rows")) for alias in "RS"}

    def batch(join: Join) -> None:
        join(static).write.format("noop").mode("overwrite").save()

    def stream(name: str, join: Join) -> None:
        read = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        inputs = {alias: read.parquet(str(folder / "rows")).withWatermark("t", "0 seconds") for alias in "RS"}
        writer = join(inputs).writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / name.replace(" ", "-"))).start().awaitTermination()

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    pool = ThreadPoolExecutor(os.cpu_count() or 2)
    try:
        waiting = {pool.submit(batch, join): name for name, join in calls.batch.items()}
        waiting |= {pool.submit(stream, name, join): name for name, join in calls.stream.items()}
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("Compiling", total=len(waiting))
            for done in as_completed(waiting):
                done.result()
                progress.update(bar, advance=1, description=f"Compiled for {waiting[done]}")
    finally:
        # Somebody who stops it does not want to wait for the joins that have not begun.
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _recording(kept: Path | None) -> Iterator[dict[str, object]]:
    """The settings of a JVM that writes its classes to `kept` when it ends: whole, or not at all."""
    if kept is None:
        yield {}
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix="classes-", dir=kept.parent)) / kept.name
    except OSError as refused:
        raise SetupError(
            f"{kept.parent} cannot be written: {refused.strerror}",
            accepted="a folder of your own; XDG_CACHE_HOME names another one",
            hint="dovetail warm --no-classes compiles the kernels alone",
        ) from None
    try:
        yield {JAVA_OPTIONS: f"{build_conf()[JAVA_OPTIONS]} {recording_options(written)}"}
        if written.is_file():
            written.replace(kept)
    finally:
        with contextlib.suppress(OSError):
            written.unlink(missing_ok=True)
            written.parent.rmdir()


def _calls() -> _Calls:
    from dovetail import api as dt
    from dovetail.conditions.criteria import Criterion, closest, least, prefer
    from dovetail.families.shedding.spec import Harvest, RandomDrop
    from dovetail.families.window.graph import path

    def three(inputs: Inputs) -> Inputs:
        return {**inputs, "T": inputs["R"]}

    def larger(one: Any, other: Any) -> str:
        found = [pair["R"]["x"] + pair["S"]["x"] for pair in (one, other)]
        return "equal" if found[0] == found[1] else "better" if found[0] > found[1] else "worse"

    band, equal = "ABS(R.x - S.x) <= 1", "R.k = S.k"
    bands = f"{band} AND ABS(S.x - T.x) <= 1"
    chain, steps = "R.s = S.s AND S.s = T.s AND ABS(R.x - T.x) <= 2", path("R -> S -> T", ["4 seconds", "6 seconds"])
    close: list[Criterion] = [closest("t", within="5 seconds"), closest("x", within=3)]
    ordered: list[Criterion] = [closest("t", within="5 seconds"), prefer(larger)]
    harvest = Harvest(throttle=0.3, basic_window="1 second")
    theta = {
        "an inequality": "R.x < S.x AND R.x > 80",
        "a band": band,
        "an equality": equal,
        "a key and a band": f"R.s = S.s AND R.i = S.i AND {band}",
        "two inequalities": f"R.x < S.x AND R.y > S.y AND {equal}",
        "two bands": f"{band} AND ABS(R.y - S.y) <= 1",
        "intervals": "R.x <= S.z AND S.x <= R.z AND R.x < 9",
        "a condition of Spark's": "R.x * S.x > 6000",
    }
    batch: dict[str, Join] = {
        name: lambda inputs, on=on: dt.theta_join(inputs, on=on, broadcast=False)  # type: ignore[misc]
        for name, on in theta.items()
    }
    for how in ("left", "full", "semi", "anti"):
        batch[f"a {how} join"] = lambda inputs, how=how: dt.theta_join(inputs, on=band, how=how, broadcast=False)  # type: ignore[misc]
    near = [closest("x", within=9), closest("t")]
    batch |= {
        "a broadcast": lambda inputs: dt.theta_join(inputs, on=f"{equal} AND {band}", broadcast="S"),
        "windows of rows": lambda inputs: dt.theta_join(inputs, on=band, window=100),
        "windows of time": lambda inputs: dt.window_join(inputs, on=equal, time="t", within="5 seconds"),
        "windows and a band": lambda inputs: dt.window_join(inputs, on=band, time="t", within="5 seconds", how="left"),
        "windows, as printed": lambda inputs: dt.window_join(
            inputs, on=equal, time="t", within="5 seconds", algorithm="pipeline"
        ),
        "as-of by key": lambda inputs: dt.asof_join(inputs, time="t", by=["s", "k"], broadcast=False),
        "as-of by time": lambda inputs: dt.asof_join(inputs, time="t", direction="nearest", broadcast=False),
        "as-of, the rest": lambda inputs: dt.asof_join(inputs, time="x", how="full", direction="forward"),
        "as-of where": lambda inputs: dt.asof_join(inputs, time="t", by="k", on="R.x < S.x"),
        "best matches": lambda inputs: dt.bestmatch_join(inputs, on=near),
        "best matches by key": lambda inputs: dt.bestmatch_join(inputs, on=[*near, least("R.y + S.y")], by="k"),
        "best matches of all rows": lambda inputs: dt.bestmatch_join(inputs, on=close, how="left", by="s"),
        "an order of one's own": lambda inputs: dt.bestmatch_join(inputs, on=ordered, how="left", by="s"),
        "a band and what it leaves": lambda inputs: dt.theta_join(
            inputs, on=f"R.s = S.s AND {band} AND R.id % 7 <> S.id % 5", how="left", broadcast=False
        ),
        "three inputs": lambda inputs: dt.window_join(three(inputs), on=chain, time="t", within=steps),
    }
    sums = {"n": "count(*)", "a": "avg(S.x)", "w": "sum(S.k)", "v": "stddev(S.y)", "m": "min_by(S.s, S.x)"}
    aggregates = {
        "aggregates": (f"{equal} AND S.x <= R.x", sums, False),
        "aggregates of two ranges": ("S.x <= R.x AND S.y >= R.y", sums, "S"),
        "overlaps": ("S.x <= R.z AND S.z >= R.x", {"n": "count(*)"}, False),
        "percentiles": (
            f"{equal} AND S.x <= R.x",
            {"m": "median(S.x)", "p": "percentile_approx(S.k, 0.5)", "d": "count(DISTINCT S.s)"},
            False,
        ),
    }
    for name, (on, agg, small) in aggregates.items():
        batch[name] = lambda inputs, on=on, agg=agg, small=small: dt.aggregate_join(  # type: ignore[misc]
            inputs, on=on, by="R", agg=agg, broadcast=small
        )
    nearest = {
        "the nearest": ("HYPOT(R.x - S.x, R.y - S.y) AND R.i = S.i", "first"),
        "the nearest on a line": ("ABS(R.x - S.x)", "all"),
        "the nearest in time": ("ABS(R.t - S.t)", "all"),
        "the nearest on Earth": ("HAVERSINE(R.x, R.y, S.x, S.y)", "all"),
    }
    for name, (on, ties) in nearest.items():
        # One neighbour on a line is found by a kernel of its own.
        for k in (1, 3) if ties == "all" else (3,):
            batch[f"{name}, {k} of them"] = lambda inputs, on=on, k=k, ties=ties: dt.nearest_join(  # type: ignore[misc]
                inputs, on=on, k=k, ties=ties, broadcast=False
            )
        batch[f"{name}, in a window"] = lambda inputs, on=on: dt.nearest_join(  # type: ignore[misc]
            inputs, on=on, k=3, time="t", window="5 seconds", broadcast=False
        )
    policies = ("prob", "prob_hash", "arrpj", "raj", "raj_hash", "raj_printed")
    for policy in policies:
        batch[f"samples, {policy}"] = lambda inputs, policy=policy: dt.approx_join(  # type: ignore[misc]
            inputs, on=equal, memory=100, policy=policy
        )
    batch["estimates"] = lambda inputs: dt.estimates(dt.approx_join(inputs, on=equal, memory=100), {"n": "count(*)"})
    stream: dict[str, Join] = {
        "streams": lambda inputs: dt.window_join(inputs, on=equal, time="t", within="5 seconds"),
        "streams and a band": lambda inputs: dt.window_join(inputs, on=band, time="t", within="5 seconds", how="full"),
        "three streams": lambda inputs: dt.window_join(three(inputs), on=chain, time="t", within=steps),
        "shedding": lambda inputs: dt.window_join(inputs, on=equal, time="t", within="5 seconds", shed=Harvest()),
        "harvests": lambda inputs: dt.window_join(
            three(inputs), on=bands, time="t", within="8 seconds", algorithm="nested", shed=harvest
        ),
        "dropped rows": lambda inputs: dt.window_join(
            inputs, on=equal, time="t", within="5 seconds", shed=RandomDrop(throttle=0.5)
        ),
        "best matches of streams, all rows": lambda inputs: dt.bestmatch_join(inputs, on=close, how="left", by="s"),
        "windows of a band": lambda inputs: dt.theta_join(
            inputs, on=f"R.s = S.s AND {band}", how="left", window="9 seconds", time="t"
        ),
        "as-of of streams": lambda inputs: dt.asof_join(inputs, time="t", by="k"),
        "theta of streams": lambda inputs: dt.theta_join(inputs, on=band, window="9 seconds", time="t"),
        "samples of streams": lambda inputs: dt.approx_join(inputs, on=equal, memory=100),
        "best matches of streams": lambda inputs: dt.bestmatch_join(inputs, on=near, max_age="9 seconds", time="t"),
    }
    return _Calls(batch, stream)
