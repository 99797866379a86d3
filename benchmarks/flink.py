"""Apache Flink's interval joins beside ours and Spark's, in one run on the same rows.

    python benchmarks/flink.py install
    python benchmarks/flink.py [--rows 100000] [--batches 5] [--only two,three] [--checkpoint 10] [--write]

Flink runs in an environment and a process of its own, on a local cluster with two slots.  Its figure is all rows over
the duration of the job as Flink reports it, the median of three jobs after a first one in the same JVM; with RocksDB,
which is too slow for that, of one job.  The start of the cluster is no part of it.  The figure of Spark and Dovetail is
the rows of a micro-batch over the median warm one.  Sinks drop the rows: ``blackhole`` in Flink, no-op in Spark.  Every
engine's count equals DuckDB's; Flink's is that of one more job for each state backend, since its sink cannot count.

All engines read Parquet, and reading alone is measured too.  Flink's file source gives out files in no particular
order, and rows that are late for that reason would be lost, so each input is two files for Flink, one a slot: every
second row, in order of time.  Event times are whole milliseconds, the finest that Flink has.

Flink refuses a second interval join with bounds on two event times of one side.  So the first join keeps A.ts as event
time and casts B.ts to a plain column, which the second join compares like any other.  The plans are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CORES = 2
TIMES = 3
PINS = ("apache-flink==2.3.0",)
JARS = "flink-parquet"
"""The set below requirements/jars."""
HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "build" / "flink"
PYTHON = PLACE / "bin" / "python"
PATIENCE = 1800
"""Seconds for one job: a limit for hangs."""
NAMES = {"two": "AB", "three": "ABC"}
BACKENDS = {"hashmap": "heap", "rocksdb": "RocksDB"}
CONF = {
    "parallelism.default": str(CORES),
    "taskmanager.numberOfTaskSlots": str(CORES),
    "taskmanager.memory.managed.size": "2g",
    "taskmanager.memory.network.max": "256m",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.bind-port": "0",
    "execution.checkpointing.incremental": "true",
    # A job would otherwise wait for one more checkpoint at its end, up to the whole interval.
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
}
COUNTING = {
    # Otherwise the count comes out again for every row.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "1000000",
}
COLUMNS = "id BIGINT, k BIGINT, ts TIMESTAMP(3), v DOUBLE"
PAIRS = """
    SELECT A.id AS a_id, A.ts AS a_ts, A.v AS a_v,
           B.id AS b_id, CAST(B.ts AS TIMESTAMP(3)) AS b_ts, B.v AS b_v, B.k AS b_k
    FROM A JOIN B ON A.k = B.k AND B.ts BETWEEN A.ts - INTERVAL '10' SECOND AND A.ts + INTERVAL '10' SECOND"""
TRIPLES = f"""
    SELECT P.*, C.id AS c_id, CAST(C.ts AS TIMESTAMP(3)) AS c_ts, C.v AS c_v
    FROM ({PAIRS}) AS P JOIN C ON P.b_k = C.k
    AND C.ts BETWEEN P.a_ts - INTERVAL '10' SECOND AND P.a_ts + INTERVAL '10' SECOND
    AND CAST(C.ts AS TIMESTAMP(3)) BETWEEN P.b_ts - INTERVAL '10' SECOND AND P.b_ts + INTERVAL '10' SECOND"""
PAIR = "a_id BIGINT, a_ts TIMESTAMP(3), a_v DOUBLE, b_id BIGINT, b_ts TIMESTAMP(3), b_v DOUBLE, b_k BIGINT"
QUERIES = {"AB": (PAIRS, PAIR), "ABC": (TRIPLES, f"{PAIR}, c_id BIGINT, c_ts TIMESTAMP(3), c_v DOUBLE")}


def install() -> None:
    """Make Flink's environment, and fetch its Parquet format."""
    environment = os.environ | {"UV_SYSTEM_CERTS": "1"}
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    index = os.environ.get("PIP_INDEX_URL") or subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if index:
        environment["UV_DEFAULT_INDEX"] = index
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(PLACE)], check=True, env=environment)
    subprocess.run([*uv, "pip", "install", "--python", str(PYTHON), *PINS], check=True, env=environment)
    archives()


