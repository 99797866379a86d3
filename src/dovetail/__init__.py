"""Dovetail: the joins Apache Spark lacks.

Importing this package does not import PySpark; the first call that needs it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.api import approx_join, asof_join, bestmatch_join, estimates, explain, quality, theta_join, window_join
from dovetail.criteria import closest, least, most, overlap, prefer, youngest
from dovetail.errors import (
    ArgumentError,
    DovetailError,
    PredicateError,
    SetupError,
    UnboundedJoinError,
    UnknownNameError,
    UnsupportedTypeError,
)
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.window.graph import after, path

if TYPE_CHECKING:
    from dovetail.spark.metrics import metrics
    from dovetail.spark.session import session

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "DovetailError",
    "Harvest",
    "PredicateError",
    "RandomDrop",
    "SetupError",
    "UnboundedJoinError",
    "UnknownNameError",
    "UnsupportedTypeError",
    "after",
    "approx_join",
    "asof_join",
    "bestmatch_join",
    "closest",
    "estimates",
    "explain",
    "least",
    "metrics",
    "most",
    "overlap",
    "path",
    "prefer",
    "quality",
    "session",
    "theta_join",
    "window_join",
    "youngest",
]

_LAZY = {"metrics": "dovetail.spark.metrics", "session": "dovetail.spark.session"}


def __getattr__(name: str) -> object:
    """Names whose modules import PySpark, loaded when first asked for."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")
