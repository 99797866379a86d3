"""A local SparkSession that works at the first try.

Most first attempts with PySpark fail for reasons that have nothing to do with the user's data: no Java or
an old one, workers that start another Python than the driver's, a driver bound to an address that the
machine cannot reach.  `session` settles these before Spark starts.  It is a convenience for one machine:
every function of Dovetail takes frames of any session, and none of them changes its settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote
from pyspark.util import default_api_mode

from dovetail.errors import ArgumentError
from dovetail.spark.runtime.classes import sharing_options
from dovetail.spark.runtime.gateway import start_jvm
from dovetail.spark.runtime.java import check_java

__all__ = ["SessionWarning", "session"]

_APP = "dovetail"
_MASTER = "local[*]"
_GIB = 1 << 30
_LOOPBACK = "127.0.0.1"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
"""The setting with the options of the JVM."""
_COLLECTOR = "spark.driver.defaultJavaOptions"
_INLINE = "-XX:CompileCommand=quiet -XX:CompileCommand=inline,scala.collection.IterableOnceOps::toArray"
"""Spark wraps every row on its way to Python, with a method of Scala's that is 35 bytes too long to be inlined.

Inlined, 4M rows of two columns take 0.77 s of the JVM's time instead of 1.06.  The first option keeps the JVM silent.
"""
_LOG_FILE_OPTION = "-Dlog4j2.configurationFile="
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_WORKER_MEMORY = "spark.executor.pyspark.memory"
_BATCHES, _LEAST_BATCH = 32, 1 << 20
"""Where the memory of a worker is limited: how many Arrow batches it holds, and how small they may be."""
_ONE_MACHINE = (
    "spark.driver.host", "spark.driver.bindAddress", "spark.python.daemon.module", "spark.shuffle.compress",
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
)  # fmt: skip
"""Settings that suit a session whose workers are all here."""


_JOINS = tuple(f"dovetail.spark.joins.{family}" for family in ("theta", "window", "asof", "bestmatch", "approx"))


class SessionWarning(UserWarning):
    """Settings were asked for that cannot take effect, because a Spark session exists already."""


def session(
    app: str = _APP,
    *,
    master: str = _MASTER,
    driver_memory: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return the session in use, or start a local one with settings that suit Dovetail.

    Where the process has a Spark session or context already, is attached to Spark Connect
    (``SPARK_REMOTE``), or was started by ``spark-submit``, that session comes back with nothing changed.

    Parameters
    ----------
    app : str, default "dovetail"
        The name of the application.
    master : str, default "local[*]"
        Where Spark runs; ``"local[2]"`` uses two cores of this machine.
    driver_memory : str, optional
        The heap of the driver (``spark.driver.memory``), such as ``"4g"``.  By default half of the memory that this
        process may use, at least 1 GiB and at most 8 GiB.
    conf : mapping of str to object, optional
        Further Spark settings.  They win over every setting that this function chooses.

    Returns
    -------
    SparkSession
        A session to build frames with.  ``stop()`` ends it.

    Raises
    ------
    SetupError
        If Java is missing, too old or does not run.  The message has the command that installs it.
    ArgumentError
        If `driver_memory` is not a size.

    Warns
    -----
    SessionWarning
        If a session exists and arguments were given: they have no effect on it.

    Notes
    -----
    A new session has Arrow on, the time zone UTC, the RocksDB state store, no web page, addresses on the
    loopback interface only, and this interpreter for its workers.  ``PYSPARK_PYTHON`` and
    ``PYSPARK_DRIVER_PYTHON`` are set for this process where they are unset, since PySpark reads the former
    from the environment alone; so is ``SPARK_LOCAL_IP``, the address of the web pages if you turn them on.

    Examples
    --------
    >>> import dovetail as dt
    >>> spark = dt.session()
    >>> spark.range(3).count()
    3
    >>> spark is dt.session()
    True
    """
    return open_session(app, master=master, driver_memory=driver_memory, conf=conf, stacklevel=3)


