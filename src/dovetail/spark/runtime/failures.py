"""What Spark raises, and how a message of this library quotes it."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What an action raises where Spark fails."""

ANSWERS: tuple[type[Exception], ...] = (*SPARK_ERRORS, ConnectionError)
"""What a call of Spark raises, a JVM that does not answer any more included."""

ANALYSIS_ERRORS: tuple[type[Exception], ...] = (AnalysisException,)
"""What Spark raises before anything runs: a table that exists, a column that does not."""


_OURS = re.compile(r"\bdovetail\.errors\.\w+: (?P<said>[^\n]*(?:\n  [^\n]*)*)")
_TRACE = "Traceback (most recent call last):"


_WHAT_HELPS = {
    "CANNOT_LOAD_STATE_STORE": "a file of the checkpoint's state is missing or damaged: put it back from a copy and "
    "start again, or begin with a new checkpoint",
    "CANNOT_WRITE_STATE_STORE": "the state could not be written to the checkpoint, whose disk is full or cannot be "
    "reached: make room, and start again on the same checkpoint",
    "No space left on device": "a disk is full, that of the checkpoint, the output or spark.local.dir: make room, and "
    "start again on the same checkpoint",
    "Python worker exited unexpectedly": "a Python worker died, often killed by the kernel for its memory: more "
    "partitions, fewer cores for each executor or a larger spark.executor.memoryOverhead help; with "
    "spark.executor.pyspark.memory set, Dovetail knows how much a worker may take, and keeps below it",
    "MemoryError": "a Python worker has used up its memory: more of it (spark.executor.pyspark.memory), more "
    "partitions or a smaller spark.sql.execution.arrow.maxBytesPerBatch help",
    "shuffle map stage with indeterminate output": "an executor was lost, and a task that ran again gave other rows: "
    "start again on the same checkpoint; spark.sql.shuffle.orderIndependentChecksum.enabled=false spares it joins that "
    "shed by the clock",
    "Python worker failed to connect back": "the machine was too busy to start a Python process in ten seconds: start "
    "again on the same checkpoint",
}
"""What to do about words of Spark that do not say it."""


def brief(error: Exception) -> str:
    r"""The essence of a message; those of Spark carry the traces of two languages around it.

    Examples
    --------
    >>> brief(ValueError("[TABLE_NOT_FOUND] no such table\n\nJVM stacktrace:\n"))
    '[TABLE_NOT_FOUND] no such table'

    What Dovetail refused in a worker stands alone, and of any other exception of Python its last line:

    >>> brief(ValueError("STREAM_FAILED: dovetail.errors.CheckpointError: another join\n  hint: a new one\n\n\tat x"))
    'another join\n  hint: a new one'
    >>> brief(ValueError("Aborted: Traceback (most recent call last):\n  File\nZeroDivisionError: by zero\n\n\tat x"))
    'a Python worker failed: ZeroDivisionError: by zero'

    Where Spark only says what happened, what helps is added:

    >>> print(brief(OSError("Aborted: Python worker failed to connect back.\n\tat x")))
    Aborted: Python worker failed to connect back.
      hint: the machine was too busy to start a Python process in ten seconds: start again on the same checkpoint
    """
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        return ours["said"].rstrip()
    if _TRACE in text:
        # The last trace is the cause that the others led to; its lines are indented up to the exception itself.
        raised = [line for line in text.rpartition(_TRACE)[2].splitlines()[1:] if line and not line[0].isspace()]
        if raised:
            return "\n".join([f"a Python worker failed: {raised[0]}", *_hints(raised[0])])
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    said = [line for line in lines[:3] if not line.startswith(("JVM stacktrace", "== SQL", "\tat "))]
    return "\n".join([*said, *_hints(text)])


def _hints(text: str) -> list[str]:
    return [f"  hint: {hint}" for words, hint in _WHAT_HELPS.items() if words in text][:1]


def is_state_missing(error: PySparkException) -> bool:
    """Whether Spark says of a checkpoint that there is no state in it to be read: no folder, or nothing committed."""
    return isinstance(error, AnalysisException) or str(error.getCondition() or "").startswith("STDS_")


def is_jvm_gone(error: BaseException) -> bool:
    """Whether an error says that the JVM does not answer any more, and nothing about what it was asked for."""
    return isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError))
