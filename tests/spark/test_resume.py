"""A query across a change of its partitions: nothing lost and nothing twice, by an independent count of all rows."""

from __future__ import annotations

import json
import os
import random
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import dovetail as dt
from dovetail.errors import CheckpointError
from dovetail.spark.checkpoint_files import UNFINISHED

pytestmark = [
    pytest.mark.since("4.1", "transformWithState on rows, whose state can be laid down"),
    pytest.mark.usefixtures("partitions_as_before"),
]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = pa.schema(
    [("id", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())]
)
SCHEMA = "id long, k string, v double, ts timestamp, n long"
FILES, ROWS, MARK = 5, 24, 1_000_000
Inputs = Mapping[str, DataFrame]


@dataclass(frozen=True)
class Case:
    """A join, its columns that are counted, and the same as a query that DuckDB answers over all rows."""

    join: Callable[[Inputs, int], DataFrame]
    columns: tuple[str, ...]
    oracle: str
    inputs: str = "AB"


NEAR = "abs(epoch_us(A.ts) - epoch_us(B.ts)) <= 4000000"
PAIR = ("A.id AS a", "B.id AS b")
OUTER = ("A.id AS a", "B.id AS b")


def window(on: str, **more: object) -> Callable[[Inputs, int], DataFrame]:
    return lambda inputs, tasks: dt.window_join(inputs, on=on, time="ts", within="4 seconds", partitions=tasks, **more)


