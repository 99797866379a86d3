"""Job files on Spark."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from dovetail.command.migrate import changed as after
from dovetail.datasets.files import write
from dovetail.errors import JobError
from dovetail.jobs import read_job
from dovetail.jobs.build import BuiltJob, follow, join_frames
from dovetail.jobs.calls import join_keys

THETA = """\
inputs:
  R: {format: parquet, path: R, where: x < 50}
  S:
    format: parquet
    path: S
    select: [x AS y]
join:
  kind: theta
  on: ABS(R.x - S.y) <= 1
  select: [R.x, S.y]
output:
  format: parquet
  path: out
  mode: error
"""

CAMERAS = """\
mode: stream
inputs:
  A: &camera
    format: parquet
    path: A
    schema: obj long, speed long, ts timestamp
    options: {maxFilesPerTrigger: 1}
    watermark: {column: ts, delay: 5 seconds}
  B: {<<: *camera, path: B}
join:
  kind: window
  on: A.obj = B.obj
  time: ts
  within: {"A, B": {after: 5 seconds}}
  partitions: 1
  select: [A.obj, A.ts AS first, B.ts AS second]
output: {format: parquet, path: out, checkpoint: chk, mode: {batch: overwrite}}
"""


@pytest.fixture
def folder(tmp_path):
    for name, numbers in (("R", range(100)), ("S", range(0, 100, 2))):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"x": list(numbers)}), tmp_path / name / "0.parquet")
    return tmp_path


def job_of(folder, text, **options):
    return read_job(folder / "job.yaml", text=text, **options)


def test_a_batch_job_writes_and_counts(spark, folder):
    built = BuiltJob(job_of(folder, THETA), spark)
    assert "theta join, batch" in built.plan()
    assert built.schema() == "x bigint, y bigint"
    built.write()
    written = pq.read_table(folder / "out").to_pylist()
    expected = [(x, y) for x in range(50) for y in range(0, 100, 2) if abs(x - y) <= 1]
    assert sorted((row["x"], row["y"]) for row in written) == expected
    assert built.counters()["results"] == len(expected)
    # The output is there now, and its mode is to refuse that.
    with pytest.raises(JobError, match=r"job.yaml:14: output: .*(?i:exists)"):
        built.write()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("where: x < 50", "where: z < 50", 2, ["inputs.R.where", "z"]),
        ("select: [x AS y]", "select: [z AS y]", 6, ["inputs.S.select", "z"]),
        ("ABS(R.x - S.y) <= 1", "ABS(R.x - S.z) <= 1", 9, ["S.z", "one of its columns y"]),
        ("ABS(R.x - S.y) <= 1", "ABS(R.x - S.y <= 1", 9, ["ABS("]),
        ("ABS(R.x - S.y) <= 1", "|\n    R.x < S.y\n    AND R.x <<>> 3", 11, ["R.x <<>> 3", "^"]),
        ("  select: [R.x, S.y]", "  select: [R.q]", 10, ["q"]),
        ("  kind: theta\n", "  kind: theta\n  partitions: many\n", 9, ["partitions", "many"]),
        ("  kind: theta\n", "  kind: theta\n  how: lefty\n", 9, ["lefty", "'left'"]),
        ("{format: parquet, path: R", "{format: parkett, path: R", 2, ["inputs.R", "parkett"]),
        ("    path: S\n", "    path: S\n    schema: x loong\n", 6, ["inputs.S.schema", "loong"]),
    ],
)
def test_what_spark_refuses_names_the_line(old, new, line, words, spark, folder):
    assert THETA.count(old) == 1
    with pytest.raises(JobError) as error:
        BuiltJob(job_of(folder, THETA.replace(old, new)), spark)
    message = str(error.value)
    assert message.startswith(f"{folder / 'job.yaml'}:{line}: "), message
    for word in words:
        assert word in message, message


def test_a_statement_gives_what_the_call_gives(spark, folder):
    text = THETA.replace(
        "  kind: theta\n  on: ABS(R.x - S.y) <= 1\n", "  sql: SELECT R.x, S.y FROM R JOIN S ON ABS(R.x - S.y) <= 1\n"
    )
    found = BuiltJob(job_of(folder, text), spark).frame
    called = BuiltJob(job_of(folder, THETA), spark).frame
    assert found.count() > 0
    assert sorted(found.collect()) == sorted(called.collect())


def test_a_stream_gives_what_the_batch_gives_and_reports(spark, tmp_path):
    write("cameras", tmp_path, batches=2, objects=40)
    records = []
    query = BuiltJob(job_of(tmp_path, CAMERAS), spark).start()
    follow(query, records.append, lambda: False)
    streamed = pq.read_table(tmp_path / "out").to_pylist()
    assert len(streamed) == sum(record["results"] or 0 for record in records) > 0
    assert sum(record["rows"] for record in records) == sum(
        pq.read_table(tmp_path / name).num_rows for name in ("A", "B")
    )
    json.dumps(records)
    BuiltJob(job_of(tmp_path, CAMERAS, mode="batch"), spark).write()
    whole = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted(map(str, streamed)) == sorted(map(str, whole))


@pytest.mark.in_turns(group="several seconds")
def test_a_changed_join_on_an_old_checkpoint_is_refused_before_it_starts(spark, tmp_path):
    write("cameras", tmp_path, batches=1, objects=10)
    # The state of one cell is in one of the partitions, and any of the others may come first.
    assert int(spark.conf.get("spark.sql.shuffle.partitions")) > 1
    follow(BuiltJob(job_of(tmp_path, CAMERAS), spark).start(), lambda record: None, lambda: False)
    batches = len(list((tmp_path / "chk" / "offsets").iterdir()))
    changed = CAMERAS.replace("{after: 5 seconds}", "{after: 10 seconds}")
    with pytest.raises(JobError) as error:
        BuiltJob(job_of(tmp_path, changed), spark).start()
    first, line, *_ = str(error.value).splitlines()
    assert first.endswith(
        "job.yaml:17: output.checkpoint: the checkpoint belongs to another join: "
        "the window was 'B at most 5 seconds after A' and is 'B at most 10 seconds after A'"
    )
    assert "checkpoint: chk" in line
    assert "start this join from a new checkpoint" in str(error.value)
    assert len(list((tmp_path / "chk" / "offsets").iterdir())) == batches
    follow(BuiltJob(job_of(tmp_path, CAMERAS), spark).start(), lambda record: None, lambda: False)
    # What `dovetail migrate chk new --job job.yaml` does.
    screen = io.StringIO()
    after(Console(file=screen), spark, str(tmp_path / "chk"), str(tmp_path / "new"), job_of(tmp_path, changed), None)
    said = screen.getvalue().splitlines()
    assert said[1] == "the window was 'B at most 5 seconds after A' and is 'B at most 10 seconds after A'"
    assert said[2].startswith("complete from 20")
    moved = changed.replace("checkpoint: chk", "checkpoint: new")
    follow(BuiltJob(job_of(tmp_path, moved), spark).start(), lambda record: None, lambda: False)


STATEMENT = (
    CAMERAS[: CAMERAS.index("join:")]
    + """\
