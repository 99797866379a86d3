"""The partitioning schemes that Prefap is compared with: FTJ, CFS, OBT and RBM.

They follow section 2 and Figure 2 of the Prefap paper (doi 10.1002/cpe.6996), which is brief on them:

===== =============================== ====================== =========================================
name  partitions                      filter                 source
===== =============================== ====================== =========================================
FTJ   equal spans, then repartitioned pairs of partitions    Hu et al. 2020, FastThetaJoin
CFS   ranges between sampled values   partition and stream   Liu et al. 2017, cross filter strategy
OBT   equal numbers of rows           none                   Okcan and Riedewald 2011, 1-Bucket-Theta
RBM   ranges between sampled values   none                   DeWitt et al. 1992, range-based method
===== =============================== ====================== =========================================
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.families.theta.paper.prefap import (
    REMOVED,
    Codes,
    Layout,
    Operator,
    Parts,
    Values,
    assemble,
    dense,
    extremes,
    prefap_layout,
    stream_filter,
)

_SEED = 6996


def ftj_layout(
    r: Values, s: Values, *, op: Operator, partitions: int = 10, window: int | None = None, round_up: bool = False
) -> Layout:
    """FastThetaJoin: Prefap without its two additions, which is how the paper's ablation treats it.

    Examples
    --------
    >>> ftj_layout(Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9]), op=">", partitions=2).products
    8
    """
    return prefap_layout(
        r, s, op=op, partitions=partitions, window=window, prefilter=False, amalgamate=False, round_up=round_up
    )


def cfs_layout(r: Values, s: Values, *, op: Operator, partitions: int = 10) -> Layout:
    """Cross filter strategy: drop each partition that matches nothing of the *whole* other stream.

    Figure 2C gives the boundaries [0, 4), [4, 9), [9, 12] to S, which are the ranges of RBM and not the equal
    spans of FTJ.  Whatever passes the filter meets everything that passes it on the other side.

    Examples
    --------
    >>> found = cfs_layout(Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9]), op=">", partitions=2)
    >>> found.r_part.tolist(), found.products
    ([-1, -1, 0, 0], 8)
    """
    r_part, s_part = range_partitions(r.codes, partitions), range_partitions(s.codes, partitions)
    if len(r) == 0 or len(s) == 0:
        r_part, s_part = np.full_like(r_part, REMOVED), np.full_like(s_part, REMOVED)
    else:
        r_low, r_high = extremes(r.codes, r_part)
        s_low, s_high = extremes(s.codes, s_part)
        # A partition survives where its extreme does, so Algorithm 1 on the extremes is the filter.
        facing_up = op in ("<", "<=")
        r_kept, s_kept = stream_filter(r_low if facing_up else r_high, s_high if facing_up else s_low, op)
        r_part = dense(np.where(r_kept[r_part], r_part, REMOVED).astype(np.int64), len(r_kept))
        s_part = dense(np.where(s_kept[s_part], s_part, REMOVED).astype(np.int64), len(s_kept))
    return assemble(r, s, r_part, s_part, _all_pairs(r_part, s_part))


def obt_layout(r: Values, s: Values, *, op: Operator, partitions: int = 10) -> Layout:
    """1-Bucket-Theta: equal shares of the sorted rows, every pair of shares, in random order.

    The order of `pairs` is the order in which work is handed to processes; the paper has OBT hand it out at
    random.  The seed is fixed so that a layout is a function of its input.

    Examples
    --------
    >>> obt_layout(Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9]), op=">", partitions=2).r_part.tolist()
    [0, 0, 1, 1]
    """
    r_part, s_part = share_partitions(r.codes, partitions), share_partitions(s.codes, partitions)
    pairs = _all_pairs(r_part, s_part)
    return assemble(r, s, r_part, s_part, np.random.default_rng(_SEED).permutation(pairs))


def rbm_layout(r: Values, s: Values, *, op: Operator, partitions: int = 10) -> Layout:
    """Range-based method: ranges between values sampled from the sorted stream, every pair of ranges.

    Examples
    --------
    The paper's example of a skewed stream: (-inf, 1), [1, 2), [2, inf) leave one range without rows.

    >>> found = rbm_layout(Values.of([1, 1, 1, 1, 1, 1, 2, 2, 3]), Values.of([1]), op=">", partitions=3)
    >>> found.r_sizes.tolist()
    [6, 3]
    """
    r_part, s_part = range_partitions(r.codes, partitions), range_partitions(s.codes, partitions)
    return assemble(r, s, r_part, s_part, _all_pairs(r_part, s_part))


def range_partitions(codes: Codes, p: int) -> Parts:
    """Cut at every ``n / p``-th value of the sorted stream: for 9 rows and p = 3, at the 4th and the 7th."""
    if len(codes) == 0:
        return np.empty(0, np.int32)
    at = np.arange(1, p) * len(codes) // p
    cuts = np.unique(np.sort(codes)[at])
    return dense(np.searchsorted(cuts, codes, side="right").astype(np.int64), len(cuts) + 1)


def share_partitions(codes: Codes, p: int) -> Parts:
    """Cut the sorted stream into p shares of equal size; equal values may fall in two shares."""
    share = np.empty(len(codes), np.int64)
    share[np.argsort(codes, kind="stable")] = np.arange(len(codes)) * p // max(len(codes), 1)
    return dense(share, p)


def _all_pairs(r_part: Parts, s_part: Parts) -> npt.NDArray[np.int64]:
    r_count, s_count = int(r_part.max(initial=REMOVED)) + 1, int(s_part.max(initial=REMOVED)) + 1
    grid = np.indices((r_count, s_count)).reshape(2, -1).T
    return np.ascontiguousarray(grid, np.int64)
