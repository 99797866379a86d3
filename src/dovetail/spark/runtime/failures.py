"""What Spark raises, and how a message of this library quotes it."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What an action raises where Spark fails."""

ANALYSIS_ERRORS: tuple[type[Exception], ...] = (AnalysisException,)
"""What Spark raises before anything runs: a table that exists, a column that does not."""


def brief(error: Exception) -> str:
    r"""The first lines of a message; those of Spark carry the traces of two languages after them.

    Examples
    --------
    >>> brief(ValueError("[TABLE_NOT_FOUND] no such table\n\nJVM stacktrace:\n"))
    '[TABLE_NOT_FOUND] no such table'
    """
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return "\n".join(line for line in lines[:3] if not line.startswith(("JVM stacktrace", "== SQL")))