CASES = {
    "hash": Case(window("A.k = B.k"), PAIR, f"SELECT A.id, B.id FROM A JOIN B ON A.k = B.k AND {NEAR}"),
    "hash, full": Case(
        window("A.k = B.k", how="full"), OUTER, f"SELECT A.id, B.id FROM A FULL JOIN B ON A.k = B.k AND {NEAR}"
    ),
    "semi": Case(
        window("A.k = B.k", how="semi"),
        ("A.id AS a",),
        f"SELECT A.id FROM A WHERE EXISTS (SELECT 1 FROM B WHERE A.k = B.k AND {NEAR})",
    ),
    "judged by Spark": Case(
        window("A.k = B.k AND (A.id * 7 + B.id * 3) % 4 <> 1", how="left"),
        OUTER,
        f"SELECT A.id, B.id FROM A LEFT JOIN B ON A.k = B.k AND (A.id * 7 + B.id * 3) % 4 <> 1 AND {NEAR}",
    ),
    "band": Case(
        window("ABS(A.v - B.v) <= 1.5"), PAIR, f"SELECT A.id, B.id FROM A JOIN B ON abs(A.v - B.v) <= 1.5 AND {NEAR}"
    ),
    "one cell": Case(window("A.v < B.v"), PAIR, f"SELECT A.id, B.id FROM A JOIN B ON A.v < B.v AND {NEAR}"),
    "merge": Case(
        window("A.k = B.k", algorithm="merge"), PAIR, f"SELECT A.id, B.id FROM A JOIN B ON A.k = B.k AND {NEAR}"
    ),
    "nested loop": Case(
        window("A.k = B.k", algorithm="nested"), PAIR, f"SELECT A.id, B.id FROM A JOIN B ON A.k = B.k AND {NEAR}"
    ),
    "three, one window": Case(
        window("A.k = B.k AND B.k = C.k"),
        ("A.id AS a", "B.id AS b", "C.id AS c"),
        f"SELECT A.id, B.id, C.id FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND {NEAR} "
        f"AND {NEAR.replace('A.', 'C.')} AND {NEAR.replace('B.', 'C.')}",
        "ABC",
    ),
    "three, pairwise": Case(
        lambda inputs, tasks: dt.window_join(
            inputs,
            on="A.k = B.k AND B.k = C.k",
            time="ts",
            partitions=tasks,
            within={("A", "B"): "4 seconds", ("B", "C"): dt.after("3 seconds")},
        ),
        ("A.id AS a", "B.id AS b", "C.id AS c"),
        f"SELECT A.id, B.id, C.id FROM A, B, C WHERE A.k = B.k AND B.k = C.k AND {NEAR} "
        "AND epoch_us(C.ts) - epoch_us(B.ts) BETWEEN 0 AND 3000000",
        "ABC",
    ),
    "optional third": Case(
        window("A.k = B.k AND B.k = C.k", how={"C": "optional"}),
        ("A.id AS a", "B.id AS b", "C.id AS c"),
        f"SELECT A.id, B.id, C.id FROM A JOIN B ON A.k = B.k AND {NEAR} LEFT JOIN C ON B.k = C.k "
        f"AND {NEAR.replace('A.', 'C.')} AND {NEAR.replace('B.', 'C.')}",
        "ABC",
    ),
    "shedding": Case(
        window("A.k = B.k", shed=dt.Harvest(throttle=1.0)),
        PAIR,
        f"SELECT A.id, B.id FROM A JOIN B ON A.k = B.k AND {NEAR}",
    ),
    "theta, rows": Case(
        lambda inputs, tasks: dt.theta_join(inputs, on="A.v <= B.v", window=7),
        PAIR,
        "SELECT A.id, B.id FROM A JOIN B ON A.v <= B.v AND A.n // 7 = B.n // 7",
    ),
    "theta, time": Case(
        lambda inputs, tasks: dt.theta_join(inputs, on="A.v < B.v", how="left", window="10 seconds", time="ts"),
        OUTER,
        "SELECT A.id, B.id FROM A LEFT JOIN B ON A.v < B.v AND epoch_us(A.ts) // 10000000 = epoch_us(B.ts) // 10000000",
    ),
    "as-of": Case(
        lambda inputs, tasks: dt.asof_join(inputs, by="k", time="ts", how="left", within="5 seconds"),
        OUTER,
        "SELECT a, CASE WHEN far <= 5000000 THEN b END FROM (SELECT A.id AS a, B.id AS b, "
        "epoch_us(A.ts) - epoch_us(B.ts) AS far FROM A ASOF LEFT JOIN B ON A.k = B.k AND A.ts >= B.ts)",
    ),
    "approximate": Case(
        lambda inputs, tasks: dt.approx_join(inputs, on="A.k = B.k", policy="exact", memory=100_000, partitions=5),
        PAIR,
        "SELECT A.id, B.id FROM A JOIN B ON A.k = B.k",
    ),
    "aggregate": Case(
        lambda inputs, tasks: dt.aggregate_join(
            inputs, on="A.k = B.k", by="A", time="ts", within="4 seconds", agg={"b": "max(B.id)", "n": "count(*)"}
        ),
        ("A.id AS a", "b", "n"),
        f"SELECT A.id, max(B.id), count(B.id) FROM A LEFT JOIN B ON A.k = B.k AND {NEAR} GROUP BY A.id",
    ),
    "nearest": Case(
        lambda inputs, tasks: dt.nearest_join(
            inputs, on="A.k = B.k AND ABS(A.v - B.v)", k=2, how="left", time="ts", window="4 seconds"
        ),
        OUTER,
        f"SELECT a, b FROM (SELECT A.id AS a, B.id AS b, row_number() OVER (PARTITION BY A.id ORDER BY abs(A.v - B.v)) "
        f"AS r FROM A LEFT JOIN B ON A.k = B.k AND {NEAR}) WHERE r <= 2",
    ),
    "best match": Case(
        lambda inputs, tasks: dt.bestmatch_join(
            inputs, on=[dt.closest("ts", within="4 seconds"), dt.closest("v", within=3.0)], by="k", how="left"
        ),
        PAIR,
        "WITH p AS (SELECT A.id AS a, B.id AS b, abs(epoch_us(A.ts) - epoch_us(B.ts)) AS t, abs(A.v - B.v) AS d "
        f"FROM A JOIN B ON A.k = B.k AND {NEAR} AND abs(A.v - B.v) <= 3.0) SELECT a, b FROM p WHERE NOT EXISTS "
        "(SELECT 1 FROM p AS q WHERE q.a = p.a AND q.t <= p.t AND q.d <= p.d AND (q.t < p.t OR q.d < p.d))",
    ),
}


def write(folder: Path, name: str, number: int, rows: list[dict[str, object]]) -> None:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{number:03}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, KINDS), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def drawn(draw: random.Random, name: str, number: int) -> list[dict[str, object]]:
    """Rows of a file: a little out of order, some keys frequent, values that do not tie."""
    made = []
    for at in range(number * ROWS, (number + 1) * ROWS):
        off = timedelta(seconds=at * 0.4 + draw.uniform(-0.9, 0.9))
        key = draw.choice(["a", "a", "a", "b", "b", "ä", "c", "d", "e"])
        made.append({"id": at, "k": key, "v": draw.uniform(0, 12), "ts": NOON + off, "n": at})
    return made


