"""Prefap: prefiltering and amalgamated partitioning for an inequality join of two streams.

The paper is Wu, Wang, Fan, Ye and Xu, "Toward fast theta-join: A prefiltering and amalgamated partitioning
approach" (doi 10.1002/cpe.6996).  Comments name its lines as *A2.5* (Algorithm 2, line 5) and its variables
keep their names: ``sp`` span, ``PB`` partitioning boundary, ``APB`` amalgamated boundary, ``rn``
repartitioning number, ``AS`` average size, ``w`` window size, ``p`` number of partitions.

A partition is a range of *positions* (float64), a filter compares *codes* (int64).  The map from code to
position is monotone but may merge neighbours, so a boundary never separates what a comparison needs in one
order, and no filter ever rests on rounded numbers.  That is why every layout is complete whatever the spans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.errors import ArgumentError

Codes = npt.NDArray[np.int64]
Positions = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Parts = npt.NDArray[np.int32]
Operator = Literal["<", "<=", ">", ">="]

Number = TypeVar("Number", np.int64, np.float64)

REMOVED = -1
"""The partition index of a row that a filter removed."""

_HUGE = 2.0**1021


@dataclass(frozen=True)
class Values:
    """One join column, once for comparing and once for measuring.

    Parameters
    ----------
    codes
        Order-preserving int64: equal codes stand for equal values, and ``<`` on codes is ``<`` on values.
    positions
        A monotone, not necessarily strict, map of the value to float64.  Infinities are allowed; a value
        that sorts last, such as NaN in Spark, has the position ``+inf``.

    Examples
    --------
    >>> import numpy as np
    >>> prices = Values.of(np.array([2.5, np.nan, -0.0, 0.0]))
    >>> prices.positions.tolist()
    [2.5, inf, 0.0, 0.0]
    >>> np.argsort(prices.codes, kind="stable").tolist()
    [2, 3, 0, 1]
    """

    codes: Codes
    positions: Positions

    def __post_init__(self) -> None:
        if self.codes.dtype != np.int64 or self.positions.dtype != np.float64:
            raise ArgumentError(
                f"Values of types {self.codes.dtype} and {self.positions.dtype}",
                accepted="int64 codes and float64 positions",
            )
        if self.codes.ndim != 1 or self.codes.shape != self.positions.shape:
            raise ArgumentError(
                f"Values of shapes {self.codes.shape} and {self.positions.shape}",
                accepted="two one-dimensional arrays of one length",
            )
        if np.isnan(self.positions).any():
            raise ArgumentError(
                "Values with a NaN position",
                accepted="numbers and infinities",
                hint="NaN sorts last in Spark: give it the position +inf",
            )

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(cls, numbers: npt.ArrayLike) -> Values:
        """Encode an array of integers or floats; NaN sorts last and equals itself, -0.0 equals 0.0."""
        array = np.asarray(numbers)
        if array.dtype.kind in "iub":
            codes = array.astype(np.int64)
            return cls(codes, codes.astype(np.float64))
        floats = array.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
        is_nan = np.isnan(floats)
        bits = np.where(is_nan, np.nan, floats).view(np.int64)  # one bit pattern for every NaN
        # Negative floats count downwards as integers: flipping their magnitude bits turns them round.
        codes = bits ^ ((bits >> np.int64(63)) & np.int64(2**63 - 1))
        codes[is_nan] = np.iinfo(np.int64).max
        return cls(codes, np.where(is_nan, np.inf, floats))


@dataclass(frozen=True)
class Layout:
    """Which partition each row is in, and which partitions meet.

    Parameters
    ----------
    r_part, s_part
        The partition of each row, or ``REMOVED`` (-1).
    pairs
        The surviving pairs (partition of R, partition of S), one per line.
    products
        The number of Cartesian products: the sum of ``|R_i| * |S_j|`` over the pairs.
    r_bounds, s_bounds
        The smallest and the largest position in each partition, one partition per line.
    """

    r_part: Parts
    s_part: Parts
    pairs: npt.NDArray[np.int64]
    products: int
    r_bounds: Positions
    s_bounds: Positions

    @property
    def r_sizes(self) -> npt.NDArray[np.int64]:
        """The number of rows in each partition of R."""
        return sizes(self.r_part, len(self.r_bounds))

    @property
    def s_sizes(self) -> npt.NDArray[np.int64]:
        """The number of rows in each partition of S."""
        return sizes(self.s_part, len(self.s_bounds))


def prefap_layout(
    r: Values,
    s: Values,
    *,
    op: Operator,
    partitions: int = 10,
    window: int | None = None,
    prefilter: bool = True,
    amalgamate: bool = True,
    round_up: bool = False,
) -> Layout:
    """Partition two streams by Algorithms 1 to 3 and filter the pairs of partitions.

    Parameters
    ----------
    r, s
        The join columns.
    op
        The comparison ``r op s``.
    partitions
        The paper's *p*, for each stream before its boundaries are amalgamated.
    window
        The paper's *w*, from which the average partition size follows; the stream's own size by default.
    prefilter, amalgamate
        Switch Algorithm 1, or the amalgamation in Algorithm 2, off, as in the paper's ablation.
    round_up
        Round the repartitioning span up to a whole number, as A3.5 prints it.

    Examples
    --------
    >>> phones, laptops = Values.of([1, 2, 5, 9]), Values.of([2, 4, 8, 9])
    >>> found = prefap_layout(phones, laptops, op=">", partitions=2)
    >>> found.r_part.tolist(), found.s_part.tolist()
    ([-1, -1, 0, 1], [0, 0, 1, -1])
    >>> found.pairs.tolist(), found.products
    ([[0, 0], [1, 0], [1, 1]], 5)
    """
    keep_r, keep_s = stream_filter(r.codes, s.codes, op) if prefilter else (_everything(r), _everything(s))
    r_positions, s_positions = _measurable(r.positions, s.positions)
    PB_R = boundaries(r_positions[keep_r], partitions)
    PB_S = boundaries(s_positions[keep_s], partitions)
    if amalgamate:
        # A2.5: both lists in one order.
        PB_R = PB_S = np.concatenate([PB_R, PB_S])
    r_part = partition(r_positions, keep_r, PB_R)
    s_part = partition(s_positions, keep_s, PB_S)
    r_part = repartition(r_positions, r_part, len(r) if window is None else window, round_up=round_up)
    s_part = repartition(s_positions, s_part, len(s) if window is None else window, round_up=round_up)
    r_low, r_high = extremes(r.codes, r_part)
    s_low, s_high = extremes(s.codes, s_part)
    return assemble(r, s, r_part, s_part, surviving(r_low, r_high, s_low, s_high, op))


def stream_filter(r_codes: Codes, s_codes: Codes, op: Operator) -> tuple[Mask, Mask]:
    """Algorithm 1: which rows of R and S can match at all, judged by the other stream's extremes."""
    if len(r_codes) == 0 or len(s_codes) == 0:
        # The paper has no minimum of an empty stream; nothing matches.
        return np.zeros(len(r_codes), np.bool_), np.zeros(len(s_codes), np.bool_)
    # The paper filters R first and then takes R's extreme.  The order is immaterial: R loses rows at its
    # other end only, and where it loses them all, S's rows fail against the extreme that R had.
    if op == ">":  # A1.2, A1.3
        return r_codes > s_codes.min(), s_codes < r_codes.max()
    if op == ">=":  # A1.5, A1.6
        return r_codes >= s_codes.min(), s_codes <= r_codes.max()
    if op == "<":  # A1.8, A1.9
        return r_codes < s_codes.max(), s_codes > r_codes.min()
    return r_codes <= s_codes.max(), s_codes >= r_codes.min()  # A1.11, A1.12


