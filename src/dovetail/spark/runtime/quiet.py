"""A session whose JVM writes to a file, for programs that own the screen.

The JVM and, through it, the Python workers inherit the standard error of the process that starts them, and some of
their lines obey no log setting: the worker of a stateful operator prints one each time it starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from dovetail.spark.runtime.session import session


@contextmanager
def quiet_session(app: str, log: Path, *, conf: Mapping[str, object] | None = None) -> Iterator[SparkSession]:
    """A local session that writes what it has to say to `log`; stopped at the end.

    Only what the new processes inherit is redirected.  The standard error of this process is itself again as soon as
    they run.
    """
    with _standard_error_to(log):
        started = session(app, conf=conf)
    try:
        yield started
    finally:
        # A worker of PySpark that dies with the session must not spoil the screen either.
        with _standard_error_to(log):
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