def marks(number: int, side: int) -> list[dict[str, object]]:
    """One row that matches nothing and moves the watermark."""
    later = NOON + (number - FILES + 1) * timedelta(hours=1)
    return [{"id": MARK + number, "k": f"mark {side}", "v": -1000.0 * (1 + side), "ts": later, "n": MARK * number}]


def streams(spark, folder: Path, names: str) -> dict[str, DataFrame]:
    def stream(name: str) -> DataFrame:
        raw = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return raw.withWatermark("ts", "2 seconds")

    return {name: stream(name) for name in names}


def run(frame: DataFrame, case: Case, checkpoint: Path, out: Path) -> None:
    query = (
        frame.selectExpr(*case.columns).writeStream.format("parquet").option("path", str(out))
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination(900)
    finally:
        query.stop()


def counted(rows: list[tuple[object, ...]]) -> Counter:
    return Counter(row for row in rows if all(value is None or value < MARK for value in row))


def whole(folder: Path, case: Case) -> Counter:
    with duckdb.connect() as sql:
        for name in case.inputs:
            sql.read_parquet(f"{folder}/{name}/*.parquet").create_view(name)
        return counted(sql.sql(case.oracle).fetchall())


def tasks_in(spark, tasks: int) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost_or_doubled_across_a_change_of_partitions(spark, tmp_path, name):
    case = CASES[name]
    seed = int(os.environ.get("NET_SEED", zlib.crc32(name.encode())))
    print(f"NET_SEED={seed}")
    draw = random.Random(seed)
    cut, before, after = draw.randint(1, FILES - 1), draw.randint(1, 3), draw.randint(1, 4)
    files = {alias: [drawn(draw, alias, number) for number in range(FILES)] for alias in case.inputs}
    for alias in case.inputs:
        for number in range(cut):
            write(tmp_path, alias, number, files[alias][number])
    out, old, new = tmp_path / "out", tmp_path / "old", tmp_path / "new"
    tasks_in(spark, before)
    run(case.join(streams(spark, tmp_path, case.inputs), before), case, old, out)
    kept = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
    frame = case.join(streams(spark, tmp_path, case.inputs), after)
    dt.resume(frame, old, new, partitions=after)
    assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == kept
    held = [
        dt.state(spark, place).where("input IS NOT NULL").groupBy("operator", "input").agg({"rows": "sum"}).collect()
        for place in (old, new)
    ]
    assert sorted(held[0]) == sorted(held[1])
    assert held[0], "nothing was held, so nothing is tested"
    dt.check_checkpoint(frame, new)
    for side, alias in enumerate(case.inputs):
        for number in range(cut, FILES):
            write(tmp_path, alias, number, files[alias][number])
        for number in (FILES, FILES + 1):
            write(tmp_path, alias, number, marks(number, side))
    tasks_in(spark, before)
    run(frame, case, new, out)
    settings = json.loads((max_file(new / "offsets")).read_text().splitlines()[1])["conf"]
    assert settings["spark.sql.shuffle.partitions"] == str(after)
    # By the sink's own log: a micro-batch whose number it knows already would be missing.
    found = counted([tuple(row) for row in spark.read.parquet(str(out)).collect()])
    assert found == whole(tmp_path, case)
    assert found


def max_file(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def small(spark, folder: Path, tasks: int) -> DataFrame:
    return CASES["hash"].join(streams(spark, folder, "AB"), tasks)


def begun(spark, folder: Path) -> Path:
    """The checkpoint of a query that has read one file of each input."""
    draw = random.Random(1)
    for alias in "AB":
        write(folder, alias, 0, drawn(draw, alias, 0))
    tasks_in(spark, 2)
    run(small(spark, folder, 2), CASES["hash"], folder / "old", folder / "out")
    return folder / "old"


@pytest.mark.in_turns(n=4, group="resuming")
def test_a_query_that_was_killed_within_a_micro_batch_ends_it_first(spark, tmp_path):
    """The sink has its rows and skips it: nothing would bring the state of the new checkpoint to where it must be."""
    case, draw = CASES["hash"], random.Random(2)
    old = begun(spark, tmp_path)
    for alias in "AB":
        write(tmp_path, alias, 1, drawn(draw, alias, 1))
    run(small(spark, tmp_path, 2), case, old, tmp_path / "out")
    # As if the process had been killed between the sink and the log of commits.
    last = max_file(old / "commits")
    last.unlink()
    (old / "commits" / f".{last.name}.crc").unlink()
    with pytest.raises(CheckpointError, match=f"micro-batch {last.name} was planned in .* and not committed"):
        dt.resume(small(spark, tmp_path, 3), old, tmp_path / "new", partitions=3)
    assert not (tmp_path / "new").exists()
    run(small(spark, tmp_path, 2), case, old, tmp_path / "out")
    dt.resume(small(spark, tmp_path, 3), old, tmp_path / "new", partitions=3)
    for side, alias in enumerate("AB"):
        write(tmp_path, alias, 2, drawn(draw, alias, 2))
        write(tmp_path, alias, FILES, marks(FILES, side))
    run(small(spark, tmp_path, 3), case, tmp_path / "new", tmp_path / "out")
    found = counted([tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()])
    assert found == whole(tmp_path, case)


@pytest.mark.in_turns(n=4, group="resuming")
def test_what_cannot_go_on_is_refused_before_anything_is_written(spark, tmp_path):
    old, new = begun(spark, tmp_path), tmp_path / "new"
    frame = small(spark, tmp_path, 3)
    with pytest.raises(CheckpointError, match="no micro-batch has been committed in"):
        dt.resume(frame, tmp_path / "nowhere", new)
    with pytest.raises(dt.ArgumentError, match="is on s3:"):
        dt.resume(frame, "s3://bucket/old", new)
    with pytest.raises(dt.ArgumentError, match="partitions=0"):
        dt.resume(frame, old, new, partitions=0)
    with pytest.raises(dt.ArgumentError, match="no Dovetail join returned"):
        dt.resume(frame.select("A"), old, new)
    with pytest.raises(CheckpointError, match="exists"):
        dt.resume(frame, old, tmp_path / "A")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "running")).start()
    try:
        query.processAllAvailable()
        with pytest.raises(CheckpointError, match="still runs on"):
            dt.resume(frame, tmp_path / "running", new)
    finally:
        query.stop()
    shutil.copytree(old, tmp_path / "newer")
    last = max_file(tmp_path / "newer" / "commits")
    last.write_text(last.read_text().replace("v1", "v2"))
    with pytest.raises(CheckpointError, match="is of version 'v2'"):
        dt.resume(frame, tmp_path / "newer", new)
    assert not new.exists()