def boundaries(positions: Positions, p: int) -> Positions:
    """Equation 3 and A2.3: where the partitions of one stream begin, and where the last one ends.

    A boundary ``b`` means "a new partition starts with the positions >= b".  The last partition is closed at
    ``D_max``, so its end is the next float above ``D_max``: inside an amalgamated boundary, the other
    stream's rows that lie above ``D_max`` are then apart from those equal to it.  (The paper leaves open how
    a closed end amalgamates; this reading gives its Table 3.)

    Examples
    --------
    >>> boundaries(np.array([0.0, 1.0, 8.0]), 4)[:-1].tolist()
    [0.0, 2.0, 4.0, 6.0]
    """
    finite = positions[np.isfinite(positions)]
    if len(finite) == 0:
        return np.empty(0, np.float64)
    D_min, D_max = finite.min(), finite.max()
    sp = (D_max - D_min) / p  # A2.2
    starts = D_min + np.arange(p, dtype=np.float64) * sp
    return np.append(starts, np.nextafter(D_max, np.inf))


def repartition(positions: Positions, part: Parts, w: float, *, round_up: bool = False) -> Parts:
    """A3.2 to A3.9: split every partition larger than the average into equal spans.

    Two gaps of the printed text are filled here.  The span of A3.5 subtracts the partition's minimum from
    ``P_Dmax``, the maximum of the whole stream; its superscript *i* is missing, since A3.6 ends at the
    partition's own maximum.  And A3.5 rounds the span up to a whole number, which on data such as [0, 1]
    leaves every partition whole: the span stays as it is unless `round_up` asks for the printed text.
    """
    size = sizes(part)
    if len(size) == 0:
        return part
    AS = w / len(size)  # A3.2; P_D.size() counts the partitions that A2.8 left
    oversized = size > AS  # A3.4
    # Equation 4.  A partition has no more than `size` parts with a row in them, so more are not asked for;
    # without the cap a tiny w would make rn as large as p times the stream.
    rn = np.where(oversized, np.minimum(np.ceil(size / AS), size), 1).astype(np.int64)
    rows = np.flatnonzero(part >= 0)
    i, position = part[rows], positions[rows]
    low, high = _finite_extremes(position, i, len(size))
    sp = (high - low) / rn  # A3.5
    if round_up:
        sp = np.ceil(sp)
    # A3.6, without writing the boundaries down: the offset from the partition's minimum in whole spans.
    # Subtracting, dividing by one span and clipping are monotone, so the parts stay in the order of values,
    # and infinite rows end up in the first or the last part.
    split = (sp > 0)[i]
    at = np.zeros(len(rows), np.float64)
    np.divide(position - low[i], sp[i], out=at, where=split)
    part_of = np.clip(at, 0, rn[i] - 1).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(rn)[:-1]])
    divided = np.full(len(part), REMOVED, np.int64)
    divided[rows] = first[i] + part_of
    return dense(divided, int(rn.sum()))  # A3.9


