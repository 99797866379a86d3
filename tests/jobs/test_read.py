"""Job files: what they say, and what a broken one is told."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail as dt
from dovetail.errors import JobError
from dovetail.jobs import read_job
from dovetail.jobs.read import check_paths

GOOD = """\
name: cameras
mode: stream
variables:
  folder: data
spark:
  master: local[2]
  conf: {spark.sql.shuffle.partitions: 2}
inputs:
  A: &camera
    format: parquet
    path: ${folder}/A
    schema: obj long, ts timestamp
    options: {maxFilesPerTrigger: 1, mergeSchema: true}
    watermark: {column: ts, delay: 5 seconds}
  B:
    <<: *camera
    path: ${folder}/B
join:
  kind: window
  on: A.obj = B.obj
  time: ts
  within: {"A, B": {after: 5 seconds}}
  select: [A.obj, B.ts AS later]
output:
  format: parquet
  path: out
  mode: {batch: overwrite, stream: append}
  trigger: 10 seconds
  checkpoint: chk
"""


def read(text, tmp_path, **options):
    return read_job(tmp_path / "job.yaml", text=text, **options)


class TestAGoodFile:
    def test_may_bound_the_future(self, tmp_path):
        job = read(GOOD.replace("delay: 5 seconds}", "delay: 5 seconds, max_ahead: 1 hour}"), tmp_path)
        assert job.inputs["B"].watermark.max_ahead == "1 hour"
        assert ("input B", f"parquet {tmp_path}/data/B; watermark ts, 5 seconds, at most 1 hour ahead") in job.summary()

    @pytest.mark.parametrize(
        ("given", "shed"),
        [
            ("harvest", dt.Harvest()),
            ("{harvest: {target: 5, basic_window: 1 second}}", dt.Harvest(target=5, basic_window="1 second")),
            ("{random_drop: {throttle: 0.5}}", dt.RandomDrop(throttle=0.5)),
        ],
    )
    def test_sheds_in_a_stream(self, given, shed, tmp_path):
        text = GOOD.replace("  time: ts\n", f"  time: ts\n  shed: {given}\n")
        assert read(text, tmp_path).join.arguments["shed"] == shed
        assert "shed" not in read(text, tmp_path, mode="batch").join.arguments

    @pytest.mark.parametrize(
        ("given", "algorithm"),
        [
            ("prefap", "prefap"),
            ("{name: prefap, p: 20, prefilter: false}", dt.Prefap(p=20, prefilter=False)),
            ("{name: ftj, w: 1000}", dt.FTJ(w=1000)),
            ("{name: obt}", dt.OBT()),
        ],
    )
    def test_published_partitionings(self, given, algorithm, tmp_path):
        text = f"""
inputs: {{R: {{format: csv, path: r}}, S: {{format: csv, path: s}}}}
join: {{kind: theta, on: R.x < S.x, algorithm: {given}}}
output: {{format: parquet, path: out}}
"""
        assert read(text, tmp_path).join.arguments["algorithm"] == algorithm

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("{p: 3}", "join.algorithm is a mapping"),
            ("{name: magic, p: 3}", "join.algorithm is a mapping"),
            ("{name: obt, w: 3}", "join.algorithm has no key 'w'"),
            ("{name: obt, p: 0}", "p=0 is not a number of partitions"),
        ],
    )
    def test_partitionings_that_nobody_published(self, given, said, tmp_path):
        text = f"""
inputs: {{R: {{format: csv, path: r}}, S: {{format: csv, path: s}}}}
join: {{kind: theta, on: R.x < S.x, algorithm: {given}}}
output: {{format: parquet, path: out}}
"""
        with pytest.raises(JobError, match=said):
            read(text, tmp_path)

    def test_is_read(self, tmp_path):
        job = read(GOOD, tmp_path)
        assert (job.name, job.mode) == ("cameras", "stream")
        assert job.inputs["B"].path == str(tmp_path / "data" / "B")
        assert job.inputs["B"].schema == "obj long, ts timestamp"
        assert job.inputs["A"].options == {"maxFilesPerTrigger": "1", "mergeSchema": "true"}
        watermark = job.inputs["A"].watermark
        assert (watermark.column, watermark.delay, watermark.max_ahead) == ("ts", "5 seconds", None)
        assert job.join.arguments == {
            "on": "A.obj = B.obj", "time": "ts", "within": {("A", "B"): dt.after("5 seconds")},
        }  # fmt: skip
        assert job.join.select == ("A.obj", "B.ts AS later")
        assert job.output.modes == {"batch": "overwrite", "stream": "append"}
        assert job.output.trigger == "10 seconds"
        assert job.session.conf == {"spark.sql.shuffle.partitions": "2"}

    def test_variables_of_the_command_line_win(self, tmp_path):
        job = read(GOOD, tmp_path, variables={"folder": "/elsewhere"})
        assert job.inputs["A"].path == "/elsewhere/A"

    def test_runs_in_either_mode(self, tmp_path):
        assert read(GOOD, tmp_path, mode="batch").mode == "batch"

    def test_once_overrides_the_trigger(self, tmp_path):
        assert read(GOOD, tmp_path, once=True).output.trigger == "available_now"

    def test_addresses_stay_as_they_are(self, tmp_path):
        job = read(GOOD, tmp_path, variables={"folder": "s3a://bucket"})
        assert job.inputs["A"].path == "s3a://bucket/A"
        check_paths(job)

    def test_a_path_of_windows(self, tmp_path):
        text = GOOD.replace('{"A, B": {after: 5 seconds}}', "{path: A -> B, lengths: 5 seconds}")
        assert read(text, tmp_path).join.arguments["within"] == dt.path("A -> B", "5 seconds")

    def test_windows_of_the_nearest(self, tmp_path):
        text = changed("kind: window", "kind: nearest").replace("on: A.obj = B.obj", "on: ABS(A.obj - B.obj)")
        window = 'window: {"A, B": [-5 seconds, 0 seconds]}\n  k: 3'
        found = read(text.replace('within: {"A, B": {after: 5 seconds}}', window), tmp_path).join.arguments
        bounds = {("A", "B"): ("-5 seconds", "0 seconds")}
        assert found == {"on": "ABS(A.obj - B.obj)", "time": "ts", "window": bounds, "k": 3}

    def test_criteria(self, tmp_path):
        text = """
