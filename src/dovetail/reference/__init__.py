"""The joins as plain nested loops: their definition, and the oracle of every test.

Nothing here is fast, and nothing here knows the algorithms.  Where an algorithm and this folder disagree, the
algorithm is wrong.  Rows are dictionaries, NULL is None, and a condition returns True, False or None (unknown).
:mod:`dovetail.reference.assemble` turns matches into results for all joins.
"""

from dovetail.reference.aggregate import aggregate_join
from dovetail.reference.asof import asof_join
from dovetail.reference.bestmatch import bestmatch_join
from dovetail.reference.nearest import nearest_join
from dovetail.reference.theta import theta_join
from dovetail.reference.values import at_most, both, difference, equal, less
from dovetail.reference.window import window_join

__all__ = [
    "aggregate_join",
    "asof_join",
    "at_most",
    "bestmatch_join",
    "both",
    "difference",
    "equal",
    "less",
    "nearest_join",
    "theta_join",
    "window_join",
]