def surviving(r_low: Codes, r_high: Codes, s_low: Codes, s_high: Codes, op: Operator) -> npt.NDArray[np.int64]:
    """A3.11 to A3.23: the pairs of partitions whose extremes allow a match.

    The partitions of S come in the order of their values, so those that meet one partition of R are a
    prefix (for ``>`` and ``>=``) or a suffix, found by bisection and not by the paper's double loop.
    """
    if op == ">":  # A3.13: P_R^i max > P_S^j min
        begin = np.zeros(len(r_high), np.int64)
        end = np.searchsorted(s_low, r_high, side="left")
    elif op == ">=":  # A3.15
        begin = np.zeros(len(r_high), np.int64)
        end = np.searchsorted(s_low, r_high, side="right")
    elif op == "<":  # A3.17: P_R^i min < P_S^j max
        begin = np.searchsorted(s_high, r_low, side="right")
        end = np.full(len(r_low), len(s_high), np.int64)
    else:  # A3.19
        begin = np.searchsorted(s_high, r_low, side="left")
        end = np.full(len(r_low), len(s_high), np.int64)
    count = end - begin
    i = np.repeat(np.arange(len(count)), count)
    j = np.arange(len(i)) - np.repeat(np.cumsum(count) - count - begin, count)
    return np.stack([i, j], axis=1).astype(np.int64)


def assemble(r: Values, s: Values, r_part: Parts, s_part: Parts, pairs: npt.NDArray[np.int64]) -> Layout:
    """The layout of these partitions and pairs, with its cost."""
    r_bounds = np.stack(extremes(r.positions, r_part), axis=1)
    s_bounds = np.stack(extremes(s.positions, s_part), axis=1)
    r_size, s_size = sizes(r_part, len(r_bounds)), sizes(s_part, len(s_bounds))
    products = int((r_size[pairs[:, 0]] * s_size[pairs[:, 1]]).sum())
    return Layout(r_part, s_part, pairs, products, r_bounds, s_bounds)


def sizes(part: Parts, count: int = 0) -> npt.NDArray[np.int64]:
    """The number of rows in each partition, removed rows apart."""
    return np.bincount(part[part >= 0], minlength=count).astype(np.int64)


def extremes(values: npt.NDArray[Number], part: Parts) -> tuple[npt.NDArray[Number], npt.NDArray[Number]]:
    """The smallest and the largest value in each partition; no partition may be empty."""
    kept = part >= 0
    values, part = values[kept], part[kept]
    # One value of each partition to begin with, which needs no largest and no smallest number of the type.
    low = np.empty(int(part.max(initial=REMOVED)) + 1, values.dtype)
    low[part] = values
    high = low.copy()
    np.minimum.at(low, part, values)
    np.maximum.at(high, part, values)
    return low, high


def partition(positions: Positions, keep: Mask, boundary: Positions) -> Parts:
    """A2.7 and A2.8: the partition of each kept row, numbered without gaps."""
    # The lowest boundary and the highest end enclose every finite row; dropping both lets the infinite rows
    # fall in the first and the last partition.
    cuts = np.unique(boundary)[1:-1]
    part = np.searchsorted(cuts, positions, side="right").astype(np.int64)
    part[~keep] = REMOVED
    return dense(part, len(cuts) + 1)


def dense(part: npt.NDArray[np.int64], count: int) -> Parts:
    """Renumber the partitions so that each has a row, in the same order."""
    filled = np.bincount(part[part >= 0], minlength=count) > 0
    number = np.where(filled, np.cumsum(filled) - 1, REMOVED)
    # REMOVED indexes the extra last place.
    return np.append(number, REMOVED)[part].astype(np.int32)


def _finite_extremes(positions: Positions, part: Parts, count: int) -> tuple[Positions, Positions]:
    """The finite range of each partition; 0 to 0 where a partition has infinite rows only."""
    finite = np.isfinite(positions)
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, part[finite], positions[finite])
    np.maximum.at(high, part[finite], positions[finite])
    bare = low > high
    low[bare] = high[bare] = 0.0
    return low, high


def _measurable(r: Positions, s: Positions) -> tuple[Positions, Positions]:
    """The positions, made small enough that the difference of any two is finite."""
    # A position need only be monotone, so all of them may shrink together.
    for positions in (r, s):
        finite = np.abs(positions[np.isfinite(positions)])
        if len(finite) and finite.max() >= _HUGE:
            return r * 0.25, s * 0.25
    return r, s


def _everything(values: Values) -> Mask:
    return np.ones(len(values), np.bool_)