@pytest.mark.in_turns(n=4, group="resuming")
def test_a_checkpoint_that_was_cut_off_cannot_be_started(spark, tmp_path, monkeypatch):
    old, new = begun(spark, tmp_path), tmp_path / "new"
    frame = small(spark, tmp_path, 3)
    monkeypatch.setattr("dovetail.spark.checkpoint_files.CheckpointFiles.finish", lambda *_: None)
    dt.resume(frame, old, new, partitions=3)
    assert (new / "metadata").read_text() == UNFINISHED
    # Which exception it is differs between versions of Spark; that the query does not run is what counts.
    before = sorted(file.name for file in (tmp_path / "out").rglob("*"))
    with pytest.raises(Exception, match=r"(?i)unfinished|metadata|unrecognized token"):
        run(frame, CASES["hash"], new, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").rglob("*")) == before
    with pytest.raises(CheckpointError) as again:
        dt.resume(frame, old, new, partitions=3)
    assert again.value.hint == "an earlier attempt was cut off there; remove the folder"


@pytest.mark.in_turns(n=4, group="resuming")
def test_a_failure_leaves_no_folder_behind(spark, tmp_path, monkeypatch):
    old, new = begun(spark, tmp_path), tmp_path / "new"

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("dovetail.spark.resume.take_state", full)
    with pytest.raises(OSError, match="no space left"):
        dt.resume(small(spark, tmp_path, 3), old, new, partitions=3)
    assert not new.exists()
