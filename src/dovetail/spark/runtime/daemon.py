"""PySpark's worker daemon, with the kernels and their libraries loaded before it forks the first worker.

`dovetail.session` names it in ``spark.python.daemon.module``.  A worker then begins at once, where it would spend two
seconds of a core on imports, and all workers share the memory of what is loaded.
"""

from __future__ import annotations

import gc
import runpy

import dovetail.families.approx.stream
import dovetail.families.asof.stream
import dovetail.families.bestmatch.stream_recent
import dovetail.families.shedding.stream
import dovetail.families.theta.stream
import dovetail.families.window.stream
import dovetail.spark.stream  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
