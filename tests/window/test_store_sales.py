"""The made-up sales of stores: the same for the same seed, in the order of time, within the opening hours."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.datasets import store_sales
from dovetail.errors import ArgumentError


def test_a_seed_decides():
    assert store_sales(2, per_hour=50) == store_sales(2, per_hour=50)
    assert store_sales(2, per_hour=50, seed=1) != store_sales(2, per_hour=50, seed=2)


def test_doors_are_open_from_half_past_seven_to_eight():
    for table in store_sales(2, 3, per_hour=400):
        assert table.num_rows == 3 * 12.5 * 400
        moments = table["ts"].to_numpy().astype("datetime64[us]").astype(np.int64)
        assert (np.diff(moments) >= 0).all()
        hour = moments % (24 * 3_600_000_000) / 3_600_000_000
        assert hour.min() >= 7.5
        assert hour.max() <= 20
        # A morning is quiet, and the hour after work is not.
        assert 3 * ((hour >= 8) & (hour < 9)).sum() < ((hour >= 17) & (hour < 18)).sum()


def test_stores_sell_the_same_items_at_the_same_price():
    first, second = store_sales(2, per_hour=2000, items=100)
    price = {}
    for table in (first, second):
        for item, cost in zip(table["item"].to_pylist(), table["price"].to_pylist(), strict=True):
            assert price.setdefault(item, cost) == cost
    counts = [np.bincount(table["item"].to_numpy(), minlength=100) for table in (first, second)]
    assert all((count > 0).all() for count in counts)
    assert counts[0].max() > 4 * counts[0].min()
    assert np.corrcoef(counts)[0, 1] > 0.9


@pytest.mark.parametrize("argument", ["stores", "days", "per_hour", "items"])
def test_a_number_that_is_none(argument):
    with pytest.raises(ArgumentError, match=argument):
        store_sales(**{argument: 0})
