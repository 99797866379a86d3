"""A window join that is defined otherwise: what of the old state goes on, and how new cells store it.

A match is judged by the definition in force when the last of its rows arrives.  So rows that are held meet all that is
still to come under the new definition, and nothing is given again; a row without a match comes out if it has had none
under either.  Rows that the old join had closed stay behind: it has given them, or they can match nothing by it.

What the new definition asks for and the old one had given up is known as times: of each input, when the old join evicts
(:func:`~dovetail.families.window.eviction.completed_expiry_of`) and how far back rows that may still come look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.changing import (
    GIVEN,
    NOTHING_GONE,
    Carry,
    Definition,
    Operators,
    Pieces,
    Standing,
    TakeStored,
    not_held,
    refused,
)
from dovetail.columns.codes import Mask, float_values, order_codes
from dovetail.columns.layout import ROW, SLICE
from dovetail.columns.segments import concat
from dovetail.families.window.encode import time_codes, usable_rows
from dovetail.families.window.eviction import closing_of, completed_expiry_of, watermarks_of
from dovetail.families.window.inventory import HEAD, side_of
from dovetail.families.window.router import slices_at
from dovetail.families.window.spec import WindowJoinSpec
from dovetail.families.window.state import (
    StoredSegment,
    flags_name,
    flags_segment,
    head_segment,
    in_slices,
    new_name,
    pending_name,
    slice_length,
)
from dovetail.inventory import StateLayout

HOLDING, DECIDING = 0, 1
"""The operators of a join: the one that holds rows, and the one that decides about them where Spark judges."""
_SCOUTING = "scouting"
"""The segment of a scout, whose rows are a sample of those that are held elsewhere."""


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    before, now = old.layout, new.layout
    _check(old, new)
    gone = _gone(before, standing)
    since = dict(gone)
    for name, time in zip(gone, standing.lacking, strict=False):
        gone[name] = max(gone[name], time)
    if before.facts.get("sheds", "rows" if before.family == "shedding" else None) == "rows":
        # Which rows it has dropped nobody knows: all that is known is what had not come yet.
        for held, top in zip(before.inputs, standing.tops, strict=True):
            gone[held.name] = NOTHING_GONE if top is None else top + 1
    tops = [None if (at := before.number(held.name)) is None else standing.tops[at] for held in now.inputs]
    needed = _expiry(now, tops)
    missing = [
        side for side, held in enumerate(now.inputs) if needed[side] < gone.get(held.name, NOTHING_GONE)
    ]  # fmt: skip
    lost = {side: gone[now.inputs[side].name] for side in missing}
    if set(missing) & set(now.facts["extras"]):
        raise refused(
            _windows(old, new),
            f"rows of {now.inputs[min(set(missing) & set(now.facts['extras']))].name} that may complete matches have "
            "gone, and without them others would come out",
        )
    sure = _sure(now, lost)
    if sure is not None and now.facts["judged"]:
        raise refused(
            _windows(old, new),
            "rows that may have matched have gone, and where only Spark can evaluate a condition rows without a match "
            "could not be told from those",
        )
    lacking = [lost.get(side, NOTHING_GONE) for side in range(len(tops))] if lost else None
    told = {"tops": tops, "lacking": lacking, "sure": sure, "given": _given(old, new)}
    # Rows that come out for want of a match are complete once nothing that they may match has gone.
    complete = max([*lost.values(), *(sure or ())], default=None)
    return Carry(since, told, complete, not_held(old, new))


def _check(old: Definition, new: Definition) -> None:
    before, now = old.layout, new.layout
    kept = [held.name for held in now.inputs if before.number(held.name) is not None]
    if not kept:
        raise refused(f"the inputs were {old.parts['inputs']} and are {new.parts['inputs']}", "none of them stays")
    times = [
        dict(zip(one.parts["inputs"].split(", "), one.parts["time"].split(", "), strict=False)) for one in (old, new)
    ]
    for name in kept:
        if times[0].get(name) != times[1].get(name):
            raise refused(
                f"the time of {name} was {times[0].get(name)!r} and is {times[1].get(name)!r}",
                "rows were kept by the other",
            )
    routing = before.facts["routing"]
    if routing is not None and routing["sliced"] and routing.get("grid") is None:
        raise refused(
            _windows(old, new),
            "the checkpoint was last written by a version of Dovetail that did not note which rows are copies",
            instead="run the old query once more with this version, and resume then",
        )
    extras = before.facts["extras"] or now.facts["extras"]
    if extras and not old.same(new, "how", "inputs"):
        raise refused(
            f"the inputs were {old.parts['inputs']}, how={old.parts['how']}, and are {new.parts['inputs']}, "
            f"how={new.parts['how']}",
            "matches that wait for an input are given or not by what that input is to the join",
        )
    if (before.facts.get("optional") or now.facts.get("optional") or ("optional" not in before.facts and extras)) and (
        not old.same(new, "condition", "window")
    ):
        raise refused(_windows(old, new), "which matches have come out with a row of an optional input is not held")


def _windows(old: Definition, new: Definition) -> str:
    """What changed in words, for a refusal."""
    parts = [part for part in ("window", "condition", "inputs") if not old.same(new, part)]
    changed = [f"the {part} was {old.parts.get(part)!r} and is {new.parts.get(part)!r}" for part in parts]
    return "; ".join(changed) or "rows may come later than before"


def _expiry(layout: StateLayout, tops: list[int | None]) -> list[int]:
    facts = layout.facts
    hull = np.array(facts["hull"], dtype=np.int64)
    return completed_expiry_of(
        hull, facts["core"], facts["extras"], watermarks_of(tops, facts["delays"], facts["idle"])
    )


def _gone(layout: StateLayout, standing: Standing) -> dict[str, int]:
    """For each input the time before which the old join was through with its rows."""
    facts, tops = layout.facts, list(standing.tops)
    gone = _expiry(layout, tops)
    if facts["extras"]:
        # A row of a match that was closed may still have waited for others.  It is left behind with the match.
        hull = np.array(facts["hull"], dtype=np.int64)
        watermarks = watermarks_of(tops, facts["delays"], facts["idle"])
        closing = closing_of(hull, facts["core"], facts["extras"], watermarks)
        gone = [max(one, closing[side]) if side in facts["core"] else one for side, one in enumerate(gone)]
    return {held.name: gone[side] for side, held in enumerate(layout.inputs)}


def _sure(layout: StateLayout, lost: Mapping[int, int]) -> list[int] | None:
    """For each input whose rows come out unmatched the time before which they may look for rows that have gone."""
    facts = layout.facts
    sure = [
        max(
            (time - facts["hull"][side][other][0] for other, time in lost.items() if other != side),
            default=NOTHING_GONE,
        )
        if side in facts["preserved"]
        else NOTHING_GONE
        for side in range(len(layout.inputs))
    ]
    return sure if any(time != NOTHING_GONE for time in sure) else None


def _given(old: Definition, new: Definition) -> list[str]:
    """For each input whether its held rows keep their marks, get one, or have none."""
    before, now = old.layout, new.layout
    if "flagged" not in before.facts and not old.same(new, "how"):
        raise refused(
            f"the how was {old.parts['how']!r} and is {new.parts['how']!r}",
            "the checkpoint was last written by a version of Dovetail that did not note of which rows it knows matches",
            instead="run the old query once more with this version, and resume then",
        )
    flagged = before.facts.get("flagged", now.facts["flagged"])
    said = []
    for side, held in enumerate(now.inputs):
        known = before.number(held.name) in flagged
        # Nobody has kept count of the matches of rows that were to come out with them only.
        said.append("kept" if known else "all" if side in now.facts["preserved"] else "none")
    return said


class TakeRows(TakeStored):
    """The segments of an old cell in, of all operators of a join; the rows of one input out, each once."""

    def held(self, operators: Operators) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """The rows of all slices of time, and which of them have matched."""
        matched = [
            state[f"matched/{self.side}"].column(0).to_numpy()
            for state in operators.values()
            if f"matched/{self.side}" in state
        ]
        for state in operators.values():
            if HEAD not in state or _SCOUTING in state:
                continue
            for name in (name for name in state if side_of(name) == self.side):
                rows = state[name]
                given = np.zeros(rows.num_rows, dtype=np.bool_)
                if flags_name(name) in state:
                    given = state[flags_name(name)].column(0).to_numpy(zero_copy_only=False)
                elif matched and ROW in rows.schema.names:
                    given = np.isin(rows.column(ROW).to_numpy(), np.concatenate(matched))
                yield rows, given

    def kept(self, rows: pa.RecordBatch) -> Mask:
        """Rows that the old join was not through with; of the copies of one, the first."""
        kept: Mask = time_codes(rows.column(self.layout.inputs[self.side].time or 0)) >= self.since
        routing = self.layout.facts["routing"]
        grid: dict[str, Any] | None = None if routing is None else routing.get("grid")
        if grid is not None:
            key = rows.column(grid["columns"][self.side])
            values = float_values(order_codes(key, grid["kind"]), grid["kind"])
            moved = -int(self.side != grid["pivot"])
            low, farthest = grid["lows"][self.side], grid["farthest"][self.side]
            kept &= slices_at(values, low, grid["length"], moved, farthest) == rows.column(SLICE).to_numpy()
        return kept


@dataclass(frozen=True)
class WindowAdoption:
    """How the cells of a new window join store held rows; see :class:`dovetail.changing.Adoption`."""

    spec: WindowJoinSpec
    judged: bool
    """Whether a second operator knows which rows have matched, by their numbers."""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return self.spec.numbers

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows in slices of time, which of them count as matched, and where each input stands."""
        spec, length = self.spec, slice_length(self.spec.hull)
        segments: list[StoredSegment] = []
        next_row = 0
        for side, parts in enumerate(pieces):
            if not parts:
                continue
            rows = concat([part.replace_schema_metadata(None) for part in parts])
            given = self._marks(side, rows)
            rows = rows.drop_columns([GIVEN])
            usable = usable_rows(spec, side, rows)
            pending = np.flatnonzero(~usable & ~given)
            if side in spec.reported and pending.size:
                yield HOLDING, pending_name(side), rows.take(pending)
            rows, given = rows.filter(pa.array(usable)), given[usable]
            flagged = side in spec.flagged
            if flagged and self.judged:
                numbers = np.arange(next_row, next_row + rows.num_rows)
                next_row += rows.num_rows
                rows = rows.append_column(ROW, pa.array(numbers, pa.int64()))
                if given.any():
                    matched = pa.array(numbers[given], pa.int64())
                    yield DECIDING, f"matched/{side}", pa.RecordBatch.from_arrays([matched], names=["row"])
            times = time_codes(rows.column(spec.times[side]))
            for chosen in in_slices(times, length):
                part, of_part = rows.take(chosen), times[chosen]
                ends = int(of_part.min()), int(of_part.max())
                segments.append(StoredSegment(new_name(side), side, *ends, part.num_rows, part.nbytes))
                yield HOLDING, segments[-1].name, part
                if flagged and not self.judged and given[chosen].any():
                    yield HOLDING, flags_name(segments[-1].name), flags_segment(given[chosen])
        known = {name: self.told[name] for name in ("lacking", "sure")}
        yield HOLDING, HEAD, head_segment(segments, self.told["tops"], next_row, known, adopted=True)

    def _marks(self, side: int, rows: pa.RecordBatch) -> Mask:
        given = rows.column(GIVEN).to_numpy(zero_copy_only=False)
        how = self.told["given"][side]
        return given if how == "kept" else np.full(given.size, how == "all")
