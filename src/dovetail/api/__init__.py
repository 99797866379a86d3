"""The functions a user calls, one module per family: arguments -> checked spec -> plan -> frame."""

from dovetail.api.aggregate import aggregate_join
from dovetail.api.approx import approx_join, estimates, quality
from dovetail.api.asof import asof_join
from dovetail.api.bestmatch import bestmatch_join
from dovetail.api.explain import explain
from dovetail.api.nearest import nearest_join
from dovetail.api.sql import register_order, sql
from dovetail.api.theta import theta_join
from dovetail.api.window import window_join

__all__ = [
    "aggregate_join",
    "approx_join",
    "asof_join",
    "bestmatch_join",
    "estimates",
    "explain",
    "nearest_join",
    "quality",
    "register_order",
    "sql",
    "theta_join",
    "window_join",
]
