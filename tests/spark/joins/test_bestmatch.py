"""Best-match joins in Spark: batch against the definition, streams against batch, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import dovetail as dt
from dovetail import reference
from dovetail.errors import ArgumentError, PredicateError, UnboundedJoinError, UnknownNameError, UnsupportedTypeError
from dovetail.reference import bestmatch as definition

from . import streams
from .streams import run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = {
    "id": pa.int64(),
    "t": pa.timestamp("us", "UTC"),
    "x": pa.float64(),
    "cost": pa.int64(),
    "k": pa.string(),
    "tags": pa.list_(pa.string()),
}
SCHEMA = "id long, t timestamp, x double, cost long, k string, tags array<string>"


pytestmark = pytest.mark.usefixtures("few_partitions")


def rows(seed: int, size: int) -> list[dict]:
    """Rows in the order of their times, ties and NULLs among them."""
    some = random.Random(seed)
    made = []
    for at in range(size):
        second = at * 2 + some.randrange(3)
        made.append(
            {
                "id": at,
                "t": None if some.random() < 0.05 else NOON + timedelta(seconds=second),
                "x": some.choice([None, float("nan"), 0.0, 1.0]) if some.random() < 0.2 else some.randrange(8) / 2,
                "cost": some.randrange(5),
                "k": some.choice(["a", "b", None]),
                "tags": some.sample(["p", "q", "r"], some.randrange(4)),
            }
        )
    return made


def table(made: list[dict]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in made], kind) for name, kind in KINDS.items()})


def put(folder: Path, made: list[dict]) -> None:
    streams.put(folder, table(made))


@pytest.fixture(scope="module")
def both(spark, tmp_path_factory):
    """Two inputs, as rows and as frames."""
    made = [rows(1, 40), rows(2, 30)]
    frames = []
    for at, side in enumerate(made):
        place = tmp_path_factory.mktemp(f"side{at}") / "rows.parquet"
        pq.write_table(table(side), place)
        frames.append(spark.read.schema(SCHEMA).parquet(str(place)))
    return made, {"R": frames[0], "S": frames[1]}


def ids(joined: DataFrame) -> Counter:
    """Pairs of row numbers; streams of inner joins have columns beside them."""
    return streams.ids(joined, "RS")


def expected(made: list[list[dict]], criteria: list, how: str, by: tuple[str, ...] = (), **more) -> Counter:
    found = reference.bestmatch_join({"R": made[0], "S": made[1]}, criteria, how, by, **more)
    return Counter(tuple(None if row is None else row["id"] for row in pair.values()) for pair in found)


def total(r: dict, s: dict) -> int:
    return r["cost"] + s["cost"]


SECONDS = timedelta(seconds=9)
CASES = {
    "constrained": ([dt.closest("t", within="9 seconds"), dt.closest("x", within=1.5)],
                    [definition.nearest("t", within=SECONDS), definition.nearest("x", within=1.5)]),
    "free": ([dt.closest("t"), dt.least("R.cost + S.cost")],
             [definition.nearest("t"), definition.smallest(total)]),
    "sets and ages": ([dt.overlap("tags"), dt.youngest("t")],
                      [definition.larger_overlap("tags"), definition.newest("t")]),
    "of one side": ([dt.most("S.cost"), dt.closest("x", within=2)],
                    [definition.largest(lambda r, s: s["cost"]), definition.nearest("x", within=2)]),
    "by spark": ([dt.least("R.cost * S.cost"), dt.closest("x", within=1)],
                 [definition.smallest(lambda r, s: r["cost"] * s["cost"]), definition.nearest("x", within=1)]),
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("case", CASES)
def test_batch(both, case, how):
    made, frames = both
    ours, meant = CASES[case]
    by = "k" if case in ("free", "by spark") else None
    joined = dt.bestmatch_join(frames, on=ours, how=how, by=by, sample=case != "constrained")
    truth = expected(made, meant, how, ("k",) if by else ())
    assert truth
    assert ids(joined) == truth
    assert dt.metrics(joined)["results"] == truth.total()


def test_rows_without_a_candidate_are_kept_on_demand(both):
    made, frames = both
    ours, meant = CASES["constrained"]
    joined = dt.bestmatch_join(frames, on=ours, how="full", unmatched="keep", by=["k", "cost"])
    truth = expected(made, meant, "full", ("k", "cost"), keep_unmatched=True)
    assert any(None in pair for pair in truth)
    assert ids(joined) == truth


def test_a_function_judges(both):
    made, frames = both

    def cheaper(p, q):
        costs = [pair["R"]["cost"] + pair["S"]["cost"] for pair in (p, q)]
        return "equal" if costs[0] == costs[1] else "better" if costs[0] < costs[1] else "worse"

    joined = dt.bestmatch_join(frames, on=[dt.closest("x", within=1.0), dt.prefer(cheaper)], how="left")
    meant = [definition.nearest("x", within=1.0), definition.smallest(total)]
    assert ids(joined) == expected(made, meant, "left")


def test_the_plan_in_words(both, capsys):
    _, frames = both
    dt.explain(dt.bestmatch_join(frames, on=CASES["constrained"][0], how="left", by="k", partitions=3, memory=10))
    assert capsys.readouterr().out.splitlines() == [
        "best-match join, batch, how='left'",
        "  inputs      R, S",
        "  criterion   closest t within 9 seconds",
        "  criterion   closest x within 1.5",
        "  by          R.k",
        "  kernel      tree: branch and bound for each row, skipping what is too far away or already beaten",
        "  routing     cells cut by hash of the keys and a maximum distance, at quantiles of a sample read within the "
        "same action; 3 shuffle partitions of packed segments",
        "  memory      windows of more than 10 rows are joined from pages on local disk (standard materialisation, "
        "crabstep)",
    ]


def test_windows_on_disk_give_the_same(both):
    made, frames = both
    ours, meant = CASES["constrained"]
    joined = dt.bestmatch_join(frames, on=ours, how="left", memory=12, materialise="grid")
    assert ids(joined) == expected(made, meant, "left")
    counts = dt.metrics(joined)
    assert counts["page_reads"] > 10
    assert counts["page_writes"] > 5


def stream(spark, folder: Path) -> DataFrame:
    return streams.source(spark, folder, SCHEMA)


@pytest.mark.in_turns(group="streams across a restart")
def test_a_left_join_of_streams_with_watermarks(spark, tmp_path):
    """Disorder within the watermark, a restart in the middle; what is out is final, and all that is final is out."""
    made = [rows(3, 24), rows(4, 24)]
    ours, meant = CASES["constrained"]

    def joined() -> DataFrame:
        inputs = {name: stream(spark, tmp_path / name).withWatermark("t", "10 seconds") for name in "RS"}
        return dt.bestmatch_join(inputs, on=ours, how="left")

    for name, side in zip("RS", made, strict=True):
        for begin in (0, 12):
            put(tmp_path / name, side[begin : begin + 12][::-1])
    place = tmp_path / "query"
    first = run(joined(), place)
    out = ids(spark.read.parquet(str(place / "out")))
    assert not out - expected(made, meant, "left")
    for name in "RS":
        far = {**rows(5, 1)[0], "id": 99, "t": NOON + timedelta(hours=1)}
        put(tmp_path / name, [far])
    second = run(joined(), place)
    assert ids(spark.read.parquet(str(place / "out"))) == expected(made, meant, "left")
    assert sum(counts["late"] for counts in [*first, *second]) == 0
    assert second[-1]["held_rows"] <= 2


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "told",
    [{"read_ahead": 1}, {"punctuation": "t"}, {"lateness": "2 seconds"}],
    ids=["read-ahead", "punctuation", "lateness"],
)
def test_an_inner_join_of_streams_in_order(spark, tmp_path, told):
    """In order, every row is a promise, and so is its time as a mark."""
    made = [[row for row in rows(6, 20) if row["t"]], [row for row in rows(7, 20) if row["t"]]]
    ours, meant = CASES["constrained"]
    for name, side in zip("RS", made, strict=True):
        ordered = sorted(side, key=lambda row: row["t"])
        put(tmp_path / name, ordered[:8])
        put(tmp_path / name, ordered[8:])
    inputs = {name: stream(spark, tmp_path / name) for name in "RS"}
    joined = dt.bestmatch_join(inputs, on=ours, **told)
    assert joined.columns == ["R", "S", "_change"]
    run(joined, tmp_path / "query")
    out = spark.read.parquet(str(tmp_path / "query" / "out"))
    net = ids(out.where("_change = 'insert'"))
    net.subtract(ids(out.where("_change = 'retract'")))
    assert +net == expected(made, meant, "inner")


def test_the_answer_over_the_last_seconds(both):
    made, frames = both
    joined = dt.bestmatch_join(frames, on=[dt.closest("x")], max_age="6 seconds", time="t", every="20 seconds")
    truth: Counter = Counter()
    for step in range(6):
        now = NOON + timedelta(seconds=20 * step)
        recent = [[row for row in side if row["t"] and now - timedelta(seconds=6) <= row["t"] <= now] for side in made]
        for pair in expected(recent, [definition.nearest("x")], "inner"):
            truth[(*pair, now)] += 1
    found = joined.select("R.id", "S.id", "_time").collect()
    assert Counter((a, b, t.replace(tzinfo=UTC)) for a, b, t in found) == truth


def recent(made: list[list[dict]], how: str, by: tuple[str, ...], every: timedelta | None) -> Counter:
    """The definition's answers over the last 9 seconds, by row numbers and instant."""
    found = definition.recent_bestmatch_join(
        {"R": made[0], "S": made[1]}, [definition.nearest("x")], how, by,
        time="t", max_age=SECONDS, every=every, start=datetime(1970, 1, 1, tzinfo=UTC), keep_unmatched=how == "left",
    )  # fmt: skip
    return Counter((*(None if row is None else row["id"] for row in pair.values()), at) for at, pair in found)


