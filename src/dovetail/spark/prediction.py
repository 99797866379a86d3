"""Predictions for `explain`: the inputs are counted, and the same join runs on samples of them.

Results among the samples, scaled, tell how many there are.  Where the inputs alone decide it, as in a left as-of join,
nothing is sampled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from dovetail.conditions.join_kind import HOWS, read_how
from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError
from dovetail.plan.prediction import ENOUGH, SAMPLES, Input, Interval, Prediction, Rows, scaled
from dovetail.spark.frames import frames_of
from dovetail.spark.joins.conditions import condition_text
from dovetail.spark.metrics import Call, handle_of

_ROW = "_dovetail_row"
_WIDTH_ROWS = 1000
"""Rows of an input that tell how wide they are."""
_SEED = 7
"""A plan may read an input twice, and must then draw the same rows."""
_DEFAULTS = {"aggregate_join": "left"}
"""What `how` is where it is not given; all others are inner joins."""


def predict(frame: DataFrame) -> Prediction:
    """Run small jobs on the inputs of a batch join, and remember what they tell."""
    handle = handle_of(frame, "explain")
    if handle.plan.streams:
        raise ArgumentError("explain(sample=True) of a streaming join", accepted="a join of static inputs")
    call = handle.call
    if call is None:
        raise ArgumentError(
            "explain(sample=True) of a frame of dt.sql", accepted="the frame that a call such as dt.theta_join returned"
        )
    began = time.monotonic()
    frames = frames_of(call.inputs, call.named)
    rows = _counts(frames)
    inputs = tuple(Input(alias, rows[alias], _width(one)) for alias, one in frames.items())
    results = _results(call, frames, inputs)
    known = {one.alias: one.width for one in inputs}
    width = sum(known[alias] for alias in frame.columns if alias in known) or sum(known.values())
    handle.predicted = Prediction(inputs, results, width, _cores(frame), time.monotonic() - began)
    return handle.predicted


def _counts(frames: Mapping[str, DataFrame]) -> dict[str, int]:
    """The rows of every input, in one job."""
    counted = [frame.agg(F.lit(alias).alias("alias"), F.count(F.lit(1)).alias("n")) for alias, frame in frames.items()]
    return {row.alias: int(row.n) for row in reduce(DataFrame.union, counted).collect()}


def _width(frame: DataFrame) -> float:
    """The bytes of a row, by the first ones."""
    some = frame.limit(_WIDTH_ROWS).toArrow()
    return some.nbytes / some.num_rows if some.num_rows else 0.0


def _cores(frame: DataFrame) -> int | None:
    """How many tasks run at once; Spark Connect does not tell."""
    return None if is_remote() else int(frame.sparkSession.sparkContext.defaultParallelism)


def _results(call: Call, frames: Mapping[str, DataFrame], inputs: tuple[Input, ...]) -> Interval | None:
    how = call.options.get("how", _DEFAULTS.get(call.name, "inner"))
    if not isinstance(how, str):
        return None
    word = read_how(how, HOWS)
    first = inputs[0]
    if call.name in ("theta_join", "window_join"):
        return _of_pairs(call, frames, inputs, word)
    if call.name == "asof_join":
        return _of_rows(first, word)
    if call.name == "aggregate_join":
        return _of_rows(next(one for one in inputs if one.alias == call.options["by"]), word)
    if call.name == "nearest_join":
        most = first.rows * int(call.options.get("k", 1))
        return Interval(
            most, first.rows if word == "left" else 0, most, f"k for each row of {first.alias}, if they exist"
        )
    return None


def _of_rows(one: Input, how: str) -> Interval | None:
    """Results of a join that gives each row of an input at most once."""
    if how == "left":
        return Interval.known(one.rows, f"one for each row of {one.alias}")
    if how in ("inner", "semi", "anti"):
        return Interval(one.rows, 0, one.rows, f"at most one for each row of {one.alias}")
    return None


def _of_pairs(call: Call, frames: Mapping[str, DataFrame], inputs: tuple[Input, ...], how: str) -> Interval | None:
    if how in ("semi", "anti"):
        return _of_rows(inputs[0], how)
    pairs = _pairs(call, frames, inputs)
    if how == "inner":
        return pairs
    # Which rows have no match cannot be told from samples: a row that meets none there may have one elsewhere.
    rows = [one.rows for one in inputs]
    kept = {"left": rows[0], "right": rows[-1], "full": sum(rows)}[how]
    least = {"left": rows[0], "right": rows[-1], "full": max(rows)}[how]
    reason = f"pairs: {pairs.text()}, {pairs.reason}; and rows without any"
    return Interval(max(pairs.expected, least), max(pairs.low, least), pairs.high + kept, reason)


def _pairs(call: Call, frames: Mapping[str, DataFrame], inputs: tuple[Input, ...]) -> Interval:
    """The results of the inner join, from a small sample if it has enough of them, or else from a larger one."""
    options: dict[str, Any] = {**call.options, "how": "inner"}
    if options.get("on") is not None:
        # A Column of a frame, frame["x"], is none of its sample.
        options["on"] = condition_text(options["on"], frames)
    for size in SAMPLES:
        shares = [min(1.0, size / max(1, one.rows)) for one in inputs]
        found = _found(call, options, frames, shares)
        if found[0].size >= ENOUGH or all(share == 1 for share in shares):
            break
    return scaled(found, shares)


def _found(call: Call, options: Mapping[str, Any], frames: Mapping[str, DataFrame], shares: list[float]) -> list[Rows]:
    """For each input, the row of each result that the join has among samples."""
    sampled = {}
    for at, (alias, frame) in enumerate(frames.items()):
        some = frame if shares[at] == 1 else frame.sample(fraction=shares[at], seed=_SEED + at)
        sampled[alias] = some.withColumn(_ROW, F.monotonically_increasing_id())
    joined = call.join(sampled, **options)
    rows = (F.col(f"{quoted(alias)}.{_ROW}").alias(f"r{at}") for at, alias in enumerate(sampled))
    found = joined.select(*rows).toArrow()
    return [np.asarray(column, dtype=np.int64) for column in found.columns]