inputs: {R: {format: csv, path: r}, S: {format: csv, path: s}}
join:
  kind: bestmatch
  on: [{closest: t, other: u, within: 10 minutes}, {least: R.cost + S.cost}, {overlap: skills}]
output: {format: noop}
"""
        criteria = read(text, tmp_path).join.arguments["on"]
        assert criteria == [
            dt.closest("t", "u", within="10 minutes"), dt.least("R.cost + S.cost"), dt.overlap("skills"),
        ]  # fmt: skip

    def test_a_statement_gets_all_inputs(self, tmp_path):
        text = GOOD[: GOOD.index("join:")] + "join: {sql: SELECT * FROM A CROSS JOIN B}\noutput: {format: noop}\n"
        join = read(text, tmp_path).join
        assert (join.sql, list(join.inputs)) == ("SELECT * FROM A CROSS JOIN B", ["A", "B"])

    def test_needs_no_spark(self):
        code = "import sys, dovetail.jobs, dovetail.command.running; sys.exit('pyspark' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


STATEMENT = (
    GOOD[: GOOD.index("join:")]
    + """\
join:
  sql: |
    SELECT A.obj
    FROM A, B
    WINDOW = 5 SECONDS
    WHERE A.obj = B.obj
output: {format: noop}
"""
)

# What is broken, the file, the line that the message names, and words of what was given, accepted or hinted at.
BROKEN = {
    "an unknown key": (
        changed("  checkpoint: chk", "  chekpoint: chk"),
        29,
        ["chekpoint", "did you mean 'checkpoint'?"],
    ),
    "an unknown key at the top": (changed("output:\n", "outputs:\n"), 24, ["outputs", "did you mean 'output'?"]),
    "a missing key": (GOOD[: GOOD.index("output:")], 1, ["lacks the key 'output'", "add output:"]),
    "a missing key of an input": (
        changed("    format: parquet\n    path: ${folder}/A", "    path: ${folder}/A"),
        9,
        ["inputs.A lacks the key 'format'", "add format: parquet"],
    ),
    "a key twice": (changed("  trigger: 10 seconds", "  path: other"), 28, ["'path' is here twice", "line 26"]),
    "no YAML": (changed("  kind: window", "  kind: [window"), 20, ["not YAML"]),
    "a tab": (changed("  kind: window", "\tkind: window"), 19, ["not YAML", "spaces only"]),
    "a wrong choice": (changed("mode: stream", "mode: streaming"), 2, ["'streaming'", "batch, stream", "'stream'?"]),
    "an unknown kind of join": (
        changed("kind: window", "kind: windows"),
        19,
        ["theta, aggregate, window", "'window'?"],
    ),
    "an unknown argument": (changed("  time: ts\n", "  tiem: ts\n"), 21, ["tiem", "did you mean 'time'?"]),
    "a missing argument": (changed("  time: ts\n", ""), 19, ["lacks the key 'time'", "add time:"]),
    "memory of the driver by the name of a join's memory": (
        changed("  master: local[2]\n", "  master: local[2]\n  memory: 4g\n"),
        7,
        ["spark has no key 'memory'", "did you mean 'driver_memory'?"],
    ),
    "a mapping that is none": (
        changed("{spark.sql.shuffle.partitions: 2}", "many"),
        7,
        ["spark.conf is 'many'", "mapping"],
    ),
    "an input that is not there": (changed("  time: ts\n", "  time: ts\n  inputs: [A, Bee]\n"), 22, ["'Bee'", "A, B"]),
    "a window of no inputs, of the nearest": (
        changed("kind: window", "kind: nearest")
        .replace("on: A.obj = B.obj", "on: ABS(A.obj - B.obj)")
        .replace('within: {"A, B"', 'window: {"A, X"'),
        22,
        ["'A, X'", "two of the inputs A, B"],
    ),
    "a window of no inputs": (changed('"A, B"', '"A, X"'), 22, ["'A, X'", "two of the inputs A, B"]),
    "sql and kind": (changed("  kind: window", "  kind: window\n  sql: SELECT 1"), 19, ["both sql and kind"]),
    "neither sql nor kind": (changed("  kind: window\n", ""), 19, ["neither sql nor kind", "theta"]),
    "a watermark that is none": (changed("{column: ts, delay: 5 seconds}", "ts"), 14, ["'ts'", "{column: ts, delay:"]),
    "a delay without a unit": (changed("delay: 5 seconds", "delay: 5"), 14, ["'5'", "5 seconds"]),
    "a trigger that is none": (
        changed("trigger: 10 seconds", "trigger: availableNow"),
        28,
        ["did you mean 'available_now'?"],
    ),
    "a stream without a checkpoint": (changed("  checkpoint: chk\n", ""), 25, ["no checkpoint", "add checkpoint:"]),
    "a stream of files without a schema": (
        changed("    schema: obj long, ts timestamp\n", ""),
        9,
        ["inputs.A is a stream of parquet files without a schema", "static: true"],
    ),
    "a trigger in batch": (changed("mode: stream", "mode: batch"), 28, ["output has a trigger", "mode: stream"]),
    "an unknown variable": (
        changed("path: ${folder}/A", "path: ${foldr}/A"),
        11,
        ["${foldr}", "did you mean 'folder'?"],
    ),
    "a variable without quotes in braces": (
        changed("conf: {spark.sql.shuffle.partitions: 2}", "conf: {spark.x: hdfs://${folder}/x}"),
        7,
        ["not YAML", 'needs quotes: "hdfs://${folder}/x"'],
    ),
    "a variable without quotes in brackets": (
        changed("select: [A.obj, B.ts AS later]", "select: [A.obj, ${folder}]"),
        23,
        ["not YAML", 'needs quotes: "${folder}"'],
    ),
    "a statement that is none": (
        STATEMENT.replace("WINDOW = 5 SECONDS", "WINDOW = 5 APPLES"),
        22,
        ["join.sql: ", "WINDOW = 5 APPLES"],
    ),
    "a statement without a clause that cannot be read": (
        STATEMENT.replace("    WINDOW = 5 SECONDS\n", "").replace("A.obj = B.obj", "A.obj = = B.obj"),
        22,
        ["join.sql: ", "A.obj = = B.obj"],
    ),
    "a statement that does not end": (STATEMENT.replace("FROM A, B", "FROM A, 'B"), 21, ["join.sql: ", "FROM A, 'B"]),
    "a statement without one of the inputs": (
        STATEMENT.replace("FROM A, B\n", "FROM A, Bee\n").replace("B.obj", "Bee.obj"),
        19,
        ["the statement does not name the table 'B'", "join.sql: "],
    ),
    "an empty file": ("# nothing\n", 1, ["empty", "docs/jobs.md"]),
    "a list": ("- a\n- b\n", 1, ["the job is a list", "a mapping"]),
    "a tag": (changed("name: cameras", "name: !!python/object:os.system cameras"), 1, ["tag"]),
    "an object by a local tag": (changed("name: cameras", "name: !thing cameras"), 1, ["tag '!thing'"]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_told_the_line_and_the_cure(kind, tmp_path):
    text, line, words = BROKEN[kind]
    with pytest.raises(JobError) as error:
        read(text, tmp_path)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'job.yaml'}:{line}: "), message
    for word in words:
        assert word in message, message


def test_a_path_that_leads_nowhere(tmp_path):
    (tmp_path / "data" / "B").mkdir(parents=True)
    (tmp_path / "data" / "Aa").mkdir()
    with pytest.raises(JobError, match=r"job.yaml:11: .*data/A, and there is nothing"):
        check_paths(read(GOOD, tmp_path))


def test_a_file_that_is_not_there(tmp_path):
    (tmp_path / "cameras.yaml").write_text("")
    with pytest.raises(JobError, match=r"camera.yaml cannot be read(.|\n)*did you mean 'cameras.yaml'"):
        read_job(tmp_path / "camera.yaml")


def test_aliases_cannot_fill_the_memory(tmp_path):
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    with pytest.raises(JobError, match="repeat too much"):
        read(bomb, tmp_path)


@given(at=st.integers(0, len(GOOD)), insert=st.text(max_size=5), cut=st.integers(0, 40))
def test_damage_gives_a_job_or_our_error(at, insert, cut):
    try:
        read_job("job.yaml", text=GOOD[:at] + insert + GOOD[at + cut :])
    except JobError as error:
        message = str(error)
    else:
        message = "job.yaml: fine"
    assert message.startswith("job.yaml:")
