"""Residual conditions: what codes and the hull of the windows leave open about a candidate.

Alternative windows and comparisons of texts or wide decimals can only be checked on whole matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.columns.codes import Mask, joint_codes
from dovetail.families.window.encode import Index
from dovetail.families.window.indexes import IndexedInput, PartialMatches
from dovetail.families.window.spec import PairComparison, WindowJoinSpec


def residual_mask(spec: WindowJoinSpec, inputs: Sequence[IndexedInput], candidates: PartialMatches) -> Mask | None:
    """Which candidates are matches, where codes and the hull of the windows leave it open; None for all."""
    kept: Mask | None = None
    alternatives = spec.graph.alternatives
    if len(alternatives) > 1:
        times = np.stack([inputs[side].times[candidates[side]] for side in spec.sides])
        apart = times[None, :, :] - times[:, None, :]
        fits = (apart >= alternatives[:, :, :, 0, None]) & (apart <= alternatives[:, :, :, 1, None])
        kept = np.asarray(fits.all(axis=(1, 2)).any(axis=0), dtype=np.bool_)
    for sides, keys in _hashed_equalities(spec):
        both = zip(sides, keys, strict=True)
        columns = [_key_column(spec, inputs[side], side, key, candidates[side]) for side, key in both]
        same = pc.equal(*columns).to_numpy(zero_copy_only=False).astype(np.bool_)
        kept = same if kept is None else kept & same
    for comparison in spec.comparisons:
        if comparison.axis.kind == "rank":
            fits_rank = _ranked(spec, inputs, candidates, comparison)
            kept = fits_rank if kept is None else kept & fits_rank
    return kept


def _hashed_equalities(spec: WindowJoinSpec) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Equalities whose codes are hashes, two inputs at a time."""
    for equal in spec.classes:
        if equal.kind == "rank":
            for side in spec.sides[1:]:
                yield (0, side), (equal.members[0], equal.members[side])
    for equality in spec.equalities:
        if equality.kind == "rank":
            yield equality.sides, equality.keys


def _key_column(spec: WindowJoinSpec, rows_of: IndexedInput, side: int, key: int, rows: Index) -> pa.Array:  # type: ignore[type-arg]
    source = spec.sources[side][key]
    if source is None:
        source = spec.payload[side] + sum(s is None for s in spec.sources[side][:key])
    return rows_of.take([source], rows).column(0)


def _ranked(
    spec: WindowJoinSpec, inputs: Sequence[IndexedInput], candidates: PartialMatches, comparison: PairComparison
) -> Mask:
    """An inequality of texts or wide decimals, on candidates."""
    point_side, box_side, axis = comparison.point_side, comparison.box_side, comparison.axis
    point = _key_column(spec, inputs[point_side], point_side, axis.point, candidates[point_side])
    kept = np.ones(len(point), dtype=np.bool_)
    for end, is_low in ((axis.low, True), (axis.high, False)):
        if end is None:
            continue
        bound = _key_column(spec, inputs[box_side], box_side, end.key, candidates[box_side])
        points, bounds = joint_codes(point, bound)
        if is_low:
            kept &= points > bounds if end.strict else points >= bounds
        else:
            kept &= points < bounds if end.strict else points <= bounds
    return kept
