"""Rows come out of segments as they went in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns.segments import binary_column, blocks, concat, one_batch, pack, unpack

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("s", pa.string(), metadata={"note": "kept"}),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("r", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.bool_())])),
        pa.field("b", pa.binary(), nullable=False),
    ],
    metadata={"whole": "kept too"},
)
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(max_size=4),
        "t": st.none() | st.just(dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        "d": st.none() | st.just(Decimal("-1.25")),
        "l": st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
        "r": st.none() | st.fixed_dictionaries({"x": st.none() | st.just(0.5), "y": st.booleans()}),
        "b": st.binary(max_size=3),
    }
)


def batch(rows):
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def numbers(*counts):
    """Batches of these sizes with running numbers in them."""
    starts = [sum(counts[:at]) for at in range(len(counts))]
    return [
        pa.RecordBatch.from_pydict({"x": pa.array(range(start, start + count), pa.int64())})
        for start, count in zip(starts, counts, strict=True)
    ]


class TestPack:
    @given(rows=st.lists(ROWS, max_size=6), before=st.integers(0, 3), after=st.integers(0, 3))
    def test_round_trip_of_a_slice(self, rows, before, after):
        kept = batch(rows)[before : max(before, len(rows) - after)]
        found = unpack(pack(kept))
        assert found.equals(kept, check_metadata=True)
        found.validate(full=True)

    @given(parts=st.lists(st.lists(ROWS, max_size=3), max_size=3))
    def test_tables_come_back_as_one_batch(self, parts):
        table = pa.Table.from_batches([batch(rows) for rows in parts], SCHEMA)
        found = unpack(pack(table))
        assert isinstance(found, pa.RecordBatch)
        assert found.equals(batch([row for rows in parts for row in rows]), check_metadata=True)

    @pytest.mark.parametrize("form", [lambda b: b, lambda b: b.to_pybytes(), lambda b: memoryview(b)])
    def test_reads_what_spark_hands_over(self, form):
        (three,) = numbers(3)
        assert unpack(form(pack(three))).equals(three)

    def test_does_not_carry_what_a_slice_leaves_out(self):
        (many,) = numbers(100_000)
        assert pack(many[10:20]).size < 2_000

    def test_numbers_are_not_copied(self):
        (many,) = numbers(1000)
        segment = pack(many)
        data = unpack(segment).column("x").buffers()[1]
        assert segment.address <= data.address < segment.address + segment.size

    def test_half_a_segment_is_an_error(self):
        (many,) = numbers(1000)
        with pytest.raises((pa.ArrowInvalid, OSError)):
            unpack(pack(many).slice(0, 600))


class TestBinaryColumn:
    @given(values=st.lists(st.binary(max_size=20)))
    def test_holds_the_bytes(self, values):
        column = binary_column([pa.py_buffer(value) for value in values])
        column.validate(full=True)
        assert column.type == pa.binary()
        assert column.to_pylist() == values

    @given(sizes=st.lists(st.integers(0, 5), max_size=5))
    def test_holds_segments_that_still_open(self, sizes):
        segments = numbers(*sizes)
        column = binary_column([pack(segment) for segment in segments])
        assert [unpack(value.as_buffer()) for value in column] == segments


class TestOneBatch:
    @given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5))
    def test_holds_all_rows_in_order(self, sizes):
        found = concat(numbers(*sizes))
        assert found.column("x").to_pylist() == list(range(sum(sizes)))

    def test_of_no_rows_keeps_the_schema(self):
        for table in (
            SCHEMA.empty_table(),
            pa.Table.from_batches([], SCHEMA),
            pa.Table.from_batches([batch([])]),
        ):
            found = one_batch(table)
            assert found.num_rows == 0
            assert found.schema.equals(SCHEMA, check_metadata=True)


class TestBlocks:
    @given(sizes=st.lists(st.integers(0, 6)), rows=st.integers(1, 10))
    def test_hold_all_rows_and_are_cut_as_soon_as_they_are_full(self, sizes, rows):
        found = [block.num_rows for block in blocks(numbers(*sizes), rows=rows)]
        assert sum(found) == sum(sizes)
        assert all(found)
        assert all(rows <= count < rows + 6 for count in found[:-1])
        together = [x for block in blocks(numbers(*sizes), rows=rows) for x in block.column("x").to_pylist()]
        assert together == list(range(sum(sizes)))

    @given(sizes=st.lists(st.integers(0, 6)), size=st.integers(1, 100))
    def test_are_cut_by_bytes_too(self, sizes, size):
        found = [block.nbytes for block in blocks(numbers(*sizes), size=size)]
        assert sum(found) == 8 * sum(sizes)
        assert all(size <= held < size + 48 for held in found[:-1])

    def test_are_given_before_the_input_ends(self):
        # Memory: a packer must not wait for the rest of its partition.
        def source():
            yield from numbers(2, 2)
            raise AssertionError("read too far")

        assert next(blocks(source(), rows=4)).num_rows == 4
