"""What all tests and docstring examples share: one Spark session per process, Hypothesis profiles, the `spark` mark."""

from __future__ import annotations

import fcntl
import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

# Deadlines are off: the first example of a property compiles the kernel, and takes seconds where the
# others take microseconds.  print_blob gives a failure that can be replayed with @reproduce_failure.
# `fast` is for make test-fast, `dev` for make test, `ci` for make test-slow; a test that asks for a number of its
# own gets its share of it (tests/examples.py).
for name, count in (("fast", 5), ("dev", 20), ("ci", 120)):
    settings.register_profile(
        name,
        max_examples=count,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def _is_spark_example(item: pytest.Item) -> bool:
    """Tell whether an item is a docstring example that needs a JVM: it asks for a session or uses one."""
    example = getattr(item, "dtest", None)
    return example is not None and any(
        "session(" in step.source or "spark." in step.source for step in example.examples
    )


EXAMPLES_SINCE = {"dt.resume(": ("4.1", "transformWithState on rows, whose state can be laid down")}
"""What an example calls, and the arguments of the mark `since` that it gets for that."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What make versions and make test-slow ask for."""
    parser.addoption("--fraction", type=int, default=1, help="run one test in so many, chosen by the test's name")
    parser.addoption("--part", type=int, default=0, help="which of these parts, from 0")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of tests that only some versions of Spark can pass, and of tests whose cases take turns."""
    config.addinivalue_line("markers", "since(spark, what): needs `what`, which came with this version of Spark")
    config.addinivalue_line(
        "markers",
        "in_turns(n=24, group=None): of the cases of a test, or of the tests of a group, one in n runs usually, "
        "and another one at each commit",
    )
    if _older_than("4.2"):
        # Until 4.2 PySpark left the sockets of collect() and the like to the garbage collector.
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def _older_than(spark: str) -> bool:
    """Whether the installed Spark is older than this version."""
    return tuple(map(int, version("pyspark").split(".")[:2])) < tuple(map(int, spark.split(".")))


def _lacking(item: pytest.Item) -> str | None:
    """Why the installed Spark cannot pass a test, in words that name its version."""
    for mark in item.iter_markers("since"):
        since, what = mark.args
        if _older_than(since):
            return f"PySpark {version('pyspark')} lacks {what}, which came with Spark {since}"
    return None


def _number_of_commit() -> int:
    """A number that follows from the commit: 0 where there is none, as in a source archive."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return zlib.crc32(found.strip().encode())


TURNS = 24
"""How many commits it takes until all cases of a test in turns have run."""


def _left_to_other_commits(items: list[pytest.Item], number: int) -> Iterator[pytest.Item]:
    """The tests in turns whose turn it is not.

    They count as slow tests at this commit: ``make test`` and ``make test-slow`` together run every case.
    """
    groups: dict[object, list[pytest.Item]] = defaultdict(list)
    counts: dict[object, int] = {}
    for item in items:
        mark = item.get_closest_marker("in_turns")
        if mark is not None:
            group = mark.kwargs.get("group") or (item.path, getattr(item, "originalname", item.name))
            groups[group].append(item)
            counts[group] = mark.kwargs.get("n", TURNS)
    for group, several in groups.items():
        turns = min(counts[group], len(several))
        # Shuffled: every third of the cases of three directions and six hows would have one direction.
        shuffled = sorted(several, key=lambda item: zlib.crc32(item.nodeid.encode()))
        yield from (item for at, item in enumerate(shuffled) if (at + number) % turns)


def _in_part(item: pytest.Item, fraction: int, part: int) -> bool:
    """Whether a test belongs to a part.  By its name, so that a new test moves no other one."""
    return zlib.crc32(item.nodeid.encode()) % fraction == part


# First, so that -m "not spark" sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a JVM and what is slow, run the examples last, and leave out what is not asked for."""
    for item in _left_to_other_commits(items, _number_of_commit()):
        item.add_marker(pytest.mark.slow)
    fraction, part = config.getoption("--fraction"), config.getoption("--part")
    if fraction > 1:
        left_out = [item for item in items if not _in_part(item, fraction, part)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _in_part(item, fraction, part)]
    # Examples that call session() come last and get the session of the `spark` fixture, which would
    # otherwise meet theirs.
    items.sort(key=_is_spark_example)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or _is_spark_example(item):
            item.add_marker(pytest.mark.spark)
        steps = getattr(getattr(item, "dtest", None), "examples", ())
        for call, needed in EXAMPLES_SINCE.items():
            if any(call in step.source for step in steps):
                item.add_marker(pytest.mark.since(*needed))
        lacking = _lacking(item)
        if lacking is not None:
            item.add_marker(pytest.mark.skip(reason=lacking))


# Spark gives the process that prepares a stateful operator ten seconds to start and to connect, whatever else the
# machine does, and has no setting for it.
TOO_BUSY = "Python worker failed to connect back"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test once more, from its fixtures on, if the machine was too busy for Spark; any other failure counts."""
    if item.get_closest_marker("spark") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for last in (False, False, True):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if last or not any(report.failed and TOO_BUSY in report.longreprtext for report in reports):
            break
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _checkpoint_files() -> str:
    """The class that reads and writes checkpoints through Hadoop's older interface."""
    package = "org.apache.spark.sql.execution.streaming" + ("" if _older_than("4.1") else ".checkpointing")
    return f"{package}.FileSystemBasedCheckpointFileManager"


SESSION = pytest.StashKey[Any]()
"""The session of the process, once a test has asked for it."""


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Spark session on two cores, started once per process."""
    # Here and not above: tests without Spark must run where PySpark cannot.
    from dovetail.spark.runtime.session import session

    warehouse = tmp_path_factory.mktemp("warehouse")
    places = [str(Path(__file__).parent / "tests" / "startup"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    started = session(
        "dovetail-tests",
        master="local[2]",
        driver_memory="2g",
        conf={
            "spark.sql.warehouse.dir": warehouse.as_uri(),
            "spark.sql.shuffle.partitions": 4,
            "spark.ui.showConsoleProgress": False,
            # A JVM that runs a few minutes on small tables spends much of them optimizing code that it leaves soon, and
            # compiling code of Spark's for stages that run once.  Programs and commands have both.
            # With its first compiler alone Java keeps 48 MiB of code, which is full soon, and compiled again and again.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn768m -XX:MetaspaceSize=512m "
            "-XX:ReservedCodeCacheSize=256m",
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # The usual one starts a process, readlink, for every look at a file: 18 a second in tests of streams.
            "spark.sql.streaming.checkpointFileManagerClass": _checkpoint_files(),
        },
    )
    request.config.stash[SESSION] = started
    yield started
    started.stop()


def _views(spark: Any) -> set[str]:
    """The temporary views of a session; of the JVM, since a look by SQL takes longer than many a test."""
    found = spark._jsparkSession.sessionState().catalog().listLocalTempViews("*")
    return {found.apply(at).table() for at in range(found.size())}


def _drop_new(spark: Any, before: set[str]) -> None:
    for view in _views(spark) - before:
        spark.catalog.dropTempView(view)


# A test that reads a view of another one passes or fails by which of them ran before, and in which process.
@pytest.fixture(autouse=True)
def _views_of_a_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the views that a test registers."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    before = _views(session)
    yield
    _drop_new(session, before)


@pytest.fixture(autouse=True, scope="module")
def _views_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the views that the fixtures of a module register."""
    yield
    session = request.config.stash.get(SESSION, None)
    if session is not None:
        _drop_new(session, set())


@pytest.fixture(autouse=True)
def _shuffles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no input for small: those of tests all are, and the joins of a test are to be those of large ones."""
    if "spark" in request.fixturenames and "broadcasts" not in request.fixturenames:
        for family in ("theta", "asof"):
            monkeypatch.setattr(f"dovetail.spark.joins.{family}.small_inputs", lambda frames: {})


@pytest.fixture
def broadcasts() -> None:
    """Let a test have its small inputs broadcast, as users have."""


@pytest.fixture
def connect_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Wait for the port of local Spark Connect servers, which all of them listen on."""
    # The parent folder is the same for all workers of a run.
    with (tmp_path_factory.getbasetemp().parent / "connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def _names_of_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """Give `spark` and `dt` to the docstring examples that need a JVM."""
    if _is_spark_example(request.node):
        import dovetail

        doctest_namespace.update(dt=dovetail, spark=request.getfixturevalue("spark"))