join:
  sql: |
    SELECT A.obj, A.ts AS first, B.ts AS second
    FROM A, B
    WINDOW = 5 SECONDS SHED HARVEST TARGET 1 SECOND
    WHERE A.obj = B.obj
output: {format: parquet, path: out, checkpoint: chk, mode: {batch: overwrite}}
"""
)


def test_a_statement_that_sheds_is_exact_in_batch(spark, tmp_path):
    """Static tables set no pace to keep up with."""
    write("cameras", tmp_path, batches=2, objects=40)
    BuiltJob(job_of(tmp_path, STATEMENT, mode="batch"), spark).write()
    found = pq.read_table(tmp_path / "out").to_pylist()
    a, b = (pq.read_table(tmp_path / name).to_pylist() for name in "AB")
    near = [
        (one["obj"], one["ts"].replace(tzinfo=None), other["ts"].replace(tzinfo=None))
        for one in a
        for other in b
        if one["obj"] == other["obj"] and abs((one["ts"] - other["ts"]).total_seconds()) <= 5
    ]
    assert sorted(
        (row["obj"], *(row[name].replace(tzinfo=None) for name in ("first", "second"))) for row in found
    ) == sorted(near)
    assert near
    assert "shed" in BuiltJob(job_of(tmp_path, STATEMENT), spark).plan()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (THETA.replace("  select: [R.x, S.y]\n", ""), "select: [R.x, S.y, ...] under join"),
        (
            THETA.replace(
                "kind: theta\n  on: ABS(R.x - S.y) <= 1\n  select: [R.x, S.y]", "sql: SELECT struct(R.x) AS r FROM R, S"
            ),
            "SELECT r.x, ... in the statement",
        ),
    ],
    ids=["structs of a join", "a struct of a statement"],
)
def test_structs_in_csv_get_a_hint(spark, folder, text, hint):
    text = text.replace("  format: parquet\n  path: out", "  format: csv\n  path: out")
    with pytest.raises(JobError, match=r"job.yaml:\d+: output is csv, and the column \w+ is struct") as error:
        BuiltJob(job_of(folder, text), spark)
    assert hint in str(error.value)
    assert "    format: csv" in str(error.value)


def test_an_output_mode_that_a_stream_cannot_have_names_its_line(spark, tmp_path):
    write("cameras", tmp_path, batches=1, objects=5)
    text = CAMERAS.replace("mode: {batch: overwrite}}", "\n  mode: {stream: complete}}")
    assert text != CAMERAS
    with pytest.raises(JobError, match=r"job.yaml:\d+: output: .*OUTPUT_MODE") as error:
        BuiltJob(job_of(tmp_path, text), spark).start()
    assert "  mode: {stream: complete}}" in str(error.value)


def test_a_stream_stops_when_asked(spark, tmp_path):
    write("cameras", tmp_path, batches=2, objects=10)
    text = CAMERAS.replace("checkpoint: chk,", "checkpoint: chk, trigger: 1 second,")
    query = BuiltJob(job_of(tmp_path, text), spark).start()
    records = []
    follow(query, records.append, lambda: bool(records))
    assert records
    assert not query.isActive
    assert query.exception() is None


CALLS = {
    "theta": "on: R.x < S.x",
    "window": "on: R.x = S.x\n  time: x\n  within: 5",
    "asof": "time: x",
    "bestmatch": "on: [{closest: x, within: 3}]",
    "approx": "on: R.x = S.x\n  memory: 100",
}
ODD = ["", "-1", "word", "[1, two]", "{a: 1}"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLS)
def test_an_odd_argument_is_taken_or_refused_with_its_line(kind, spark, folder):
    """No value of YAML gets through to a traceback."""
    frames = {name: spark.read.parquet(str(folder / name)) for name in "RS"}
    for key in join_keys(kind):
        for value in ODD:
            lines = [line for line in CALLS[kind].split("\n  ") if not line.startswith(f"{key}:")]
            join = "\n  ".join([f"kind: {kind}", *lines, f"{key}: {value}"])
            text = (
                "inputs: {R: {format: parquet, path: R}, S: {format: parquet, path: S}}\n"
                f"join:\n  {join}\noutput: {{format: noop}}\n"
            )
            try:
                join_frames(job_of(folder, text).join, frames)
            except JobError as error:
                message = str(error)
            else:
                continue
            assert message.startswith(f"{folder / 'job.yaml'}:"), (key, value, message)


AGGREGATE = """\
inputs:
  R: {format: parquet, path: R}
  S: {format: parquet, path: S}
