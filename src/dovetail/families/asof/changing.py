"""An as-of join of streams that is defined otherwise: what of the old state goes on, and how new cells store it.

Left rows that wait are answered by the new definition.  Which right rows are still there follows from the old one: all
from the watermark on, and what a left row may choose before it; looking farther back than before, a left row might miss
the right row that it would choose.  Such left rows are not answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dovetail.changing import (
    NOTHING_GONE,
    Carry,
    Definition,
    KeyedAdoption,
    Pieces,
    Standing,
    TakeLettered,
    lettered,
    refused,
    same_parts,
)
from dovetail.columns.segments import concat
from dovetail.families.asof.spec import LEFT, RIGHT
from dovetail.families.asof.stream import CHOSEN

_LETTERS = "LR"
_RIGHT_KEPT = ("right", "full")
"""Joins that know which right rows have been chosen."""


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    same_parts(old, new, "inputs", "time", "keys", "rule for ties", "condition")
    left, right = (held.name for held in new.layout.inputs)
    if new.parts["how"] in _RIGHT_KEPT and old.parts["how"] not in _RIGHT_KEPT:
        raise refused(
            f"the how was {old.parts['how']!r} and is {new.parts['how']!r}",
            f"which rows of {right} have been chosen is not known",
        )
    since = standing.later(_since(old, new, standing.watermark))
    if since is not None and new.parts["how"] in _RIGHT_KEPT:
        raise refused(
            f"the tolerance or the direction is another, with how={new.parts['how']!r}",
            f"rows of {right} that only unanswered rows would choose could not be told from those without a match",
        )
    return Carry({left: NOTHING_GONE if since is None else since, right: NOTHING_GONE}, {"since": since}, since)


def _since(old: Definition, new: Definition, watermark: int | None) -> int | None:
    """The time from which on left rows find all right rows that they may choose; None where all of them do."""
    directions = [one.parts["direction"].partition(",")[0] for one in (old, new)]
    before, now = (int(text) if (text := one.parts["tolerance"]) else None for one in (old, new))
    if watermark is None:
        return None
    if directions[1] == "forward":
        # Looking ahead, a row that waits has passed by rows that were no match for it looking back.
        return None if directions[0] == "forward" else watermark
    if directions[0] != "forward" and (before is None or (now is not None and now <= before)):
        return watermark if directions == ["nearest", "backward"] else None
    if now is None:
        raise refused(
            f"the direction was {directions[0]!r} with a tolerance and is {directions[1]!r} without",
            "a row may then choose one that came at any time before",
        )
    return watermark + now - (before or 0 if directions[0] != "forward" else 0)


class TakeRows(TakeLettered):
    """The segments of an old cell in; the rows of one side out, and whether a left row that has left chose them."""

    letters, mark = _LETTERS, CHOSEN


@dataclass(frozen=True)
class AsofAdoption(KeyedAdoption):
    """How the cells of a new as-of join store held rows; see :class:`dovetail.changing.Adoption`."""

    marked: bool
    """Whether right rows know whether they have been chosen."""

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of both sides, of which the first call makes what is to be made."""
        sides: list[pa.RecordBatch | None] = []
        for side in (LEFT, RIGHT):
            rows = concat(pieces[side]) if pieces[side] else None
            if rows is not None:
                # The mark is the last column.
                chosen, rows = rows.column(rows.num_columns - 1), rows.select(range(rows.num_columns - 1))
                rows = rows.append_column(CHOSEN, chosen) if side == RIGHT and self.marked else rows
            sides.append(rows)
        yield from lettered(_LETTERS, sides, self.told["since"])
