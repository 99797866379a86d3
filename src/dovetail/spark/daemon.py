"""PySpark's worker daemon, with the kernels and their libraries loaded before it forks the first worker.

`dovetail.session` names it in ``spark.python.daemon.module``.  A worker then begins at once, where it would spend two
seconds of a core on imports, and all workers share the memory of what is loaded.
"""

from __future__ import annotations

import gc
import runpy

import dovetail.families.approx.kernel
import dovetail.families.asof.streaming
import dovetail.families.bestmatch.recent
import dovetail.families.shedding.kernel
import dovetail.families.theta.windowed
import dovetail.families.window.kernel
import dovetail.spark.stream  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
