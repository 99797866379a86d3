"""A session whose JVM writes to a file, for programs that own the screen.

The JVM and, through it, the Python workers inherit the standard error of the process that starts them, and some of
their lines obey no log setting: the worker of a stateful operator prints one each time it starts.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from dovetail.spark.runtime.session import open_session


@contextmanager
def quiet_session(app: str, log: Path, *, conf: Mapping[str, object] | None = None) -> Iterator[SparkSession]:
    """A local session that writes what it has to say to `log`; stopped at the end.

    The program that owns the screen also decides when to end: SIGTERM does not reach the JVM and its workers.

    Only what the new processes inherit is redirected.  The standard error of this process is itself again as soon as
    they run.
    """
    with _standard_error_to(log):
        started = open_session(app, conf=conf, sheltered=True)
    try:
        yield started
    except BaseException:
        # What went wrong is on its way already, and a JVM that has ended by itself cannot stop.
        with suppress(Exception):
            _stop(started, log)
        raise
    _stop(started, log)


def _stop(started: SparkSession, log: Path) -> None:
    # A worker of PySpark that dies with the session must not spoil the screen either.
    with _standard_error_to(log), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        started.stop()


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
