"""Care of the Python workers that run stages and kernels."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyspark import TaskContext

from dovetail.errors import DovetailError


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Let what Dovetail refuses within a worker reach the user without a trace, in the first line of Spark's message.

    PySpark asks the environment where it reports the exception that ends a worker, and then ends the worker.
    """
    try:
        yield
    except DovetailError:
        if TaskContext.get() is not None:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@cache
def settle(stage: str) -> None:
    """Take what this worker has loaded out of the garbage collector's sight, once for each kind of stage.

    PySpark collects garbage after every task, and the next task waits for it.  NumPy, Arrow and Numba are 100,000
    objects that are never garbage: going through them takes 40 ms of an idle core and twice that of a busy one.
    """
    gc.collect()
    gc.freeze()
