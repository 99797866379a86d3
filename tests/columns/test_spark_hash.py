"""Cells land on the partitions that the balance wants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.columns.spark_hash import balance, cell_numbers, spark_partition

PARTITIONS = st.integers(1, 40)


def murmur3(key: int, seed: int = 42) -> int:
    """Murmur3 of one 32-bit word, in plain Python integers; signed."""

    def rotated(value: int, by: int) -> int:
        return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF

    word = rotated(key * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    state = (rotated(seed ^ word, 13) * 5 + 0xE6546B64 & 0xFFFFFFFF) ^ 4
    state = (state ^ (state >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ (state >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


class TestSparkPartition:
    @given(keys=st.lists(st.integers(-(2**31), 2**31 - 1)), partitions=PARTITIONS)
    @example([-(2**31), -1, 0, 1, 2**31 - 1], 7)
    def test_is_murmur3_modulo_the_partitions(self, keys, partitions):
        found = spark_partition(np.array(keys, dtype=np.int32), partitions)
        # Python's modulo of a negative hash is not negative, as Spark's pmod is not.
        assert found.tolist() == [murmur3(key) % partitions for key in keys]


class TestBalance:
    # Whole costs: their sums are exact.
    @given(costs=st.lists(st.integers(0, 1000), max_size=60), partitions=PARTITIONS)
    def test_is_that_of_the_greedy_rule(self, costs, partitions):
        places = balance(np.array(costs, dtype=np.float64), partitions)
        assert places.size == len(costs)
        assert all(0 <= place < partitions for place in places)
        loads = np.bincount(places, weights=costs, minlength=partitions)
        for place in set(places.tolist()):
            # The cheapest cell of a partition came last, when no other partition had less to do.
            last = min(cost for cost, at in zip(costs, places, strict=True) if at == place)
            assert loads[place] - last <= loads.min()

    @given(cost=st.integers(1, 9), each=st.integers(0, 5), partitions=PARTITIONS)
    def test_of_equal_costs_is_even(self, cost, each, partitions):
        places = balance(np.full(each * partitions, float(cost)), partitions)
        assert np.bincount(places, minlength=partitions).tolist() == [each] * partitions

    def test_leaves_its_argument_alone(self):
        costs = np.array([1.0, 3.0, 2.0])
        balance(costs, 2)
        assert costs.tolist() == [1.0, 3.0, 2.0]


class TestCellNumbers:
    @given(data=st.data(), partitions=PARTITIONS)
    def test_are_distinct_and_hash_to_their_places(self, data, partitions):
        places = np.array(data.draw(st.lists(st.integers(0, partitions - 1), max_size=60)), dtype=np.int64)
        numbers = cell_numbers(places, partitions)
        assert numbers.dtype == np.int32
        assert len(set(numbers.tolist())) == places.size
        assert [murmur3(number) % partitions for number in numbers.tolist()] == places.tolist()

    @pytest.mark.parametrize("partitions", [1, 2, 200])
    def test_of_many_cells_in_one_place(self, partitions):
        places = np.full(300, partitions - 1)
        numbers = cell_numbers(places, partitions)
        assert np.unique(numbers).size == 300
        assert (spark_partition(numbers, partitions) == partitions - 1).all()

    def test_are_the_same_every_time(self):
        # A stream that starts again must find its state under the same numbers.
        places = np.array([3, 0, 3, 1])
        assert cell_numbers(places, 4).tolist() == cell_numbers(places.copy(), 4).tolist()
