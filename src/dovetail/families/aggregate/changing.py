"""An aggregate join of two streams that is defined otherwise: what of the old state goes on, and how cells store it.

Rows that ask are held as they are, and are answered by the new definition.  Of the rows they ask about only keys and
the arguments of the aggregates are held: aggregates may go, and come where they take the same arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.changing import (
    GIVEN,
    Carry,
    Definition,
    Pieces,
    Standing,
    asked_carry,
    lettered,
    refused,
    same_parts,
    take_lettered,
)
from dovetail.columns.codes import order_codes
from dovetail.columns.held import STREAM_CELLS
from dovetail.columns.segments import concat
from dovetail.families.aggregate.stages import ANSWERING, ASKING
from dovetail.inventory import StateLayout

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


@dataclass(frozen=True)
class TakeRows:
    """The segments of an old cell in; the rows that ask out."""

    layout: StateLayout
    side: int
    since: int
    columns: tuple[int, ...]

    def __call__(self, operators: Mapping[int, Mapping[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Batches of the columns that are wanted, and a mark that says nothing."""
        for rows, marks in take_lettered(operators, _LETTERS[self.side]):
            kept = np.flatnonzero(order_codes(rows.column(rows.num_columns - 1), "int") >= self.since)
            wanted = rows.select(list(self.columns)).take(kept)
            yield pa.RecordBatch.from_arrays(
                [*wanted.columns, pa.array(marks[kept])], names=[*wanted.schema.names, GIVEN]
            )


def take_in_place(
    told: Mapping[str, Any], operators: Mapping[int, Mapping[str, pa.RecordBatch]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The matched rows of an old cell, which stay in it, since their keys do; the number of their side before them."""
    for rows, _ in take_lettered(operators, _LETTERS[ANSWERING]):
        columns = told["columns"]
        yield ANSWERING, rows if columns is None else rows.select(columns)


@dataclass(frozen=True)
class AggregateAdoption:
    """How the cells of a new aggregate join store held rows; see :class:`dovetail.changing.Adoption`."""

    keyed: bool
    width: int
    """How many columns of the rows that ask are stored, without their time; a hash between them only routes."""
    names: tuple[str, ...]
    """What the columns of the matched rows are called."""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return tuple(range(STREAM_CELLS if self.keyed else 1))

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
