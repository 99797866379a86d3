"""Arguments of the wrong kind, for every public function: a clear error on the driver, or it works; and no job runs."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.examples import examples

import dovetail as dt
from dovetail.conditions.predicates import parse
from dovetail.errors import MOST_PARTITIONS, ArgumentError
from dovetail.jobs import read_job
from dovetail.spark.runtime.session import build_conf
from dovetail.statements.syntax.statement import read_statement

from .values import BAD, settled

# --- without a JVM ---------------------------------------------------------------------------------------------------

PLAIN = {
    "CFS": (dt.CFS, {}),
    "FTJ": (dt.FTJ, {}),
    "OBT": (dt.OBT, {}),
    "Prefap": (dt.Prefap, {}),
    "RBM": (dt.RBM, {}),
    "Harvest": (dt.Harvest, {}),
    "RandomDrop": (dt.RandomDrop, {}),
    "after": (dt.after, {"length": 5}),
    "closest": (dt.closest, {"column": "id"}),
    "least": (dt.least, {"expression": "R.id + S.id"}),
    "most": (dt.most, {"expression": "R.id + S.id"}),
    "overlap": (dt.overlap, {"column": "id"}),
    "path": (dt.path, {"route": "R -> S", "within": 5}),
    "prefer": (dt.prefer, {"judge": max}),
    "register_order": (dt.register_order, {"name": "nearby", "order": "abs(a - b)"}),
    "session": (build_conf, {}),
    "youngest": (dt.youngest, {"column": "id"}),
    "plot.harvested": (dt.plot.harvested, {"slices": {"A -> B": [1, 0.5]}}),
    "plot.histograms": (dt.plot.histograms, {"sample": {"x": 1}, "complete": {"x": 2}}),
    "plot.partitions": (dt.plot.partitions, {"r": [1, 2], "s": [2, 3]}),
    "plot.rates": (dt.plot.rates, {"progress": [{"kind": "batch", "rows": 1, "seconds": 1}]}),
}
JOINS = {
    "aggregate_join": {"on": "R.id = S.id", "by": "R", "agg": {"n": "count(*)"}},
    "nearest_join": {"on": "ABS(R.id - S.id)"},
    "approx_join": {"on": "R.id = S.id", "memory": 10},
    "asof_join": {"time": "t"},
    "bestmatch_join": {"on": [dt.closest("t", within=5)]},
    "theta_join": {"on": "R.id < S.id"},
    "window_join": {"on": "R.id = S.id", "time": "t", "within": 5},
}
OTHERS = (
    "check_checkpoint", "estimates", "explain", "listen", "metrics", "quality", "resume", "sql", "state", "watermarked",
)  # fmt: skip


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_every_public_function_is_here():
    public = [name for name in dt.__all__ if not (inspect.isclass(getattr(dt, name)) and name.endswith("Error"))]
    plots = {f"plot.{name}" for name in dt.plot.__all__}
    assert {*PLAIN, *JOINS, *OTHERS} == ({*public} - {"plot"}) | plots


@pytest.fixture
def _pictures_closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.usefixtures("_pictures_closed")
@pytest.mark.filterwarnings("ignore:Glyph")
def test_functions_that_need_no_spark(name):
    function, good = PLAIN[name]
    for parameter in parameters(function):
        # A picture takes longer than a complaint, and its labels are anything at all.
        for value in BAD if parameter != "unit" else BAD[:5]:
            settled(function, **{**good, parameter: value})


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (lambda: dt.Harvest(boost=float("nan")), "boost=nan"),
        (lambda: dt.Harvest(target=float("inf")), "target=inf"),
        (lambda: dt.RandomDrop(seed=2**64), "seed=18446744073709551616"),
        (lambda: dt.closest("t", within=float("nan")), "within=nan is not a distance"),
        (lambda: dt.after(None), r"after\(None\) is not a window"),
        (lambda: build_conf(driver_memory=4), "driver_memory=4 is not a size"),
        (lambda: build_conf(master=None), "master=None"),
        (lambda: build_conf(conf=["spark.x"]), "conf="),
        (lambda: dt.plot.rates("/no/such/file"), "the progress file '/no/such/file'"),
        (lambda: dt.plot.partitions([1], [2], number=MOST_PARTITIONS + 1), "number=100001"),
    ],
)
def test_complaints(call, given):
    with pytest.raises(ArgumentError, match=given):
        call()


_WORDS = """
R.id S.id R.t `S`.`t` id R T.x < <= = <> > >= + - * / % ( ) [ ] { } AND OR NOT BETWEEN ABS( INTERVAL '5' SECOND MINUTES
5 1.5 1e400 NULL TRUE 'text' "name" `a CASE WHEN END CAST( AS INT ) , ; -- /* */ IS IN LIKE EXISTS SELECT FROM WHERE
JOIN ON WINDOW WITHIN MEMORY BESTMATCH ASOF SHED HARVEST GROUP BY \x00 é :p ? $1 {{ || -> => ::
"""
WORDS = st.sampled_from(_WORDS.split())
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)


@given(SENTENCES | st.text(max_size=40))
@example("R.id < S.id AND " + "(" * 2000 + "R.id" + ")" * 2000 + " < 3")
@example("R.id - S.id <= " + "9" * 5000)
@example("R.id - S.id <= 1e999999999BD")
def test_conditions(text):
    settled(parse, text, {"R": ["id", "t"], "S": ["id", "t"]})


@given(SENTENCES.map("SELECT * FROM R, S ".__add__) | SENTENCES | st.text(max_size=40))
@example("SELECT " + "(" * 2000 + "1" + ")" * 2000)
def test_statements(text):
    settled(read_statement, text)


SCALARS = st.sampled_from(
    ["5", "x", "''", "[]", "{}", "null", "~", "1e999", "9" * 5000, "&a [*a]", "true", "2026-01-01", "- x", "!!int 5"]
)
KEYS = st.sampled_from(["name", "mode", "inputs", "join", "output", "generate", "spark", "variables", "on", "A"])


def flow(pairs):
    return "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"


MAPPINGS = st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=4).map(flow))


@given(MAPPINGS | st.text(max_size=60))
@example("[" * 3000)
@example("a: " * 50)
@example("name: " + "9" * 5000)
def test_job_files(text):
    settled(read_job, "job.yaml", text=text)


# --- with Spark, and without a job -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def static(spark):
    """A frame of which no row can be evaluated."""
    return spark.range(3).selectExpr(
        "id", "id AS t", "TIMESTAMP'2026-01-01' AS ts", "CAST(id AS STRING) AS name", "assert_true(id < 0) AS boom"
    )


@pytest.fixture(scope="module")
def stream(spark):
    columns = "value AS id", "value AS t", "timestamp AS ts", "CAST(value AS STRING) AS name"
    return spark.readStream.format("rate").load().selectExpr(*columns).withWatermark("ts", "5 seconds")


@pytest.fixture
def _no_job(request, spark):
    spark.sparkContext.setJobGroup(request.node.nodeid, "no job may run here")
    yield
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(request.node.nodeid) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


STREAMS = {
    "aggregate_join": {"on": "R.id = S.id", "by": "R", "agg": {"n": "count(*)"}},
    "nearest_join": {"on": "ABS(R.id - S.id)"},
    "approx_join": {"on": "R.id = S.id", "memory": 10},
    "asof_join": {"time": "ts", "by": "id"},
    "bestmatch_join": {"on": [dt.closest("ts", within="5 seconds")], "how": "left"},
    "theta_join": {"on": "R.id < S.id", "window": "5 seconds", "time": "ts"},
    "window_join": {"on": "R.id = S.id", "time": "ts", "within": "5 seconds"},
}


@pytest.mark.usefixtures("_no_job")
@examples(150)
@given(data=st.data())
def test_joins(static, stream, data):
    name = data.draw(st.sampled_from(sorted(JOINS)), "join")
    frame, good = data.draw(st.sampled_from([(static, JOINS[name]), (stream, STREAMS[name])]), "inputs")
    function = getattr(dt, name)
    parameter = data.draw(st.sampled_from(parameters(function)), "parameter")
    value = data.draw(st.sampled_from(BAD), "value")
    arguments = {"inputs": {"R": frame, "S": frame}, **good, parameter: value}
    if parameter == "inputs" and data.draw(st.booleans()):
        arguments["inputs"] = {"R": frame, "S": value}
    settled(function, **arguments)


@pytest.mark.in_turns(group="several seconds")
@pytest.mark.usefixtures("_no_job")
def test_functions_of_frames(static, stream):
    sample = dt.approx_join({"R": static, "S": static}, on="R.id = S.id", memory=10, seed=1)
    text = "SELECT * FROM A, B WHERE A.id < B.id"
    calls = [
        (dt.estimates, {"frame": sample}, ("frame", "measures", "by", "confidence")),
        (dt.quality, {"frame": sample, "on": "R.id"}, ("frame", "complete", "on", "over")),
        (dt.metrics, {"frame": sample, "timeout": 0}, ("frame", "timeout")),
        (dt.explain, {"frame": sample}, ("frame",)),
    ]
    for function, good, names in calls:
        for parameter in names:
            for value in [*BAD[:: 1 if parameter in ("frame", "complete") else 3], static]:
                settled(function, **{**good, parameter: value})
    for value in BAD[::2]:
        settled(dt.sql, value)
        settled(dt.sql, text, A=value, B=static)
        settled(dt.sql, text, A=static, B=stream, C=value)


@pytest.mark.usefixtures("_no_job")
def test_listening(spark, tmp_path, monkeypatch):
    """Without names of hosts, which somebody would have to look up."""
    monkeypatch.chdir(tmp_path)

    def listen(**given):
        dt.listen(**given).stop()

    good = {"spark": spark, "folder": tmp_path}
    for value in BAD:
        if value is not spark:
            settled(listen, **{**good, "spark": value})
        settled(listen, **{**good, "folder": value})
        settled(listen, **{**good, "port": value})
        settled(listen, **{**good, "port": 0, "token": value})
        if not isinstance(value, str):
            settled(listen, **{**good, "port": 0, "host": value})


@pytest.mark.usefixtures("_no_job")
def test_complaints_of_joins(static):
    two = {"R": static, "S": static}
    for name, good in JOINS.items():
        if "partitions" in parameters(getattr(dt, name)):
            with pytest.raises(ArgumentError, match="at most 100,000"):
                getattr(dt, name)(two, **{**good, "partitions": 10**30})
    for call, given_text in [
        (lambda: dt.window_join(two, time="t", within=2**61), "is longer than a window can be"),
        (lambda: dt.bestmatch_join(two, on=[dt.closest("t", within=5)], order="nosuch"), "order='nosuch' is not"),
        (lambda: dt.bestmatch_join({"_time": static, "S": static}, on=[dt.closest("t")]), "an input called '_time'"),
        (lambda: dt.theta_join(two, on="R.id < S.id", window=2**63), "window=9223372036854775808 is not a window"),
        # Half a character once broke the connection to the JVM, and each call finds another one in the pool.
        *[(lambda: dt.theta_join({"R": static, "S": "\ud800"}, on="R.id < S.id"), "no such table or view")] * 3,
        (lambda: dt.estimates(None), "frame is a NoneType"),
        (lambda: dt.quality(static, on="R.nosuch"), "Spark cannot evaluate on='R.nosuch'"),
    ]:
        with pytest.raises(dt.DovetailError, match=given_text):
            call()


@pytest.mark.usefixtures("_no_job")
def test_a_condition_of_null(static):
    """NULL has a type of its own, which a filter does not take."""
    two = {"R": static, "S": static}
    assert dt.window_join(two, on="NULL", time="t", within=5).columns == ["R", "S"]
    assert dt.theta_join(two, on="R.id < S.id AND NULL").columns == ["R", "S"]
