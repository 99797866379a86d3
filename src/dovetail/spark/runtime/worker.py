"""Care of the Python workers that run stages and kernels."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle(stage: str) -> None:
    """Take what this worker has loaded out of the garbage collector's sight, once for each kind of stage.

    PySpark collects garbage after every task, and the next task waits for it.  NumPy, Arrow and Numba are 100,000
    objects that are never garbage: going through them takes 40 ms of an idle core and twice that of a busy one.
    """
    gc.collect()
    gc.freeze()
