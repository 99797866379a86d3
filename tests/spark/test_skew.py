"""Half of all rows have one key: every join tells how well the work was divided."""

from __future__ import annotations

import pytest

import dovetail as dt


@pytest.mark.in_turns(group="larger data")
@pytest.mark.usefixtures("generated_code")
def test_the_balance_is_reported(spark):
    rows = "id", "IF(id % 2 = 0, 0, id % 997) AS k", "id * 7919 % 40009 AS x", "id AS t"
    frames = {name: spark.range(0, 40_000, 1, 2).selectExpr(*rows) for name in "AB"}

    def balance(joined) -> float:
        assert joined.count() > 0
        return dt.metrics(joined)["balance_in"]

    given = {"partitions": 4}
    on = "A.k = B.k AND ABS(A.x - B.x) <= 3"
    assert 1 <= balance(dt.theta_join(frames, on=on, **given)) < 1.6
    assert 1.5 < balance(dt.theta_join(frames, on=on, sample=False, **given)) <= 4, "one hash has half of the rows"
    assert 1 <= balance(dt.window_join(frames, on="A.k = B.k", time="t", within=5, **given)) < 1.6
    asof = [dt.asof_join(frames, by="k", time="t", sample=sample, **given) for sample in (True, False)]
    cut, whole = map(balance, asof)
    assert cut < 1.6
    # Without a sample one of four tasks has half of all rows, and says so.
    assert 1.9 < whole <= 4
    best = dt.bestmatch_join(frames, on=[dt.closest("x", within=3)], by="k", how="left", **given)
    assert 1 <= balance(best) < 1.6
    fewer = {name: frame.where("id < 10000") for name, frame in frames.items()}  # of 40,000 come 17 million results
    some = dt.approx_join(fewer, on="A.k = B.k", memory=2_000, seed=1)
    # Rows of one value meet in one of 16 cells, whose part of the memory follows its rows.
    assert balance(some) > 7
    assert dt.metrics(some)["peak_rows"] <= 2_000
