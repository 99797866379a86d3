"""PySpark's worker daemon, with the kernels and their libraries loaded before it forks the first worker.

`dovetail.session` names it in ``spark.python.daemon.module``.  A worker then begins at once, where it would spend two
seconds of a core on that, and all workers share the memory of what is loaded.

It is also silent about what is no failure.  Spark hangs up on a worker whose rows it does not need any more (``limit``,
``show``), and PySpark's daemon prints a trace for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Spark puts an archive of PySpark first, whose modules have no byte code: they take four times as long to import as
# those of the installed PySpark, which is the same one where this daemon runs.
sys.path.sort(key=lambda place: place.endswith("pyspark.zip"))

if "PYSPARK_EXECUTOR_MEMORY_MB" in os.environ:
    # Spark will limit the address space of the workers.  What a library only reserves counts there like what it uses:
    # Arrow's own allocator keeps what it has once had, OpenBLAS and the C library take 70 MiB each for their threads.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with contextlib.suppress(OSError, AttributeError):  # only the C library of GNU has that
        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX

import numpy as np
import pandas as pd  # noqa: F401 - PyArrow imports it for the first array
from pyspark import daemon

import dovetail.families.aggregate.stream
import dovetail.families.approx.stream
import dovetail.families.asof.stream
import dovetail.families.bestmatch.stream_recent
import dovetail.families.nearest.stream
import dovetail.families.shedding.stream
import dovetail.families.theta.stream
import dovetail.families.window.stream
import dovetail.spark.stream  # noqa: F401
from dovetail.columns.codes import float_codes

_HUNG_UP = (BrokenPipeError, ConnectionResetError)


class Replaced:
    """A module with functions of ours in the place of some of its own, for one module that uses it."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self.__dict__.update(functions, _module=module)

    def __getattr__(self, name: str) -> Any:
        """Everything else is as it is."""
        return getattr(self._module, name)


def print_unless_hung_up(*values: object, **options: Any) -> None:
    """Print what PySpark's daemon has to say, unless the cause is that Spark hung up."""
    if not isinstance(sys.exception(), _HUNG_UP):
        print(*values, **options)


def trace_unless_hung_up() -> None:
    """Print the trace of an exception that ends a worker, unless the cause is that Spark hung up."""
    if not isinstance(sys.exception(), _HUNG_UP):
        traceback.print_exc()


def report_unless_hung_up(unraisable: sys.UnraisableHookArgs) -> None:
    """Report an exception that nobody can catch, unless it is a connection that Spark closed before it was flushed."""
    if not isinstance(unraisable.exc_value, _HUNG_UP):
        sys.__unraisablehook__(unraisable)


def handle_but_sigterm(number: int, handler: Any) -> Any:
    """Set the handler of any signal but SIGTERM."""
    return None if number == signal.SIGTERM else signal.signal(number, handler)


def main() -> None:
    """Run the daemon until Spark has no more use for it."""
    replaced: dict[str, object] = {
        "print": print_unless_hung_up,
        "traceback": Replaced(traceback, print_exc=trace_unless_hung_up),
    }
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        # The session is a sheltered one (dovetail.spark.runtime.gateway), and so are its workers.  The daemon ends when
        # Spark closes its standard input, and its workers with it.
        replaced["signal"] = Replaced(signal, signal=handle_but_sigterm)
    vars(daemon).update(replaced)
    sys.unraisablehook = report_unless_hung_up
    float_codes(np.zeros(1))  # Numba gets ready at its first call, which takes longer than to import it
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
