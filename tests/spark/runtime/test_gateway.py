"""What of the JVM's chatter reaches the screen."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.spark.runtime.gateway import Screen

WORKER = b"Streaming TransformWithStateInPandas Python worker finish init stage of Python runner.\n"
NOISE = [
    b"WARNING: Using incubator modules: jdk.incubator.vector\n",
    b"Starting Streaming TransformWithStateInPandas Python worker.\n\n",
    WORKER + b"\n",
    WORKER,
]
SAID = [
    b"12:00:00 ERROR TaskSetManager: lost\n",
    b"\n",
    b"\r[Stage 0:>   (0 + 2) / 4]",
    b"Starting over\n",
    b"WARNING: x\n",
    b"Streaming\n",
    b"\tat java.base/x\r\n",
    b"not Starting Streaming TransformWithStateInPandas Python worker\n",
    b"\xff\x00\n",
]


@example(parts=[(False, b"\r[Stage 0:>   (0 + 2) / 4]"), (True, WORKER), (False, b"\n")], cuts=[])
@example(parts=[(True, WORKER), (False, b"\r[Stage 0:>   (0 + 2) / 4]")], cuts=[])
@given(
    parts=st.lists(
        st.sampled_from([*((True, noise) for noise in NOISE), *((False, said) for said in SAID)]), max_size=12
    ),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_any_cut_into_pieces_passes_what_is_said_and_nothing_else(parts, cuts):
    kept, written, fresh, silenced = b"", b"", True, False
    for noise, text in parts:
        # A line that begins behind a progress bar is a line of its own, if the bar went back to its beginning.
        noise = noise and fresh
        # The blank line behind a line of a worker goes with it, and stays with one that stays.
        blank = text.strip() == b"" and written.endswith(WORKER) and silenced
        silenced = noise or blank
        written += text
        if not silenced:
            kept += text
        fresh = text.endswith((b"\n", b"\r"))
    screen, passed = Screen(), b""
    edges = sorted({0, len(written), *(cut for cut in cuts if cut < len(written))})
    for first, last in pairwise(edges):
        passed += screen.passed(written[first:last])
    assert passed + screen.rest() == kept


def test_what_has_no_end_of_line_passes_at_once():
    screen = Screen()
    assert screen.passed(b"\r[Stage 1:>") == b"\r[Stage 1:>"
    assert screen.passed(b"=>") == b"=>"


PROGRAM = """
import pyarrow as pa
import dovetail as dt

spark = dt.session(master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
rows = spark.range(10).selectExpr("id", "CAST(id AS TIMESTAMP) AS ts")
rows.write.parquet("rows")
stream = spark.readStream.schema(rows.schema).parquet("rows").withWatermark("ts", "1 second")
pairs = dt.window_join({"A": stream, "B": stream}, on="A.id = B.id", time="ts", within="5 seconds", partitions=1)
query = pairs.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination()
print(dt.metrics(query)["results"])


def many(batches):
    # More than a socket holds, so that the worker still writes when Spark hangs up.
    for _ in batches:
        for _ in range(200):
            yield pa.RecordBatch.from_pydict({"x": pa.array(range(20_000))})


print(len(spark.range(0, 4, 1, 2).mapInArrow(many, "x long").limit(5).collect()))
spark.stop()
"""


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
def test_a_session_shows_nothing_of_workers_that_do_well(tmp_path):
    """The workers of a stateful operator print lines, and a worker that Spark hangs up on prints a trace."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=True, timeout=900
    )
    assert (done.stdout, done.stderr) == ("10\n5\n", "")


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
def test_a_session_shows_what_went_wrong(tmp_path):
    program = """
import dovetail as dt

spark = dt.session(master="local[1]")


def failing(batches):
    import sys

    print("a worker has something to say", file=sys.stderr, flush=True)
    raise ZeroDivisionError("told")
    yield


spark.range(3).mapInArrow(failing, "x long").collect()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=900
    )
    assert done.returncode == 1
    assert "a worker has something to say" in done.stderr
    assert "ZeroDivisionError: told" in done.stderr


SHELTERED = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path
from dovetail.spark.runtime.session import open_session

spark = open_session(master="local[2]", sheltered=sys.argv[1] == "sheltered")


def same(batches):
    yield from batches


def count():
    return len(spark.range(0, 4, 1, 2).mapInArrow(same, "id long").collect())


count()
family = [os.getpid()]
for pid in family:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            family += map(int, (task / "children").read_text().split())
print(*family[1:], flush=True)
for pid in family[1:]:
    os.kill(pid, signal.SIGTERM)
print(count())
"""


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["sheltered", "plain"])
def test_sigterm_leaves_the_processes_of_a_sheltered_session_alone(kind, tmp_path):
    """A service manager sends it to all processes of a service; the program decides when they end."""
    done = subprocess.run(
        [sys.executable, "-c", SHELTERED, kind], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=900
    )
    processes, *counted = done.stdout.splitlines()
    assert len(processes.split()) >= 4, "the JVM, a daemon and two workers"
    assert counted == (["4"] if kind == "sheltered" else [])
    if kind == "sheltered":
        assert (done.returncode, done.stderr) == (0, "")
    # None of them outlives the program, which did not even stop its session.
    for _ in range(600):
        left = [pid for pid in processes.split() if Path(f"/proc/{pid}/cmdline").exists()]
        if not left:
            break
        time.sleep(0.1)
    assert not left
