"""The functions a user calls, one module per family: arguments -> checked spec -> plan -> frame."""

from dovetail.api.explain import explain
from dovetail.api.theta import theta_join

__all__ = ["explain", "theta_join"]