def archives() -> list[str]:
    """Flink's Parquet format, and the Hadoop that it needs, which PySpark brings."""
    import pyspark

    fetch = [sys.executable, str(HERE.parent / "scripts" / "fetch_jars.py"), JARS]
    found = subprocess.run(fetch, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return found + [str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")]


class Flink:
    """The process, from the other end."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def __enter__(self) -> Flink:
        # On the class path of the JVM: Flink loads and compiles `pipeline.jars` again for every job.
        environment = {"HADOOP_CLASSPATH": os.pathsep.join(archives()), "JVM_ARGS": "-Xms4g -Xmx4g"}
        self._process = subprocess.Popen(
            [str(PYTHON), __file__, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | environment,
            # A group of its own, so that its JVM ends with it.
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, what: str, folder: Path, names: str, backend: str = "hashmap", checkpoint: int = 0) -> Any:
        """Run a job: `count` gives its rows, `join` and `read` give its seconds and how many checkpoints it made."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"what": what, "folder": str(folder), "names": names, "backend": backend, "checkpoint": checkpoint}
        self._process.stdin.write(json.dumps(request | {"scratch": str(self._scratch)}) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError(f"Flink's job did not end within {PATIENCE} s: {request}")
        found = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in found:
            raise RuntimeError(f"{request}: {found['error']}")
        return found["answer"]


def _serve() -> None:
    """Answer requests, in Flink's environment."""
    # Flink prints; what is for the other end goes to a copy of the standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answers.write(json.dumps({"answer": _job(**json.loads(line))}) + "\n")
        except Exception as error:  # the other end raises it
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")


def _job(what: str, folder: str, names: str, backend: str, checkpoint: int, scratch: str) -> Any:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=scratch))
    conf = CONF | {"state.backend.type": backend, "io.tmp.dirs": scratch} | (COUNTING if what == "count" else {})
    if checkpoint:
        conf |= {"execution.checkpointing.interval": f"{checkpoint} s"}
        conf |= {"execution.checkpointing.dir": checkpoints.as_uri()}
    configuration = Configuration()
    for key, value in conf.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    # A watermark of t says that no more rows of t itself will come, hence the millisecond.
    mark = "" if what == "read" else ", WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND"
    for name in names:
        source = f"'connector' = 'filesystem', 'path' = 'file://{folder}/{name}', 'format' = 'parquet'"
        options = f"{source}, 'parquet.utc-timezone' = 'true'"
        tables.execute_sql(f"CREATE TABLE {name} ({COLUMNS}{mark}) WITH ({options})")
    query, columns = QUERIES[names]
    if what == "count":
        plan = tables.explain_sql(query).partition("== Optimized Execution Plan ==")[2]
        assert plan.count(" IntervalJoin(") + plan.count("\nIntervalJoin(") == len(names) - 1, plan
        with tables.execute_sql(f"SELECT COUNT(*) FROM ({query})").collect() as counts:
            return [count[0] for count in counts][-1]
    tables.execute_sql(f"CREATE TABLE sink ({COLUMNS if what == 'read' else columns}) WITH ('connector' = 'blackhole')")
    job = tables.create_statement_set()
    for each in [f"SELECT * FROM {name}" for name in names] if what == "read" else [query]:
        job.add_insert_sql(f"INSERT INTO sink {each}")
    client = job.execute().get_job_client()
    assert client is not None
    ended = client.get_job_execution_result()
    made = 0
    # Flink deletes its checkpoints at the end, so they are counted meanwhile.
    while not ended.done():
        made = max([made, *(int(file.parent.name[4:]) for file in checkpoints.glob("*/chk-*/_metadata"))])
        time.sleep(0.05)
    seconds = ended.result().get_net_runtime() / 1000
    shutil.rmtree(checkpoints, ignore_errors=True)
    return [seconds, made]


def write_files(root: Path, names: str, rows: int, batches: int) -> None:
    """The files of `write_inputs` in whole milliseconds, and below `flink` the same rows in two files an input."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from _streams import write_inputs

    write_inputs(root, names, rows, batches)
    for name in names:
        tables = []
        for file in sorted((root / name).glob("*.parquet")):
            written = file.stat().st_mtime
            table = pq.read_table(file)
            coarse = pc.floor_temporal(table["ts"], unit="millisecond")
            tables.append(table.set_column(table.schema.get_field_index("ts"), "ts", coarse))
            pq.write_table(tables[-1], file, row_group_size=max(1, rows // 2))
            os.utime(file, (written, written))
        whole = pa.concat_tables(tables)
        folder = root / "flink" / name
        folder.mkdir(parents=True)
        for part in range(CORES):
            every = whole.take(pa.array(range(part, len(whole), CORES)))
            pq.write_table(every, folder / f"{part}.parquet", row_group_size=max(1, rows // 2))


def measure(spark: Any, flink: Flink, root: Path, names: str, rows: int, batches: int, checkpoint: int) -> list[Any]:
    """The rows of the table for one join."""
    from functools import partial
    from itertools import pairwise

    from _streams import console, run

    from window import expected, ours, three_way_own, two_way_own

    write_files(root, names, rows, batches)
    on = " AND ".join(f"{a}.k = {b}.k" for a, b in pairwise(names))
    count, total = expected(root, names, on), len(names) * rows * batches
    join = {2: "two-way", 3: "three-way"}[len(names)]
    lines: list[list[str]] = []

    def add(what: str, engine: str, state: str, commits: str, seconds: float, of: int) -> None:
        lines.append([what, engine, state, commits, f"{seconds:.2f} s", f"{of / seconds:,.0f}"])

    streams = [
        ("Dovetail", partial(ours, on=on), "ours"),
        ("Spark", {2: two_way_own, 3: three_way_own}[len(names)], "memory"),
    ]
    for engine, build, store in streams:
        run(spark, root, names, build, store, f"{engine}, rehearsal")
    # RocksDB is too far behind to be run twice.
    for engine, build, store in [*streams, ("Spark", streams[1][1], "rocksdb")]:
        found = run(spark, root, names, build, store, f"{engine}, {store}")
        assert found.rows == count, f"{engine}: {found.rows} rows instead of {count}"
        state = "heap" if store == "memory" else "RocksDB"
        add(join, engine, state, "every micro-batch", found.warm, len(names) * rows)

    def job(what: str, label: str, *given: Any, times: int = TIMES) -> tuple[float, int]:
        laps = [flink.ask(what, root / "flink", names, *given) for _ in range(min(times, 2) - 1 + times)]
        shown = " ".join(f"{seconds:.2f}" for seconds, _ in laps)
        console.print(f"  {label:<24} {max(made for _, made in laps)} checkpoints   {shown}", highlight=False)
        return statistics.median(seconds for seconds, _ in laps[-times:]), max(made for _, made in laps[-times:])

    for backend, state in BACKENDS.items():
        rows_found = flink.ask("count", root / "flink", names, backend)
        assert rows_found == count, f"Flink, {state}: {rows_found} rows instead of {count}"
        for every in (0, checkpoint):
            times = 1 if backend == "rocksdb" else TIMES
            seconds, made = job("join", f"Flink, {state}, {every} s", backend, every, times=times)
            commits = f"every {every} s (number {made} within the job)" if every else "none"
            add(join, "Flink", state, commits, seconds, total)
    add(f"{join}, reading alone", "Flink", "", "none", job("read", "Flink, reading alone")[0], total)
    laps = []
    for _ in range(1 + TIMES):
        began = time.perf_counter()
        for name in names:
            spark.read.parquet(str(root / name)).write.format("noop").mode("overwrite").save()
        laps.append(time.perf_counter() - began)
    add(f"{join}, reading alone", "Spark", "", "none", statistics.median(laps[1:]), total)
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Flink's interval joins beside ours and Spark's.")
    parser.add_argument("command", nargs="?", choices=["install", "serve"], help="install: make Flink's environment")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each input in a micro-batch")
    parser.add_argument("--batches", type=int, default=5, help="micro-batches")
    parser.add_argument("--only", default="two,three", help="some of: two,three")
    parser.add_argument("--checkpoint", type=int, default=10, help="seconds between Flink's checkpoints")
    parser.add_argument("--write", action="store_true", help="write the table to flink.md")
    given = parser.parse_args()
    if given.command is not None:
        {"install": install, "serve": _serve}[given.command]()
        return
    if not PYTHON.is_file():
        print("Flink is not installed: python benchmarks/flink.py install")
        return
    # Only here: Flink's environment, where this file runs too, has none of them.
    from _timing import show

    import dovetail as dt

    conf = {"spark.sql.shuffle.partitions": CORES}
    spark = dt.session("flink-benchmark", master=f"local[{CORES}]", driver_memory="6g", conf=conf)
    root = Path(tempfile.mkdtemp(prefix="dovetail-flink-"))
    lines = []
    try:
        with Flink(root) as flink:
            for case in given.only.split(","):
                print(case)
                lines += measure(spark, flink, root / case, NAMES[case], given.rows, given.batches, given.checkpoint)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        version = spark.version
        spark.stop()
    title = (
        f"Flink {PINS[0].partition('==')[2]}, Spark {version} and Dovetail: {given.rows:,} rows of each input in 10 s"
    )
    head = ["join", "engine", "state", "commits", "seconds", "rows/s"]
    show(head, lines, title=title, file=HERE / "flink.md" if given.write else None)


if __name__ == "__main__":
    main()
