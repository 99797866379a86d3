"""What a call becomes: memory, options, the common join value, cells and their parts of the memory."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.limits import Limit, memory_limit
from dovetail.conditions.predicates import parse
from dovetail.errors import ArgumentError, PredicateError
from dovetail.families.approx.encode import least_bytes, row_bytes
from dovetail.families.approx.router import budgets, cells_of, memory_shares, result_shares, rows_by_cell
from dovetail.families.approx.spec import Options, cell_count, equal_part
from dovetail.plan.approx import SMALL, plan_approx
from dovetail.plan.broadcast import Estimate
from dovetail.plan.theta import Facts

TYPES = {"k": KeyType("BIGINT", "int"), "j": KeyType("STRING", "rank"), "x": KeyType("DOUBLE", "float64")}
COLUMNS = ["k", "j", "x"]


def planned(on: str, aliases: str = "AB", streams: str = "", sizes: dict[str, int] | None = None, **options):
    predicate = parse(on, dict.fromkeys(aliases, COLUMNS))

    def typed(parts):
        return tuple((part, TYPES[part.left.sql.split("`")[3]]) for part in parts)

    facts = Facts(
        frozenset(streams), typed(predicate.equalities), typed([*predicate.inequalities, *predicate.bands]), 4,
        sizes={alias: Estimate(size) for alias, size in (sizes or {}).items()},
    )  # fmt: skip
    options.setdefault("memory", Limit(1000))
    return plan_approx(dict.fromkeys(aliases, COLUMNS), predicate, facts, Options(**options))


@pytest.mark.parametrize(
    ("given_", "amount", "unit"),
    [(5, 5, "rows"), ("5 B", 5, "bytes"), ("1.5kb", 1500, "bytes"), ("2 MiB", 2 << 20, "bytes"),
     ("1 GB", 10**9, "bytes"), ("10 bytes", 10, "bytes")],
)  # fmt: skip
def test_memory(given_, amount, unit):
    assert memory_limit(given_) == Limit(amount, unit)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "", "5", "5 rows", "-5 MB", "0 MB", "MB", None, b"5 MB"])
def test_no_memory(wrong):
    with pytest.raises(ArgumentError, match="memory="):
        memory_limit(wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"policy": "rajhash"}, {"allocation": "free"}, {"allocation": "variable"}, {"memory": None}, {"seed": 1.0},
     {"seed": 1 << 64}, {"strata": 0}, {"partitions": True}, {"policy": "raj", "strata": 5}, {"balance": 1},
     {"results": 0}, {"results": 1.5}, {"results": True}],
)  # fmt: skip
def test_no_options(wrong):
    with pytest.raises(ArgumentError):
        Options(**{"memory": Limit(10), **wrong})


class TestSmallInputs:
    def test_all_rows_go_to_one_cell_and_are_not_counted(self):
        plan = planned("A.k = B.k", sizes={"A": SMALL // 2, "B": SMALL // 2})
        assert (plan.spec.cells, plan.partitions, plan.balanced) == (1, 1, False)
        assert "one cell: Spark takes the inputs for small" in plan.text()

    @pytest.mark.parametrize("sizes", [{}, {"A": 1}, {"A": 1, "B": SMALL}])
    def test_not_unless_all_are_small_together(self, sizes):
        assert planned("A.k = B.k", sizes=sizes).spec.cells > 1

    def test_partitions_count_more(self):
        assert planned("A.k = B.k", sizes={"A": 1, "B": 1}, partitions=2).spec.cells == 2
        assert "small" not in planned("A.k = B.k", sizes={"A": 1, "B": 1}, partitions=1).text()

    def test_a_little_memory_is_another_reason(self):
        text = planned("A.k = B.k", sizes={"A": 1, "B": 1}, memory=Limit(10)).text()
        assert "one cell: what is held is too little to be divided" in text


def test_the_join_value_is_what_all_inputs_share():
    plan = planned("A.k = B.k AND B.k = C.k AND A.j = B.j AND A.x <= C.x", "ABC")
    assert [[key.sql for key in keys] for keys in plan.value] == [["`A`.`k`"], ["`B`.`k`"], ["`C`.`k`"]]
    assert plan.spec.kinds == ("int",)
    # The equality of two inputs only, and the inequality, are checked where rows meet.
    assert sorted((edge.point, edge.box, edge.step.equalities) for edge in plan.spec.edges) == [
        (0, 1, ("rank",)),
        (0, 2, ()),
    ]
    spec = plan.spec
    assert spec.payload == (3, 3, 3)
    assert [[spec.keys[at][c].sql for c in value] for at, value in enumerate(spec.value)] == [
        ["`A`.`k`"],
        ["`B`.`k`"],
        ["`C`.`k`"],
    ]
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_two_inputs_have_a_composite_value():
    plan = planned("A.k = B.k AND B.j = A.j")
    assert [[key.sql for key in keys] for keys in plan.value] == [["`A`.`k`", "`A`.`j`"], ["`B`.`k`", "`B`.`j`"]]
    assert plan.spec.edges == ()
    assert plan.spec.cells == 7


def test_a_second_equality_with_the_same_column_is_checked():
    plan = planned("A.k = B.k AND A.k = B.x")
    assert plan.value == ((), ()) or len(plan.spec.edges) == 1


def test_a_chain_of_different_equalities_needs_raj():
    with pytest.raises(PredicateError, match="in common"):
        planned("A.k = B.k AND B.j = C.j", "ABC")
    plan = planned("A.k = B.k AND B.j = C.j", "ABC", policy="raj")
    assert plan.spec.cells == 1
    assert len(plan.spec.edges) == 2
    assert "checked against every held row" in plan.text()
    with pytest.raises(ArgumentError, match="partitions=3"):
        planned("A.k = B.k AND B.j = C.j", "ABC", policy="raj", partitions=3)


def test_streams_share_memory_in_equal_parts():
    plan = planned("A.k = B.k", streams="AB")
    assert not plan.balanced
    assert "in equal parts" in plan.text()
    with pytest.raises(ArgumentError, match="all streams or all static"):
        planned("A.k = B.k", streams="A")


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_equal_parts_add_up(memory, cells):
    spec = planned("A.k = B.k", memory=Limit(max(memory, 2 * cells)), partitions=cells).spec
    parts = [spec.budget(cell) for cell in range(cells)]
    assert sum(parts) == max(memory, 2 * cells)
    assert max(parts) - min(parts) <= 1


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.integers(1, 30_000), st.integers(0, 4))
def test_parts_by_rows_keep_the_limit(rows, memory, least):
    counts = np.array(rows)
    parts = budgets(memory, counts, least)
    assert parts.sum() <= memory
    assert (parts >= 0).all()
    if counts.sum() <= memory:
        assert (parts >= counts).all(), "memory for all rows is memory for the rows of every cell"
    elif np.minimum(counts, least).sum() <= memory // 2:
        assert (parts >= np.minimum(counts, least)).all()


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_equal_parts_make_the_whole(amount, cells):
    parts = [equal_part(amount, cell, cells) for cell in range(cells)]
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(1, 9))
def test_rows_of_one_value_meet_in_one_cell(hashes, cells):
    column = np.array(hashes, dtype=np.int64)
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(column.size)), pa.array(column)], names=["n", "h"])
    placed = cells_of(column, cells)
    found = dict(rows_by_cell(rows, placed, cells))
    assert sum(part.num_rows for part in found.values()) == column.size
    for cell, part in found.items():
        assert (np.mod(part.column("h").to_numpy(), cells) == cell).all()
        assert (np.diff(part.column("n").to_numpy()) > 0).all(), "in the order of arrival"


def test_few_rows_make_few_cells():
    assert cell_count(Limit(10**9), 2, None) == 16
    assert cell_count(Limit(300, "bytes"), 2, None) == 1
    assert cell_count(Limit(10), 2, 5) == 5
    assert cell_count(None, 2, None) == 16
    assert cell_count(Limit(10**9), 2, None, results=500) == 7
    assert cell_count(None, 2, None, results=3) == 1


def test_memory_without_room_for_a_row_of_each_input_is_refused():
    with pytest.raises(ArgumentError, match="memory='159 bytes' for 2 inputs in 1 partition") as caught:
        planned("A.k = B.k", memory=Limit(159, "bytes"))
    assert "at least 160 bytes" in str(caught.value)
    assert planned("A.k = B.k", memory=Limit(160, "bytes")).spec.cells == 1
    with pytest.raises(ArgumentError, match="in 3 partition"):
        planned("A.k = B.k", memory=Limit(479, "bytes"), partitions=3)


def test_few_results_for_many_cells_are_refused():
    with pytest.raises(ArgumentError, match="results=9 in 5 partition"):
        planned("A.k = B.k", results=9, partitions=5)
    plan = planned("A.k = B.k", results=1000, partitions=5)
    assert plan.spec.results == 1000
    assert "at most 1,000 results in all" in plan.text()
    assert "at most 1,000 results a micro-batch" in planned("A.k = B.k", streams="AB", results=1000).text()
    assert "every result of the join" in planned("A.k = B.k", memory=None, policy="exact").text()
    assert (
        "all held combinations of the others, about 7,569 in its cell"
        in planned("A.k = B.k AND B.k = C.k", "ABC", memory=Limit(525)).text()
    )


def test_a_cell_with_few_rows_gets_enough_bytes_to_hold_them():
    spec = planned("A.k = B.k", memory=Limit(10**6, "bytes"), partitions=4).spec
    counts = np.array([10**6, 3, 0, 50])
    shares = memory_shares(spec, counts)
    assert shares.sum() <= 10**6
    assert shares[1:].tolist() == [3 << 14, 0, 10**6 // 8]
    results = result_shares(planned("A.k = B.k", results=1000, partitions=4).spec, counts)
    assert results.sum() <= 1000
    assert (results[[1, 3]] == 2).all()


@given(st.data())
def test_no_row_takes_less_than_its_type_says(data):
    kinds = [pa.int8(), pa.bool_(), pa.string(), pa.float64(), pa.list_(pa.int32()), pa.decimal128(12, 2), pa.date32()]
    chosen = data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))
    empty = [pa.array([None], kind) for kind in chosen]
    assert row_bytes(empty).tolist() == [least_bytes(chosen)]


def test_bytes_of_rows_of_all_types():
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "t": pa.array(["", "abc"]),
            "b": pa.array([True, False]),
            "l": pa.array([[1, 2], None], pa.list_(pa.int64())),
            "s": pa.array([{"a": 1, "b": "xy"}, None], pa.struct({"a": pa.int16(), "b": pa.string()})),
            "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
            "d": pa.array([None, None], pa.decimal128(20, 2)),
        }
    )
    columns = table.combine_chunks().to_batches()[0].columns
    assert row_bytes(columns).tolist() == [4 + 4 + 1 + 20 + 8 + 13 + 16, 4 + 7 + 1 + 4 + 6 + 4 + 16]
    assert row_bytes([column.slice(1) for column in columns]).tolist() == row_bytes(columns)[1:].tolist()
