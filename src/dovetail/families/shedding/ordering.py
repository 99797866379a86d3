"""Join orders: the window that lets fewest rows through comes first, among those that a condition reaches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.families.shedding.model import Floats, Ints


def join_orders(selectivity: Floats, linked: npt.NDArray[np.bool_]) -> Ints:
    """For each direction the order in which the other inputs are looked up (section 5.3).

    Parameters
    ----------
    selectivity
        (m, m): the part of the pairs of a row of i and a row in the window of l that match.
    linked
        (m, m): whether a condition connects two inputs.  An input without a link to those before it comes only where
        nothing else is left: it would multiply partial matches instead of thinning them.

    Examples
    --------
    A chain A - B - C.  From A, B comes first, although C lets fewer rows through:

    >>> selectivity = np.array([[0, 0.5, 0.1], [0.3, 0, 0.2], [0.1, 0.5, 0]])
    >>> chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool)
    >>> join_orders(selectivity, chain).tolist()
    [[1, 2], [2, 0], [1, 0]]
    """
    m = selectivity.shape[0]
    orders = np.zeros((m, m - 1), dtype=np.int64)
    for i in range(m):
        chosen = [i]
        for place in range(m - 1):
            left = [side for side in range(m) if side not in chosen]
            near = [side for side in left if linked[side, chosen].any()]
            following = min(near or left, key=lambda side: (selectivity[i, side], side))
            orders[i, place] = following
            chosen.append(following)
    return orders
