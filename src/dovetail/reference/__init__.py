"""The joins as plain nested loops: their definition, and the oracle of every test.

Nothing here is fast, and nothing here knows the algorithms.  Where an algorithm and this folder disagree, the
algorithm is wrong.  Rows are dictionaries, NULL is None, and a condition answers True, False or None (unknown).
"""

from dovetail.reference.theta import theta_join
from dovetail.reference.values import at_most, both, difference, equal, less

__all__ = ["at_most", "both", "difference", "equal", "less", "theta_join"]
