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
    """Which candidates are matches, where codes and the hull of the windows leave it open; None for all.

    Candidates of some of the inputs are judged by what concerns these.
    """
    kept: Mask | None = None
    sides = sorted(candidates)
    alternatives = spec.graph.alternatives
    if len(alternatives) > 1:
        alternatives = alternatives[:, sides][:, :, sides]
        times = np.stack([inputs[side].times[candidates[side]] for side in sides])
        apart = times[None, :, :] - times[:, None, :]
        fits = (apart >= alternatives[:, :, :, 0, None]) & (apart <= alternatives[:, :, :, 1, None])
        kept = np.asarray(fits.all(axis=(1, 2)).any(axis=0), dtype=np.bool_)
    for pair, keys in _hashed_equalities(spec, sides):
        both = zip(pair, keys, strict=True)
        columns = [_key_column(spec, inputs[side], side, key, candidates[side]) for side, key in both]
        same = pc.equal(*columns).to_numpy(zero_copy_only=False).astype(np.bool_)
        kept = same if kept is None else kept & same
    for comparison in spec.comparisons:
        if comparison.axis.kind == "rank" and {comparison.point_side, comparison.box_side} <= set(sides):
            fits_rank = _ranked(spec, inputs, candidates, comparison)
            kept = fits_rank if kept is None else kept & fits_rank
    for extra in spec.extras:
        for side in spec.core if extra in candidates else ():
            has_keys = inputs[side].completable(extra)
            if has_keys is not None:
                kept = has_keys[candidates[side]] if kept is None else kept & has_keys[candidates[side]]
    return kept


def settled_by_codes(spec: WindowJoinSpec, extra: int) -> bool:
    """Whether codes and windows alone say that a row of an extra input completes a match."""
    if len(spec.graph.closed) > 1 or any(True for pair, _ in _hashed_equalities(spec, spec.sides) if extra in pair):
        return False
    ranked = (c for c in spec.comparisons if c.axis.kind == "rank")
    return not any(extra in (comparison.point_side, comparison.box_side) for comparison in ranked)


def _hashed_equalities(spec: WindowJoinSpec, sides: Sequence[int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Equalities among some inputs whose codes are hashes, two inputs at a time."""
    for equal in spec.classes:
        if equal.kind == "rank":
            for side in sides[1:]:
                yield (sides[0], side), (equal.members[sides[0]], equal.members[side])
    for equality in spec.equalities:
        if equality.kind == "rank" and set(equality.sides) <= set(sides):
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