@pytest.mark.in_turns
@pytest.mark.parametrize(("how", "by"), [("inner", ()), ("left", ("k",))])
@pytest.mark.parametrize("every", [None, timedelta(seconds=4)])
def test_the_answers_of_every_instant(spark, both, tmp_path, how, by, every):
    """Rows that match nothing and rows of other keys arrive at instants, too; a stream answers those it has passed."""
    made, frames = both
    call = {
        "on": [dt.closest("x")], "how": how, "by": list(by) or None, "unmatched": "keep" if how == "left" else "drop",
        "max_age": "9 seconds", "time": "t", "every": every,
    }  # fmt: skip
    truth = recent(made, how, by, every)

    def answers(joined: DataFrame) -> Counter:
        rows = joined.select("R.id", "S.id", "_time").collect()
        return Counter((a, b, t.replace(tzinfo=UTC)) for a, b, t in rows)

    assert answers(dt.bestmatch_join(frames, **call)) == truth
    if how == "inner":
        return  # a stream takes many seconds
    for name, side in zip("RS", made, strict=True):
        put(tmp_path / name, side[: len(side) // 2])
        put(tmp_path / name, side[len(side) // 2 :])
    inputs = {name: stream(spark, tmp_path / name).withWatermark("t", "3 seconds") for name in "RS"}
    run(dt.bestmatch_join(inputs, **call), tmp_path / "query")
    found = answers(spark.read.parquet(str(tmp_path / "query" / "out")))
    passed = max(at for *_, at in found)
    assert found == Counter({answer: count for answer, count in truth.items() if answer[2] <= passed})
    assert len({at for *_, at in found}) > 10


@pytest.mark.in_turns(group="larger data")
def test_decimals_beyond_64_bits(spark, tmp_path):
    """The best by more digits than a double has, in batch and in a stream, of one input and of both."""
    big = Decimal("12345678901234567890.0001")
    schema = pa.schema([("id", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("w", pa.decimal128(30, 4))])
    for name, digits in (("R", (3, 1, 2)), ("S", (5, 6, 4))):
        steps = [{"id": at, "t": NOON, "w": big + Decimal(d) / 10_000} for at, d in enumerate(digits)]
        streams.put(tmp_path / name, steps, schema)
        # Far enough ahead to make the others final.
        streams.put(tmp_path / name, [{"id": 9, "t": NOON + timedelta(days=1), "w": big}], schema)
        streams.put(tmp_path / name, [{"id": 9, "t": NOON + timedelta(days=2), "w": big}], schema)
    text = "id long, t timestamp, w decimal(30,4)"
    static = {name: spark.read.schema(text).parquet(str(tmp_path / name)).where("id < 9") for name in "RS"}
    one_sided = [("least", "R.w", "right", {(1, 0), (1, 1), (1, 2)}), ("most", "S.w", "left", {(0, 1), (1, 1), (2, 1)})]
    two_sided = [
        ("least", "R.w + S.w", "inner", {(1, 2)}),
        ("most", "greatest(R.w, S.w)", "left", {(0, 1), (1, 1), (2, 1)}),
    ]
    for word, expression, how, best in one_sided + two_sided:
        criterion = getattr(dt, word)(expression)
        assert set(ids(dt.bestmatch_join(static, on=[criterion], how=how))) == best, expression
    near = dt.closest("t", within="1 minute")
    for word, expression, how, best in one_sided:
        inputs = {name: streams.source(spark, tmp_path / name, text).withWatermark("t", "1 second") for name in "RS"}
        joined = dt.bestmatch_join(inputs, on=[near, getattr(dt, word)(expression)], how=how)
        run(joined, tmp_path / how)
        found = ids(spark.read.parquet(str(tmp_path / how / "out")))
        assert {pair for pair in found if 9 not in pair} == best, expression


def test_what_is_refused(spark, both, tmp_path):
    _, frames = both
    near = dt.closest("t", within="9 seconds")
    refused = [
        ({"on": []}, ArgumentError, "on="),
        ({"on": ["x"]}, ArgumentError, "not a criterion"),
        ({"on": [dt.closest("nope")]}, UnknownNameError, "nope"),
        ({"on": [dt.closest("k")]}, UnsupportedTypeError, "distances"),
        ({"on": [dt.closest("t", within=5)]}, ArgumentError, "within=5"),
        ({"on": [dt.closest("x", within="5 seconds")]}, ArgumentError, "length of time"),
        ({"on": [dt.overlap("x")]}, UnsupportedTypeError, "array"),
        ({"on": [dt.youngest("k")]}, UnsupportedTypeError, "timestamps"),
        ({"on": [dt.least("R.k || S.k")]}, UnsupportedTypeError, "string"),
        ({"on": [dt.least("nonsense(R.x, S.x)")]}, PredicateError, "cannot evaluate"),
        ({"on": [near], "how": "lef"}, ArgumentError, "how="),
        ({"on": [near], "by": "nope"}, UnknownNameError, "by="),
        ({"on": [near], "max_age": "1 minute"}, ArgumentError, "time="),
        ({"on": [dt.least("R.x * S.x")], "how": "left", "unmatched": "keep"}, ArgumentError, "only Spark"),
        ({"on": [near], "read_ahead": 0}, ArgumentError, "read_ahead=0"),
        ({"on": [near], "read_ahead": 1, "punctuation": "t"}, ArgumentError, "one of them"),
    ]
    for arguments, kind, words in refused:
        with pytest.raises(kind, match=words):
            dt.bestmatch_join(frames, **arguments)
    put(tmp_path / "R", rows(1, 2))
    streams = {name: stream(spark, tmp_path / "R") for name in "RS"}
    with pytest.raises(UnboundedJoinError, match="how far the streams"):
        dt.bestmatch_join(streams, on=[near], how="left")
    with pytest.raises(UnboundedJoinError, match="maximum distance"):
        dt.bestmatch_join(streams, on=[dt.closest("t")], how="left")
    with pytest.raises(ArgumentError, match="static"):
        dt.bestmatch_join({"R": streams["R"], "S": frames["S"]}, on=[near], how="left")
    with pytest.raises(ArgumentError, match="two"):
        dt.bestmatch_join({**frames, "Q": frames["R"]}, on=[near])


def test_distances_and_sums_at_the_end_of_64_bits(spark):
    wide = spark.createDataFrame([(1, 2**62, 1), (2, -(2**62), 2)], "id int, b bigint, k int")
    far = dt.bestmatch_join({"R": wide, "S": wide}, on=[dt.closest("b", within=2**62)], how="left", sample=False)
    assert {(row.R.id, row.S.id) for row in far.collect()} == {(1, 1), (2, 2)}
    # 2**62 + 2**62 leaves 64 bits, but these rows have different keys and are no pair.
    left = spark.createDataFrame([(1, 2**62, 1), (2, 5, 2)], "id int, b bigint, k int")
    right = spark.createDataFrame([(3, 7, 1), (4, 2**62, 2)], "id int, b bigint, k int")
    least = dt.bestmatch_join({"R": left, "S": right}, on=[dt.least("R.b + S.b")], by="k")
    assert {(row.R.id, row.S.id) for row in least.collect()} == {(1, 3), (2, 4)}


def test_a_column_may_be_called_like_an_alias_and_a_column(spark):
    left = spark.createDataFrame([(1, 10), (2, 20)], "x int, `R.x` int")
    right = spark.createDataFrame([(12,)], "y int")
    joined = dt.bestmatch_join({"R": left, "S": right}, on=[dt.closest("R.x", "y")])
    assert [row.R.x for row in joined.collect()] == [1]
