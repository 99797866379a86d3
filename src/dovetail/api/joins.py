"""The join functions by the names of their families, as SQL statements and job files ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.api.aggregate import aggregate_join
from dovetail.api.approx import approx_join
from dovetail.api.asof import asof_join
from dovetail.api.bestmatch import bestmatch_join
from dovetail.api.nearest import nearest_join
from dovetail.api.theta import theta_join
from dovetail.api.window import window_join

JOINS: dict[str, Callable[..., Any]] = {
    "theta": theta_join,
    "aggregate": aggregate_join,
    "window": window_join,
    "asof": asof_join,
    "bestmatch": bestmatch_join,
    "approx": approx_join,
    "nearest": nearest_join,
}
