"""Approximate joins: rows a second through the kernels, and a join on Spark that its exact form has no memory for.

    python benchmarks/approx.py [--scale 1.0] [--only kernel,spark] [--write]

The kernel cases count processor time of one core, from Arrow segments to Arrow results.  The Spark case joins two
Parquet files whose rows are ten times the memory limit, against Spark's own join of the same files into the same no-op
sink.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from _spark_alone import SparkAlone
from _timing import race
from rich.console import Console
from rich.table import Table

CORES = 2
HERE = Path(__file__).parent
WORDS = {True: "yes", False: "no", None: "-"}
"""Verdicts; a case that is held to nothing has none."""
console = Console()


class Result:
    """What one case measured, and the bound it is held against."""

    def __init__(self, case: str, claim: str) -> None:
        self.case, self.claim = case, claim
        self.seconds: dict[str, float] = {}
        self.verdict = ""
        self.holds: bool | None = None

    def judge(self, holds: bool, verdict: str) -> None:
        """Say whether the claim holds, and the figure that decides it."""
        self.holds, self.verdict = holds, verdict


def segment(rows: int, keys: int, seed: int) -> pa.RecordBatch:
    """Rows with an id, a join value, its hash and a place."""
    k = np.random.default_rng(seed).integers(0, keys, rows)
    hashes = (k.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    columns = [np.arange(rows), k, hashes, np.arange(rows)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["c0", "k0", "h", "a"])


def kernel(policy: str, rows: int) -> Result:
    """Two inputs of `rows` rows each, every value about five times in each, a tenth of the rows in memory."""
    from dovetail.conditions.comparison import Key
    from dovetail.conditions.limits import Limit
    from dovetail.families.approx.spec import ApproxSpec
    from dovetail.families.approx.stream import ApproxKernel

    keys = tuple((Key(f"`{alias}`.`k`", "BIGINT", alias),) for alias in "RS")
    spec = ApproxSpec(
        aliases=("R", "S"), payload=(1, 1), keys=keys, value=((0,), (0,)), kinds=("int",), edges=(),
        policy=policy, memory=Limit(rows // 5), seed=7, strata=1024,
    )  # fmt: skip
    segments = [segment(rows, rows // 5, seed) for seed in (1, 2)]
    best, found = float("inf"), 0
    for number in range(5):
        gc.collect()
        one = ApproxKernel(spec)
        began = time.process_time()
        for side in range(2):
            one.push(side, segments[side])
        found = sum(batch.num_rows for batch in one.results())
        one.changes()
        if number:
            best = min(best, time.process_time() - began)
    rate = 2 * rows / best
    held_to = policy in ("raj_hash", "prob_hash")
    claim = "at least 1M rows/s on one core" if held_to else "(for comparison)"
    result = Result(f"{policy}, {2 * rows:,} rows, {found:,} results", claim)
    result.seconds["kernel"] = best
    if held_to:
        result.holds = rate >= 1e6
    result.verdict = f"{rate / 1e6:.2f}M rows/s"
    return result


def make_data(folder: Path, rows: int) -> None:
    """Two sides with few values, so that the join is some hundred times larger than its inputs."""
    random = np.random.default_rng(7)
    for side in "rs":
        k = random.integers(0, max(1, rows // 200), rows)
        table = pa.table({"id": np.arange(rows), "k": k, "v": random.normal(100, 15, rows)})
        pq.write_table(table, folder / f"{side}.parquet", row_group_size=max(1, rows // 16))


def on_spark(rows: int) -> Result:
    """A limit of a tenth of the rows, against Spark's exact join."""
    import dovetail as dt

    folder = Path(tempfile.mkdtemp(prefix="dovetail-approx-"))
    make_data(folder, rows)
    spark = dt.session(
        "approx-benchmark",
        master=f"local[{CORES}]",
        driver_memory="3g",
        conf={"spark.sql.shuffle.partitions": 2 * CORES},
    )
    limit = 2 * rows // 10
    result = Result(
        f"{rows:,} x {rows:,} rows, a limit of {limit:,}", "within the limit, in less time than Spark's exact join"
    )
    counts: dict[str, int] = {}
    error = [0.0]

    def ours() -> int:
        r, s = (spark.read.parquet(str(folder / f"{side}.parquet")) for side in "rs")
        sample = dt.approx_join({"R": r, "S": s}, on="R.k = S.k", memory=limit, seed=7, detail=False)
        sample.write.format("noop").mode("overwrite").save()
        counts.update(dt.metrics(sample))
        return counts["results"]

    try:
        with SparkAlone(folder) as peer:
            result.seconds, _ = race({"spark": (peer.join, 5), "dovetail": (ours, 5)}, times=6)
        found = counts["results"]
        values = [np.bincount(pq.read_table(folder / f"{side}.parquet")["k"].to_numpy()) for side in "rs"]
        size = min(len(one) for one in values)
        true = int((values[0][:size] * values[1][:size]).sum())
        error[0] = abs(counts["estimated"] / true - 1)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    ratio = result.seconds["dovetail"] / result.seconds["spark"]
    result.judge(
        counts["peak_rows"] <= limit and ratio < 1,
        f"{counts['peak_rows']:,} rows held at most, {ratio:.2f} x the time; {found:,} of {true:,} results, "
        f"size estimated within {100 * error[0]:.2f} %",
    )
    return result


def markdown(results: list[Result]) -> str:
    lines = ["# Approximate joins", "", f"`python benchmarks/approx.py`, {CORES} cores, best of several runs.", ""]
    lines += ["| case | seconds | claim | measured | holds |", "|---|---|---|---|---|"]
    for one in results:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in one.seconds.items())
        lines.append(f"| {one.case} | {seconds} | {one.claim} | {one.verdict} | {WORDS[one.holds]} |")
    return "\n".join(lines) + "\n"


def main(
    scale: Annotated[float, typer.Option(help="Rows of all cases, as a share of the full size.")] = 1.0,
    only: Annotated[str, typer.Option(help="Cases to run, with commas.")] = "kernel,spark",
    write: Annotated[bool, typer.Option(help="Write benchmarks/approx.md.")] = False,
) -> None:
    """Run the cases and print what they measured."""
    results = []
    if "kernel" in only.split(","):
        results += [kernel(policy, int(1_000_000 * scale)) for policy in ("raj_hash", "prob_hash", "raj", "arrpj")]
    if "spark" in only.split(","):
        results.append(on_spark(int(1_000_000 * scale)))
    table = Table("case", "seconds", "claim", "measured", "holds", title="approximate joins")
    for one in results:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in one.seconds.items())
        table.add_row(one.case, seconds, one.claim, one.verdict, WORDS[one.holds])
    console.print(table)
    if write:
        (HERE / "approx.md").write_text(markdown(results))


if __name__ == "__main__":
    sys.exit(typer.run(main))