join:
  kind: aggregate
  on: S.x BETWEEN R.x - 3 AND R.x
  by: R
  agg: {n: count(*), total: sum(S.x)}
  select: [R.x, n, total]
output: {format: parquet, path: out, mode: {batch: overwrite}}
"""


def test_a_job_aggregates(spark, folder):
    built = BuiltJob(job_of(folder, AGGREGATE), spark)
    assert "aggregate join, batch" in built.plan()
    built.write()
    rows = {row["x"]: (row["n"], row["total"]) for row in pq.read_table(folder / "out").to_pylist()}
    assert len(rows) == 100
    assert (rows[0], rows[9]) == ((1, 0), (2, 14))
    with pytest.raises(JobError, match=r"job.yaml:\d+: .*S\.z"):
        BuiltJob(job_of(folder, AGGREGATE.replace("sum(S.x)", "sum(S.z)")), spark)
    window = 'time: x\n  within: {"R, S": [-3, 0]}'
    within = BuiltJob(job_of(folder, AGGREGATE.replace("on: S.x BETWEEN R.x - 3 AND R.x", window)), spark)
    within.write()
    again = {row["x"]: (row["n"], row["total"]) for row in pq.read_table(folder / "out").to_pylist()}
    assert again == rows


NEAREST = """\
inputs:
  R: {format: parquet, path: R}
  S: {format: parquet, path: S}
join:
  kind: nearest
  on: ABS(R.x - S.x)
  k: 2
  ties: first
  within: 6
  select: [R.x, S.x AS near, distance, rank]
output: {format: parquet, path: out}
"""


def test_a_job_finds_the_nearest(spark, folder):
    built = BuiltJob(job_of(folder, NEAREST), spark)
    assert "nearest join, batch" in built.plan()
    assert "at most 6 away" in built.plan()
    built.write()
    s = sorted({row["x"] for row in pq.read_table(folder / "S").to_pylist()})
    found: dict[int, list[int]] = {}
    for row in pq.read_table(folder / "out").to_pylist():
        assert row["distance"] == abs(row["x"] - row["near"])
        found.setdefault(row["x"], []).append(row["distance"])
    assert found
    for x, fars in found.items():
        assert sorted(fars) == sorted(far for far in (abs(x - other) for other in s) if far <= 6)[:2]
    with pytest.raises(JobError, match=r"job.yaml:\d+: .*holds no distance"):
        BuiltJob(job_of(folder, NEAREST.replace("ABS(R.x - S.x)", "R.x = S.x")), spark)
