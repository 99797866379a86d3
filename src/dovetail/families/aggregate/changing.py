"""An aggregate join of two streams that is defined otherwise: what of the old state goes on, and how cells store it.

Rows that ask are held as they are, and are answered by the new definition.  Of the rows they ask about only keys and
the arguments of the aggregates are held: aggregates may go, and come where they take the same arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dovetail.changing import (
    Carry,
    Definition,
    KeyedAdoption,
    Operators,
    Pieces,
    Standing,
    TakeLettered,
    asked_carry,
    lettered,
    refused,
    same_parts,
    take_lettered,
)
from dovetail.columns.segments import concat
from dovetail.families.aggregate.stages import ANSWERING, ASKING

_LETTERS = "QT"


def carry(old: Definition, new: Definition, standing: Standing) -> Carry:
    """What goes on from one definition to the other; refuses what the rows that are held cannot answer."""
    same_parts(old, new, "inputs", "rows of", "time")
    before, now = (replace(one, parts={"condition": _timeless(one.parts["condition"])}) for one in (old, new))
    same_parts(before, now, "condition")
    names = [held.name for held in new.layout.inputs]
    found = asked_carry(old, new, standing, names[ASKING], names[ANSWERING])
    return Carry(found.since, {**found.told, "columns": _columns(old, new)}, found.complete_from)


def _timeless(condition: str) -> str:
    """A condition without the lengths of the window, which is a part of it.

    Examples
    --------
    >>> _timeless("(A.k = B.k) AND `B`.`ts` >= `A`.`ts` - INTERVAL 2000000 MICROSECONDS")
    '(A.k = B.k) AND `B`.`ts` >= `A`.`ts`'
    """
    return re.sub(r" [+-] (INTERVAL \d+ MICROSECONDS|\d+L)", "", condition)


def _columns(old: Definition, new: Definition) -> list[int] | None:
    """The places of the columns of the matched rows among those that are held; None for all of them as they are."""
    before, now = (one.layout.facts.get("matched") for one in (old, new))
    changed = f"the aggregates were {old.parts['aggregates']!r} and are {new.parts['aggregates']!r}"
    if before is None or now is None:
        if not old.same(new, "aggregates", f"columns of {new.layout.inputs[ANSWERING].name}"):
            raise refused(
                changed,
                "the checkpoint was last written by a version of Dovetail that did not note what it holds for them",
                instead="run the old query once more with this version, and resume then",
            )
        return None
    places = []
    for column in now:
        if column not in before:
            raise refused(changed, f"{column[0]} of type {column[1]} is not held")
        places.append(before.index(column))
    return [*places, len(before)]


class TakeRows(TakeLettered):
    """The segments of an old cell in; the rows that ask out."""

    letters = _LETTERS

    def time(self, rows: pa.RecordBatch) -> int:
        """The last column: rows that ask are stored with their time behind them."""
        return rows.num_columns - 1


def take_in_place(told: Mapping[str, Any], operators: Operators) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The matched rows of an old cell, which stay in it, since their keys do; the number of their side before them."""
    for rows, _ in take_lettered(operators, _LETTERS[ANSWERING]):
        columns = told["columns"]
        yield ANSWERING, rows if columns is None else rows.select(columns)


@dataclass(frozen=True)
class AggregateAdoption(KeyedAdoption):
    """How the cells of a new aggregate join store held rows; see :class:`dovetail.changing.Adoption`."""

    width: int
    """How many columns of the rows that ask are stored, without their time; a hash between them only routes."""
    names: tuple[str, ...]
    """What the columns of the matched rows are called."""

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of both sides, of which the first call answers what is to be answered."""
        asking = concat(pieces[ASKING]) if pieces[ASKING] else None
        if asking is not None:
            asking = asking.select([*range(self.width), asking.num_columns - 1])
        answering = None
        if pieces[ANSWERING]:
            rows = concat(pieces[ANSWERING])
            answering = pa.RecordBatch.from_arrays(rows.columns, names=list(self.names))
        sides = [answering, asking] if ANSWERING < ASKING else [asking, answering]
        yield from lettered(_LETTERS, sides, self.told["since"])
