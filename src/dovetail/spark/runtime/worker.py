"""Care of the Python workers that run stages and kernels."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from pyspark import TaskContext

from dovetail.columns.memory import WHAT_HELPS, used_up
from dovetail.errors import DovetailError


@contextmanager
def plain_refusals(
    what: str = "a stage of a join", key: Callable[[], str | None] = lambda: None, hint: str = WHAT_HELPS
) -> Iterator[None]:
    """Let what Dovetail refuses within a worker reach the user without a trace, in the first line of Spark's message.

    PySpark asks the environment where it reports the exception that ends a worker, and then ends the worker.  Memory
    that is used up is refused, too, in words that say `what` was at work, which `key` most of its rows had, and what
    may help.
    """
    try:
        yield
    except DovetailError:
        _hide_trace()
        raise
    except MemoryError as error:
        said = str(error)
    except (OSError, ImportError) as error:
        # A thread, a mapped file or a library that finds no room.
        if getattr(error, "errno", None) != errno.ENOMEM and _NO_ROOM not in str(error):
            raise
        said = str(error)
    else:
        return
    _hide_trace()
    raise used_up(what, said, _known(key), hint)


def _known(key: Callable[[], str | None]) -> str | None:
    """What is known of the keys, if memory is enough to find out."""
    with suppress(MemoryError, OSError):
        return key()
    return None


_NO_ROOM = "cannot allocate memory"


def _hide_trace() -> None:
    if TaskContext.get() is not None:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


@cache
def settle(stage: str) -> None:
    """Take what this worker has loaded out of the garbage collector's sight, once for each kind of stage.

    PySpark collects garbage after every task, and the next task waits for it.  NumPy, Arrow and Numba are 100,000
    objects that are never garbage: going through them takes 40 ms of an idle core and twice that of a busy one.
    """
    gc.collect()
    gc.freeze()
