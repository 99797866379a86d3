"""Joins that shed, without a JVM, on the paper's streams."""

from __future__ import annotations

from dovetail.families.shedding.clock import SECOND
from dovetail.families.shedding.workload import Wandering, arrival_times, epsilon_join, maker

ALIGNED, LAGGING = (0.0, 0.0, 0.0), (0.0, 5.0, 15.0)
wandering_spec = epsilon_join

__all__ = ["ALIGNED", "LAGGING", "SECOND", "Wandering", "arrival_times", "maker", "wandering_spec"]
