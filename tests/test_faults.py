"""Faults other than kills: what they break and mend, how a broken run is judged; and a short run of two of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.breaking import Fault, Scene, break_one
from chaos.faults import FAULTS
from chaos.inputs import LAST, write_inputs
from chaos.verify import answer, part_of_answer
from chaos.victim import place_of
from tests.test_chaos import put

FAMILY = "window, full"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "inputs"
    write_inputs(folder, seed=3, files=12, rows=10)
    return folder


class Play(Scene):
    """A scene without processes: each life writes rows, and ends as it is told."""

    def __init__(self, *given, lives, **named):
        super().__init__(*given, **named)
        self.told = lives

    def start(self):
        self.lives += 1
        self.place.mkdir(parents=True, exist_ok=True)
        rows, said = self.told[self.lives - 1]
        if rows:
            put(place_of(self.work, FAMILY) / "out", rows, self.lives)
        self.log.write_text(f"starting\nFAILED: {said}\nat nowhere\n" if said else "", encoding="utf-8")

    def runs(self):
        return False

    def wait_for(self, more):
        return True

    def end(self):
        return not self.told[self.lives - 1][1]


class Loose(Fault):
    name = "a loose screw"
    says = "screw"

    def strike(self, scene):
        pass


def play(inputs, tmp_path, lives, fault=None):
    return break_one(fault or Loose(), Play(tmp_path, inputs, (FAMILY,), lives=list(lives)))


def test_how_a_run_is_judged(inputs, tmp_path):
    found = answer(FAMILY, inputs).elements()
    # The order of DuckDB's rows differs from run to run, and rows that only move watermarks may be lost.
    rows = [row for row in found if not any(isinstance(value, int) and value >= LAST for value in row)]
    half, rest = rows[:30], rows[30:]
    wrong = (-5, -6, 1, 1)

    def outcome(name, *lives, **attributes):
        fault = Loose()
        vars(fault).update(attributes)
        return play(inputs, tmp_path / name, lives, fault)

    right = outcome("mended", (half, "the screw is loose"), (rest, ""))
    assert right.right
    assert right.failed
    assert right.lives == 2
    assert right.message == "the screw is loose"
    assert outcome("unhurt", (rows, "")).right
    silent = outcome("silent", (half, "NullPointerException"), (rest, ""))
    assert "does not say what broke" in silent.faults[0]
    written = outcome("written", ([*half, wrong], "the screw is loose"), (rest, ""))
    assert "not in the join" in written.faults[0]
    doubled = outcome("doubled", ([*half, half[0]], "the screw is loose"), (rest, ""))
    assert not doubled.right
    lost = outcome("lost", (half, "the screw is loose"), (rest[1:], ""))
    assert not lost.right
    again = outcome("again", (half, "the screw is loose"), (rest, "the screw is loose"))
    assert "failed again" in again.faults[0]
    surprise = outcome("surprise", (half, "the screw is loose"), (rest, ""), says=None)
    assert "the queries failed" in surprise.faults[0]
    blind = outcome("blind", (rows, ""), must_fail=True)
    assert "went on" in blind.faults[0]


def test_a_log_of_changes_may_have_pairs_that_are_beaten_later(inputs, tmp_path):
    beaten = (500, 501, 1, 2)
    put(tmp_path / "right", [(*beaten, "insert")], 0)
    assert part_of_answer("best match, inner", inputs, tmp_path / "right") == []
    put(tmp_path / "twice", [(*beaten, "insert"), (*beaten, "insert")], 0)
    assert "twice" in part_of_answer("best match, inner", inputs, tmp_path / "twice")[0]
    put(tmp_path / "early", [(*beaten, "retract")], 0)
    assert "gone before it came" in part_of_answer("best match, inner", inputs, tmp_path / "early")[0]
    assert part_of_answer("best match, inner", inputs, tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", ["state-missing", "state-cut", "state-flipped"])
def test_the_newest_state_of_each_partition_is_damaged_and_mended(inputs, tmp_path, name):
    scene = Play(tmp_path, inputs, (FAMILY,), lives=[], choice=0.9)
    stores = [place_of(scene.work, FAMILY) / "checkpoint" / "state" / "0" / str(part) for part in range(2)]
    for store in stores:
        store.mkdir(parents=True)
        for version in (9, 10):
            (store / f"{version}_some-id.zip").write_bytes(bytes(range(100)))
            (store / f".{version}_some-id.zip.crc").write_bytes(b"sum")
        (store / "_metadata").write_bytes(b"x")
    before = {file: file.read_bytes() for file in scene.work.rglob("*.zip")}
    FAULTS[name].strike(scene)
    changed = {file.name for file, data in before.items() if not file.exists() or file.read_bytes() != data}
    assert changed == {"10_some-id.zip"}
    assert len(list(scene.work.rglob("*.crc"))) == 2, "a checksum would have told"
    FAULTS[name].mend(scene)
    assert {file: file.read_bytes() for file in before} == before
    assert not list(scene.work.rglob("*.saved"))


@pytest.mark.parametrize("name", ["inputs-vanish", "inputs-again"])
def test_inputs_break_in_a_copy_and_come_back(inputs, tmp_path, name):
    def contents(folder):
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.json")}

    scene = Play(tmp_path, inputs, (FAMILY,), lives=[])
    FAULTS[name].prepare(scene)
    times = {file.name: file.stat().st_mtime for file in (scene.inputs / "A").iterdir()}
    for batch in range(2):
        commit = place_of(scene.work, FAMILY) / "checkpoint" / "commits" / str(batch)
        commit.parent.mkdir(parents=True, exist_ok=True)
        commit.touch()
    FAULTS[name].strike(scene)
    if name == "inputs-vanish":
        assert len(contents(scene.inputs)) == len(contents(inputs)) - 3 * 2
        assert scene.killed
    else:
        assert all(file.stat().st_mtime > times[file.name] for file in (scene.inputs / "A").iterdir())
    FAULTS[name].mend(scene)
    assert contents(scene.inputs) == contents(inputs)


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_the_clock_of_all_processes_is_set_while_they_run(inputs, tmp_path):
    scene = Play(tmp_path, inputs, (FAMILY,), lives=[])
    fault = FAULTS["clock-jumps"]
    fault.prepare(scene)
    program = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **scene.environment},
    ) as running:  # fmt: skip
        seen = []
        for seconds in (0, -36_000, 864_000):
            fault.set(scene, seconds=seconds)
            running.stdin.write("\n")
            running.stdin.flush()
            seen.append([float(word) for word in running.stdout.readline().split()])
        running.stdin.close()
    # Days apart, so that however long each step took does not matter.
    assert [round((one[0] - seen[0][0]) / 36_000) for one in seen] == [0, -1, 24]
    assert seen[0][1] <= seen[1][1] <= seen[2][1]


def test_unknown_faults_are_told(tmp_path):
    command = [sys.executable, "-m", "chaos", "break", "--faults", "state-cut,flood"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "no such fault: flood; there are checkpoint-full" in done.stdout


@pytest.mark.spark
@pytest.mark.cluster
def test_a_short_run_with_a_cut_state_and_a_full_disk(tmp_path):
    command = [sys.executable, "-m", "chaos", "break", "--faults", "state-cut,checkpoint-full", "--group", "1"]
    done = subprocess.run(
        [*command, "--files", "6", "--keep", str(tmp_path)], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.dumps(done.stdout).count("nothing lost, nothing twice") >= 2
