"""How much a worker may take, rows that wait on disk, and the words for what does not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns import memory
from dovetail.columns.pieces import Pieces, Spool, gathered, portions
from dovetail.columns.segments import blocks, concat
from dovetail.errors import DovetailError


def numbered(*counts: int) -> list[pa.RecordBatch]:
    begins = [sum(counts[:at]) for at in range(len(counts))]
    return [
        pa.RecordBatch.from_pydict(
            {"x": pa.array(range(begin, begin + count), pa.int64()), "s": pa.array(["ab"] * count, pa.string())}
        )
        for begin, count in zip(begins, counts, strict=True)
    ]


def values(batches) -> list[int]:
    return [value for batch in batches for value in batch.column("x").to_pylist()]


counts = st.lists(st.integers(0, 9), min_size=1, max_size=6)


class TestRoom:
    def test_a_limit_of_the_process_counts(self):
        """In a process of its own: the limit stays."""
        code = (
            "import resource\n"
            "from dovetail.columns import memory\n"
            "before = memory.room()\n"
            "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
            "assert memory.limit() is None\n"
            "resource.setrlimit(resource.RLIMIT_AS, (taken + (300 << 20),) * 2)\n"
            "assert memory.limit() == taken + (300 << 20)\n"
            "assert 200 << 20 < memory.room() <= min(before, 300 << 20) + (8 << 20), memory.room()\n"
            "held = bytearray(150 << 20)\n"
            "assert memory.room() < 160 << 20, memory.room()\n"
            "del held\n"
            "resource.setrlimit(resource.RLIMIT_DATA, (50 << 20,) * 2)\n"
            "assert memory.room() < 50 << 20, memory.room()\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_container_counts_without_the_files_in_its_cache(self, tmp_path, version):
        _, most, used, cached = memory._CONTAINERS[version]
        (tmp_path / most).write_text(f"{1000 << 20}\n")
        (tmp_path / used).write_text(f"{900 << 20}\n")
        (tmp_path / "memory.stat").write_text(f"anon 5\n{cached} {300 << 20}\n")
        with (
            patch.object(memory, "_CONTAINERS", ((str(tmp_path), most, used, cached),)),
            patch.object(memory, "_machine", lambda: None),
            patch.object(memory, "_own", lambda: iter(())),
            patch.object(memory, "_cores", lambda: 4),
        ):
            assert memory.room() == 100 << 20
            assert memory.room(alone=True) == 400 << 20
            (tmp_path / most).write_text("max\n")
            assert memory.room() == sys.maxsize

    def test_the_machine_counts(self):
        with patch.object(memory, "_container", lambda: None), patch.object(memory, "_own", lambda: iter(())):
            assert memory.room() * memory._cores() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            assert memory.room() > 0

    def test_nothing_known_is_no_limit(self):
        with patch.object(memory, "_read", lambda path: ""), patch.object(memory, "_own", lambda: iter(())):
            assert memory.room() == sys.maxsize


class TestPieces:
    @given(counts, st.integers(1, 2000))
    def test_portions_and_gathered_keep_all_rows_in_order(self, counts, most):
        batches = numbered(*counts)
        for batch in batches:
            parts = list(portions(batch, most))
            assert values(parts) == values([batch])
            # Strings have one offset more than rows.
            assert all(memory.cost(part) <= most + 8 or part.num_rows == 1 for part in parts)
        found = list(gathered(batches, most))
        assert values(found) == values(batches)
        assert all(memory.cost(part) <= most + 8 or part.num_rows <= 1 for part in found)

    @given(counts, counts, st.integers(1, 2000))
    def test_both_sides_come_back_whether_they_wait_on_disk_or_not(self, held, passing, most):
        pieces = Pieces()
        with patch.object(memory, "FLOOR", 0), patch.object(memory, "share", lambda: most):
            for batch in numbered(*held):
                pieces.hold(batch)
            assert pieces.split == (sum(map(memory.cost, numbered(*held))) > most)
            assert pieces.held_rows == sum(held)
            if not pieces.split:
                assert values([pieces.whole()]) == list(range(sum(held)))
                assert pieces.spilled == 0
                return
            for batch in numbered(*passing):
                pieces.let_pass(batch)
            for _ in range(2):
                assert values(pieces.held_pieces()) == list(range(sum(held)))
                assert values(pieces.passing_pieces()) == list(range(sum(passing)))
        assert pieces.spilled > 0
        pieces.close()

    def test_the_disk_is_sparks_and_nothing_stays_there(self, tmp_path, monkeypatch):
        folder, missing = tmp_path / "spark", tmp_path / "missing"
        folder.mkdir()
        monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{missing},{folder}")
        code = (
            "import os, sys, pyarrow as pa\n"
            "from dovetail.columns.pieces import Spool\n"
            "spool = Spool()\n"
            "spool.add(pa.RecordBatch.from_pydict({'x': list(range(1000))}))\n"
            "spool._file.flush()\n"
            "print(os.readlink(f'/proc/self/fd/{spool._file.fileno()}'), flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == -9
        assert done.stdout.startswith(str(folder))
        assert list(folder.iterdir()) == []

    def test_blocks_are_smaller_where_memory_is_short(self):
        batches = numbered(*[10] * 10)
        with patch.object(memory, "FLOOR", 0), patch.object(memory, "share", lambda: 3 * memory.cost(batches[0])):
            found = list(blocks(batches))
        assert [block.num_rows for block in found] == [40, 40, 20]
        assert values(found) == list(range(100))
        assert len(list(blocks(batches))) == 1

    def test_a_spool_reads_any_batch_again(self):
        spool = Spool()
        batches = numbered(3, 0, 2)
        for batch in batches:
            spool.add(batch)
        assert spool.batch(2).equals(batches[2])
        assert concat(spool).equals(concat(batches))
        assert (spool.rows, concat(spool).num_rows) == (5, 5)
        spool.close()


class TestWords:
    def test_the_limit_is_named(self):
        with patch.object(memory, "limit", lambda: 400 << 20), patch.object(memory, "room", lambda alone: 3 << 20):
            error = memory.too_large(
                "a cell of dovetail(A,B)", "5 rows, 9 MiB", "90 % of them have the key 'x'", "less"
            )
        assert isinstance(error, DovetailError)
        assert str(error) == (
            "a cell of dovetail(A,B) does not fit into the memory of its worker: 5 rows, 9 MiB; "
            "90 % of them have the key 'x'\n"
            "  accepted: rows that fit into what the worker may still take, 3 MiB of 400 MiB "
            "(spark.executor.pyspark.memory)\n"
            "  hint: less"
        )

    def test_the_most_frequent_key_is_named_and_long_ones_are_cut(self):
        assert memory.most_frequent([]) is None
        assert memory.most_frequent([pa.array([], pa.int64())]) is None
        assert memory.most_frequent([pa.array([1, None, None])]) == "67 % of them have the key None"
        (long,) = [memory.most_frequent([pa.array(["x" * 500])])]
        assert long is not None
        assert len(long) < 120
        many = pa.array([7] * 90_000 + list(range(10_000)))
        assert memory.most_frequent([many]) == "90 % of them have the key 7"
