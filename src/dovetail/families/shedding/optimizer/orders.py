"""Join orders: the window that lets fewest rows through comes first, among those that a condition reaches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.families.shedding.optimizer.model import Floats, Ints

CLEARLY = 0.3
"""A selectivity is lower than another if it is so much of it at most.

With 0.7 joins of five streams changed their orders every few seconds, and gave half as much where their lags differ.
Three streams in a sudden overload lose by it: a seventh of their output.
"""


def join_orders(selectivity: Floats, linked: npt.NDArray[np.bool_], first: int = 0) -> Ints:
    """For each direction the order in which the other inputs are looked up (section 5.3).

    Parameters
    ----------
    selectivity
        (m, m): the part of the pairs of a row of i and a row in the window of l that match.
    linked
        (m, m): whether a condition connects two inputs.  An input without a link to those before it comes only where
        nothing else is left: it would multiply partial matches instead of thinning them.
    first
        Begin with the lowest selectivity, or with the one that so many others are below.

    Examples
    --------
    A chain A - B - C.  From A, B comes first, although C lets fewer rows through:

    >>> selectivity = np.array([[0, 0.5, 0.1], [0.3, 0, 0.2], [0.1, 0.5, 0]])
    >>> chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> join_orders(selectivity, chain).tolist()
    [[1, 2], [2, 0], [1, 0]]
    >>> join_orders(selectivity, chain, first=1).tolist()
    [[1, 2], [0, 2], [1, 0]]
    """
    m = selectivity.shape[0]
    orders = np.zeros((m, m - 1), dtype=np.int64)
    for i in range(m):
        chosen = [i]
        for position in range(m - 1):
            left = [side for side in range(m) if side not in chosen]
            near = [side for side in left if linked[side, chosen].any()]
            ranked = sorted(near or left, key=lambda side: (selectivity[i, side], side))
            following = ranked[min(first, len(ranked) - 1) if position == 0 else 0]
            orders[i, position] = following
            chosen.append(following)
    return orders


def beginning_with(order: Ints, first: int) -> Ints:
    """A join order with one of its inputs moved to the front.

    Examples
    --------
    >>> beginning_with(np.array([3, 0, 2]), 2).tolist()
    [2, 3, 0]
    """
    return np.concatenate([[first], order[order != first]])


def steady_orders(selectivity: npt.NDArray[np.float64], before: Ints, after: Ints) -> Ints:
    """New join orders, but the old one of a direction where the new one is hardly better.

    Selectivities are estimates: of two that are alike, sometimes one is lower and sometimes the other.  With every
    change of the order all that is known of its positions is lost, and the full work that the throttle refers to
    changes.

    Examples
    --------
    >>> before, after = np.array([[1, 2], [0, 2], [0, 1]]), np.array([[2, 1], [2, 0], [0, 1]])
    >>> steady_orders(np.array([[0, 0.5, 0.48], [0.5, 0, 0.1], [0.2, 0.3, 0]]), before, after).tolist()
    [[1, 2], [2, 0], [0, 1]]
    """
    kept = after.copy()
    for i in range(before.shape[0]):
        differ = np.flatnonzero(before[i] != after[i])
        if differ.size:
            old, new = before[i, differ[0]], after[i, differ[0]]
            if selectivity[i, new] > CLEARLY * selectivity[i, old]:
                kept[i] = before[i]
    return kept
