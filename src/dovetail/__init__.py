"""Dovetail: the joins Apache Spark lacks.

Importing this package loads next to nothing; the first use of a name loads what it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dovetail.errors import (
    ArgumentError,
    CheckpointError,
    DovetailError,
    JobError,
    MemoryLimitError,
    PredicateError,
    SetupError,
    StatementError,
    UnboundedJoinError,
    UnknownNameError,
    UnsupportedTypeError,
)

if TYPE_CHECKING:
    from dovetail.api import (
        aggregate_join,
        approx_join,
        asof_join,
        bestmatch_join,
        estimates,
        nearest_join,
        quality,
        theta_join,
        window_join,
    )
    from dovetail.api.explain import explain
    from dovetail.api.sql import register_order, sql
    from dovetail.conditions.criteria import closest, least, most, overlap, prefer, youngest
    from dovetail.families.shedding.spec import Harvest, RandomDrop
    from dovetail.families.theta.spec import CFS, FTJ, OBT, RBM, Prefap
    from dovetail.families.window.graph import after, path
    from dovetail.plots import charts as plot
    from dovetail.spark.listening import listen
    from dovetail.spark.metrics import metrics
    from dovetail.spark.queries import check_checkpoint
    from dovetail.spark.resume import resume
    from dovetail.spark.runtime.session import session
    from dovetail.spark.state import state
    from dovetail.spark.watermarks import watermarked

__version__ = "0.1.0"

__all__ = [
    "CFS",
    "FTJ",
    "OBT",
    "RBM",
    "ArgumentError",
    "CheckpointError",
    "DovetailError",
    "Harvest",
    "JobError",
    "MemoryLimitError",
    "PredicateError",
    "Prefap",
    "RandomDrop",
    "SetupError",
    "StatementError",
    "UnboundedJoinError",
    "UnknownNameError",
    "UnsupportedTypeError",
    "after",
    "aggregate_join",
    "approx_join",
    "asof_join",
    "bestmatch_join",
    "check_checkpoint",
    "closest",
    "estimates",
    "explain",
    "least",
    "listen",
    "metrics",
    "most",
    "nearest_join",
    "overlap",
    "path",
    "plot",
    "prefer",
    "quality",
    "register_order",
    "resume",
    "session",
    "sql",
    "state",
    "theta_join",
    "watermarked",
    "window_join",
    "youngest",
]

_MODULES = {
    "dovetail.api": (
        "aggregate_join", "approx_join", "asof_join", "bestmatch_join", "estimates", "explain", "nearest_join",
        "quality", "register_order", "sql", "theta_join", "window_join",
    ),
    "dovetail.conditions.criteria": ("closest", "least", "most", "overlap", "prefer", "youngest"),
    "dovetail.families.shedding.spec": ("Harvest", "RandomDrop"),
    "dovetail.families.theta.spec": ("CFS", "FTJ", "OBT", "Prefap", "RBM"),
    "dovetail.families.window.graph": ("after", "path"),
    "dovetail.spark.watermarks": ("watermarked",),
    "dovetail.spark.listening": ("listen",),
    "dovetail.spark.metrics": ("metrics",),
    "dovetail.spark.queries": ("check_checkpoint",),
    "dovetail.spark.resume": ("resume",),
    "dovetail.spark.runtime.session": ("session",),
    "dovetail.spark.state": ("state",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module that is loaded when it is first asked for.

    A worker of Spark imports this package for one kernel: it must not pay for PySpark, the parser and all families.
    """
    if name == "plot":
        return importlib.import_module("dovetail.plots.charts")
    if name not in _HOMES:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
