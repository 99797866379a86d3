"""The kill harness: its verifier finds what is lost and what is there twice; and a short run of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos.families import FAMILIES, GROUPS, Files
from chaos.inputs import LAST, files_at_once, write_inputs
from chaos.killing import Hunt, batches, plan
from chaos.rereading import files_by_batch, write_again
from chaos.soak import judge
from chaos.verify import answer, committed_files, verify
from chaos.victim import place_of


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("chaos") / "inputs"
    write_inputs(folder, seed=3, files=4, rows=20)
    return folder


def put(sink: Path, rows: list[tuple], batch: int) -> None:
    """Rows as Spark's file sink commits them."""
    (sink / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    file = sink / f"part-{batch} of %.parquet"
    pq.write_table(
        pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=[*"abcdefgh"][: len(rows[0])]), file
    )
    entry = {"path": file.as_uri(), "size": 1, "isDir": False, "action": "add"}
    (sink / "_spark_metadata" / str(batch)).write_text(f"v1\n{json.dumps(entry)}", encoding="utf-8")


@pytest.mark.parametrize(
    "family", [name for name in FAMILIES if name not in ("best match, inner", "shedding", "approx")]
)
def test_the_verifier_misses_nothing(inputs, tmp_path, family):
    rows = list(answer(family, inputs).elements())
    final = [row for row in rows if not any(isinstance(value, int) and value >= LAST for value in row)]
    assert len(final) > 20
    put(tmp_path / "right", rows[: len(rows) // 2], 0)
    put(tmp_path / "right", rows[len(rows) // 2 :], 1)
    # A file of an attempt that failed is not listed, and does not count.
    pq.write_table(pa.table({"a": [1]}), tmp_path / "right" / "leftover.parquet")
    assert verify(family, inputs, tmp_path / "right").right
    put(tmp_path / "lost", [row for row in rows if row != final[3]], 0)
    assert "1 rows lost" in str(verify(family, inputs, tmp_path / "lost"))
    put(tmp_path / "twice", [*rows, final[5]], 0)
    assert "1 rows too many" in str(verify(family, inputs, tmp_path / "twice"))


@pytest.mark.in_turns(group="several seconds")
@pytest.mark.spark
def test_files_of_one_size_keep_their_order_where_a_crash_puts_two_into_one_micro_batch(spark, tmp_path):
    """The logs of a driver that died after its file source had noted a file, and before the micro-batch was."""
    folder, sink, checkpoint = (tmp_path / name for name in ("in", "out", "checkpoint"))
    write_inputs(folder, seed=2, files=4, rows=30)
    later = {name: sorted((folder / name).iterdir())[1:] for name in "AB"}
    waiting = tmp_path / "waiting"
    for name, files in later.items():
        (waiting / name).mkdir(parents=True)
        for file in files:
            file.rename(waiting / name / file.name)

    def run() -> int:
        family = FAMILIES["theta, rows"]
        joined = family.build(Files(spark, folder)).selectExpr(*family.columns)
        writer = joined.writeStream.format("parquet").option("path", str(sink))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(900)
        return max(progress.numInputRows for progress in query.recentProgress)

    assert run() == 2 * 30
    for number, name in enumerate("AB"):
        for file in (waiting / name).iterdir():
            file.rename(folder / name / file.name)
        noted = folder / name / "0001.json"
        entry = {"path": noted.as_uri(), "timestamp": round(noted.stat().st_mtime * 1000), "batchId": 1}
        (checkpoint / "sources" / str(number) / "1").write_text(f"v1\n{json.dumps(entry)}", encoding="utf-8")
    assert run() == 2 * 2 * 30, "no micro-batch had two files of each input"
    assert verify("theta, rows", folder, sink).right
    read = files_by_batch(checkpoint)
    assert read[:2] == [{"A": ["0000.json"], "B": ["0000.json"]}, {name: ["0001.json", "0002.json"] for name in "AB"}]
    assert [batch["A"] for batch in read[2:]] == [[f"000{number}.json"] for number in (3, 4, 5)]


def test_a_run_without_kills_reads_what_the_micro_batches_read(inputs, tmp_path):
    """One input is a file ahead of the other, and at the end it has nothing left."""
    read = [{"A": ["0000.json", "0001.json"], "B": ["0000.json"]}, {"A": ["0002.json"], "B": ["0001.json"]}]
    read.append({"B": ["0002.json"]})
    write_again(inputs, read, tmp_path)
    for name in "AB":
        files = sorted((tmp_path / name).iterdir(), key=lambda file: file.stat().st_mtime)
        texts = [file.read_text(encoding="ascii").strip() for file in files]
        assert texts == [
            (inputs / name / one).read_text(encoding="ascii").strip() if one else ""
            for batch in read
            for one in [*batch.get(name, []), "", ""][:2]
        ]
        assert len({file.stat().st_size for file in files}) == 1
    assert files_at_once(tmp_path) == 2
    assert answer("beside static, left", tmp_path).total() > 60


def test_the_verifier_of_changes_and_of_subsets(inputs, tmp_path):
    rows = list(answer("best match, inner", inputs))
    beaten = (500, 501, 1, 2)
    log = [*((*row, "insert") for row in rows), (*beaten, "insert"), (*beaten, "retract")]
    put(tmp_path / "right", log, 0)
    assert verify("best match, inner", inputs, tmp_path / "right").right
    put(tmp_path / "twice", [*log, (*beaten, "insert"), (*beaten, "retract")], 0)
    assert "rows twice" in str(verify("best match, inner", inputs, tmp_path / "twice"))
    put(tmp_path / "stays", [*log, (1, 2, 3, 4, "insert")], 0)
    assert "too many" in str(verify("best match, inner", inputs, tmp_path / "stays"))
    exact = list(answer("approx", inputs))
    put(tmp_path / "some", exact[:50], 0)
    put(tmp_path / "other", exact[1:51], 0)
    put(tmp_path / "double", [*exact[:50], exact[0]], 0)
    assert verify("approx", inputs, tmp_path / "some", tmp_path / "some").right
    assert "lost" in str(verify("approx", inputs, tmp_path / "other", tmp_path / "some"))
    assert "twice" in str(verify("approx", inputs, tmp_path / "double"))


def test_a_compacted_log_of_the_sink(tmp_path):
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    entries = [json.dumps({"path": f"file:///x/{n}", "action": "add"}) for n in range(4)]
    (log / "0").write_text(f"v1\n{entries[0]}", encoding="utf-8")
    (log / "1.compact").write_text("\n".join(["v1", *entries[:3]]), encoding="utf-8")
    (log / "2").write_text(f"v1\n{entries[3]}", encoding="utf-8")
    assert [file.name for file in committed_files(tmp_path)] == ["0", "1", "2", "3"]


def test_every_family_is_in_one_group_and_plans_repeat():
    assert Counter(name for group in GROUPS for name in group) == Counter(list(FAMILIES))
    assert plan(4, 1, 10) == plan(4, 1, 10)
    assert plan(4, 1, 10) != plan(4, 2, 10)


def test_a_slow_leak_is_not_flat():
    seconds = [float(at) for at in range(120)]
    noise = [1000.0 + (at * 7919) % 11 for at in range(120)]
    assert judge("driver JVM", seconds, noise, 0.05).flat
    assert not judge("driver JVM", seconds, [value + 2 * at for at, value in enumerate(noise)], 0.05).flat


@pytest.mark.spark
@pytest.mark.cluster
def test_a_short_run_under_fire(inputs, tmp_path):
    """A driver, an executor and a worker are killed on the way; two families at once."""
    families = ("window, full", "best match, left")
    hunt = Hunt(tmp_path, inputs, families)
    try:
        hunt.run(plan(1, 0, 3))
    finally:
        hunt.clean()
    assert hunt.kills.total() >= 2
    for family in families:
        own = place_of(tmp_path, family)
        assert str(verify(family, inputs, own / "out")) == "nothing lost, nothing twice"
        assert batches(own) >= 6


@pytest.mark.spark
@pytest.mark.cluster
def test_a_long_run_of_a_minute(tmp_path):
    """The code of the long run; its first minute is Spark's warming up, so only doubling counts."""
    picture = tmp_path / "soak.png"
    options = ["--minutes", "1.2", "--tolerance", "1", "--picture", str(picture)]
    command = [sys.executable, "-m", "chaos", "soak", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert picture.stat().st_size > 10_000
    assert "Python workers" in done.stdout
    assert "checkpoint files" in done.stdout