def open_session(
    app: str = _APP,
    *,
    master: str = _MASTER,
    driver_memory: str | None = None,
    conf: Mapping[str, object] | None = None,
    sheltered: bool = False,
    stacklevel: int = 2,
) -> SparkSession:
    """As :func:`session`; SIGTERM leaves the JVM and the workers of a `sheltered` one alone."""
    found = session_in_use()
    if found is not None:
        ignored = _arguments_given(app, master, driver_memory, conf)
        if ignored:
            warnings.warn(
                f"a Spark session exists already, so {', '.join(ignored)} had no effect; "
                "call its stop() first, or set these where it is made",
                SessionWarning,
                stacklevel=stacklevel,
            )
        return found
    settings = build_conf(app, master=master, driver_memory=driver_memory, conf=conf)
    java = check_java()
    settings[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {sharing_options(java, settings[JAVA_OPTIONS])}".strip()
    _workers_run_this_python()
    _stay_on_this_machine(settings)
    if _is_classic(settings):
        _while_importing(lambda: start_jvm(settings, sheltered=sheltered))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # With SPARK_API_MODE=connect PySpark starts the server with these settings, then sets them once
        # more in the session, and warns of each that only a server can have.
        warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
        return builder.getOrCreate()


def _while_importing(start: Callable[[], None]) -> None:
    """Start the JVM, which takes seconds in which this process would do nothing, and import what joins need meanwhile.

    The imports stay in this thread: two threads that import modules which import each other may meet half of one.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="dovetail-jvm") as starting:
        started = starting.submit(start)
        for name in _JOINS:
            import_module(name)
        started.result()


def _is_classic(settings: Mapping[str, str]) -> bool:
    """Whether the session runs in a JVM of this process, not on a Spark Connect server that PySpark starts itself."""
    mode = settings.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    if mode not in ("classic", "connect"):
        mode = default_api_mode()
    return mode == "classic" and "spark.remote" not in settings


def _workers_run_this_python() -> None:
    if sys.executable:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _stay_on_this_machine(settings: Mapping[str, str]) -> None:
    """Keep what has no setting of its own off the network: Spark's web pages ask the environment where to listen."""
    if settings["spark.driver.bindAddress"] == _LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def session_in_use() -> SparkSession | None:
    """Return the session that this process has or its environment prescribes; starts no local one."""
    remote = os.environ.get("SPARK_REMOTE", "")
    if remote.startswith("local"):
        _workers_run_this_python()
    # Under spark-submit the gateway is there before the context, and the master is the submitter's choice.
    prescribed = is_remote() or bool(remote) or "PYSPARK_GATEWAY_PORT" in os.environ
    # A context without a session is the user's too.  Asking for the active session alone would miss it,
    # and would miss a session made by another thread.
    if not prescribed and SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _arguments_given(app: str, master: str, driver_memory: str | None, conf: Mapping[str, object] | None) -> list[str]:
    given = {
        "app": app != _APP,
        "master": master != _MASTER,
        "driver_memory": driver_memory is not None,
        "conf": bool(conf),
    }
    return [name for name, is_given in given.items() if is_given]


def build_conf(
    app: str = _APP,
    *,
    master: str = _MASTER,
    driver_memory: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return the settings of a new session; starts nothing.

    Examples
    --------
    >>> settings = build_conf(master="local[3]", driver_memory="2g")
    >>> settings["spark.sql.shuffle.partitions"], settings["spark.driver.memory"]
    ('6', '2g')
    >>> build_conf(conf={"spark.sql.shuffle.partitions": 1})["spark.sql.shuffle.partitions"]
    '1'
    """
    for name, text in (("app", app), ("master", master)):
        if not isinstance(text, str) or not text.strip():
            raise ArgumentError(f"{name}={text!r}", accepted="text, such as master='local[2]'")
    if conf is not None and not (isinstance(conf, Mapping) and all(isinstance(key, str) for key in conf)):
        raise ArgumentError(
            f"conf={conf!r}", accepted="a mapping from names of settings to values, {'spark.sql.ansi.enabled': True}"
        )
    if driver_memory is not None and not (
        isinstance(driver_memory, str) and re.fullmatch(r"[1-9]\d*[kmgt]b?", driver_memory.strip().lower())
    ):
        raise ArgumentError(
            f"driver_memory={driver_memory!r} is not a size",
            accepted="a whole number and a unit, such as '512m' or '4g'",
            hint="leave it out to take half of the machine's memory, up to 8g",
        )
    settings = {
        "spark.app.name": app,
        "spark.master": master,
        "spark.driver.memory": driver_memory.strip().lower() if driver_memory else default_memory(),
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        # A local Spark Connect server would otherwise listen on every address of the machine.
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": _flag(sys.stderr is not None and sys.stderr.isatty()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(4, 2 * _cores(master))),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # With any smaller limit Spark 4.3 asks the batch for its size in bytes once per row: 8M rows to
        # Python took 3.4 s, and 1.5 s with the limit out of reach.  The row limit bounds memory instead.
        _BATCH_BYTES: str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.python.daemon.module": "dovetail.spark.runtime.daemon",
        # Sockets of the file system instead of loopback TCP: two copies less of every segment, in and out.
        "spark.python.unix.domain.socket.enabled": "true",
        # Segments are Arrow columns on a local disk: compressing them costs time and saves little.  Together with
        # Arrow's unchecked access this takes about a sixth off the JVM's share of a band join of 4M x 4M rows.
        "spark.shuffle.compress": "false",
        # It tells whether a lost output came out the same the second time.  On one machine none is lost; without it the
        # same join takes 3 % less.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        JAVA_OPTIONS: f"-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false {_INLINE}",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    if not master.strip().startswith("local"):
        # Others have to reach the driver, and their workers may have the package from the program alone.
        settings = {name: value for name, value in settings.items() if name not in _ONE_MACHINE}
    limit = (conf or {}).get(_WORKER_MEMORY)
    if limit is not None:
        # A batch is in the worker's memory as a whole, and so is the next one while it comes.
        settings[_BATCH_BYTES] = str(min(max(_LEAST_BATCH, _bytes(str(limit)) // _BATCHES), 2**31 - 1))
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if python:
        settings["spark.pyspark.python"] = python
        settings["spark.pyspark.driver.python"] = os.environ.get("PYSPARK_DRIVER_PYTHON", python)
    settings.update({key: _text(value) for key, value in (conf or {}).items()})
    if not _collector_chosen(settings):
        # Rows on their way to Python and back leave much garbage that dies at once.  The collector that is best at that
        # takes a tenth to a fifth off an as-of join of 4M x 4M rows; short pauses are not what batches need.
        settings.setdefault(_COLLECTOR, "-XX:+UseParallelGC")
    _quieten(settings)
    return settings


def _bytes(size: str) -> int:
    """A size as Spark reads it, in MiB where it has no unit; as if there were no limit where it is none.

    Examples
    --------
    >>> _bytes("400m") == _bytes("400") == 400 << 20, _bytes("2g") >> 30
    (True, 2)
    """
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", size.strip().lower())
    if found is None:
        return (2**31 - 1) * _BATCHES
    return int(found[1]) << {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}[found[2]]


def _collector_chosen(settings: Mapping[str, str]) -> bool:
    """Whether somebody else chooses the JVM's collector: two choices, and it does not start."""
    told = [os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    told += [settings.get(JAVA_OPTIONS, "")]
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", "")) / "conf")
    with contextlib.suppress(OSError):
        told.append((folder / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace"))
    return any(re.search(r"-XX:\+Use\w+GC\b", text) for text in told)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _text(value: object) -> str:
    # Spark reads "true", not "True".
    return _flag(value) if isinstance(value, bool) else str(value)


def _quieten(settings: dict[str, str]) -> None:
    """Point the JVM at our log settings, unless the caller chose a file or a level."""
    options = settings.get(JAVA_OPTIONS, "")
    if _LOG_FILE_OPTION in options or "spark.log.level" in settings:
        return
    log_file = Path(__file__).with_name("log4j2.properties")
    if log_file.is_file():
        # A URI has no spaces, so the launcher's splitting of options cannot tear the path apart.
        settings[JAVA_OPTIONS] = f"{options} {_LOG_FILE_OPTION}{log_file.as_uri()}".strip()
    else:
        # Inside a zip file there is no path to give; this quietens all but Spark's first lines.
        settings["spark.log.level"] = "ERROR"


def _cores(master: str) -> int:
    """Return how many cores a master string takes of this machine; all of them where it does not say."""
    counted = re.fullmatch(r"local(?:\[(\d+)(?:\s*,\s*\d+)?\])?", master.strip())
    if counted:
        return int(counted[1] or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_memory() -> str:
    """Return the driver's heap: half of what this process may use, within 1 and 8 GiB.

    The other half is for the Python workers, whose Arrow segments live outside the heap.

    Examples
    --------
    >>> default_memory()[-1]
    'm'
    """
    share = _usable_memory() // 2
    return f"{min(max(share, _GIB), 8 * _GIB) >> 20}m"


def _usable_memory(limit_file: str = "/sys/fs/cgroup/memory.max") -> int:
    try:
        usable = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2 * _GIB
    # A container sees the memory of its host, and is killed for using it.
    try:
        limit = Path(limit_file).read_text(encoding="ascii").strip()
    except OSError:
        return usable
    return min(usable, int(limit)) if limit.isdigit() else usable
