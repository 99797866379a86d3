"""A streaming join that is defined otherwise from one run to the next: what the new one can take over from the old.

Rows that the old join holds go the way that new rows of the new join go: Spark computes what is compared, the router
finds their cells.  A family's ``changing.py`` says which of them count, what cells have to be told, and from when on
the answer is complete; nothing here knows a join, or Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from dovetail.checkpoints import differences
from dovetail.columns.codes import Mask, order_codes
from dovetail.columns.held import STREAM_CELLS, since_segment
from dovetail.columns.layout import SINCE
from dovetail.columns.segments import in_utc
from dovetail.conditions.durations import in_words
from dovetail.errors import CheckpointError
from dovetail.inventory import StateLayout

GIVEN = "#given"
"""The last column of held rows on their way: whether they have been in a result that must not be said to be missing."""
NOTHING_GONE = -(1 << 63)
"""Earlier than every time: where nothing has gone."""

Pieces = Sequence[Sequence[pa.RecordBatch]]
"""For each input the parts of its rows that a new cell gets."""
Operators = Mapping[int, Mapping[str, pa.RecordBatch]]
"""The segments of a cell by name, for each operator of a join."""


@dataclass(frozen=True)
class Definition:
    """A join as its header says it: its parts in words, and what its state looks like."""

    parts: Mapping[str, str]
    layout: StateLayout

    def same(self, other: Definition, *parts: str) -> bool:
        """Whether parts of two definitions are the same."""
        return all(self.parts.get(part, "") == other.parts.get(part, "") for part in parts)


@dataclass(frozen=True)
class Standing:
    """Where the old join stood when it stopped."""

    watermark: int | None = None
    """Spark's, in the last micro-batch, in microseconds."""
    tops: tuple[int | None, ...] = ()
    """The largest time of each input, where the join keeps count of it."""
    lacking: tuple[int, ...] = ()
    """For each input the time before which rows may have gone, where the join was changed before."""
    since: int | None = None
    """The time from which on rows are answered, where the join was changed before."""

    def later(self, since: int | None) -> int | None:
        """The later of two times from which on rows are answered: that one, and the one from before."""
        known = [time for time in (self.since, since) if time is not None]
        return max(known, default=None)


@dataclass(frozen=True)
class Carry:
    """What goes on."""

    since: Mapping[str, int]
    """For each input the time before which rows stay behind: the old join was through with them."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What every cell of the new join is told, as JSON has it."""
    complete_from: int | None = None
    """The time from which on all results come; None where no result is missing."""
    notes: tuple[str, ...] = ()
    """What else is to be known."""


class Adoption(Protocol):
    """How a cell of the new join stores rows that the old one has held."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of all cells, also of those that get no rows."""

    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """What the cell stores: the number of the operator, the name and the rows of each segment."""


@dataclass(frozen=True)
class Resumed:
    """What a query takes over from an old checkpoint, and since when its results are complete.

    :func:`resume` returns it.

    Attributes
    ----------
    changes : tuple of str
        What differs between the old and the new definition of the joins, in words.
    complete_from : datetime, int or None
        The event time from which on no result is missing: the new definition asks for rows before it that the old one
        had given up already.  None where nothing is missing.
    notes : tuple of str
        What else is to be known.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> changes = ("the window was 'A and B at most 1 minute apart' and is 'A and B at most 1 hour apart'",)
    >>> print(Resumed(changes, datetime(2026, 3, 1, 12, 40, tzinfo=UTC)))
    the window was 'A and B at most 1 minute apart' and is 'A and B at most 1 hour apart'
    complete from 2026-03-01 12:40:00+00:00 on
    >>> print(Resumed())
    the same join
    complete
    """

    changes: tuple[str, ...] = ()
    complete_from: datetime | int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        complete = "complete" if self.complete_from is None else f"complete from {self.complete_from} on"
        return "\n".join([*(self.changes or ("the same join",)), complete, *self.notes])


def refused(what: str, why: str, *, instead: str | None = None) -> CheckpointError:
    """The error for a change that what is held cannot answer.

    Examples
    --------
    >>> print(refused("the window was '5 rows' and is '7 rows'", "rows are numbered as they arrive"))
    the state cannot be carried over: the window was '5 rows' and is '7 rows'; rows are numbered as they arrive
      accepted: a change that can be answered from the rows that are held
      hint: take the change back, or begin with an empty checkpoint
    """
    return CheckpointError(
        f"the state cannot be carried over: {what}; {why}",
        accepted="a change that can be answered from the rows that are held",
        hint=instead or "take the change back, or begin with an empty checkpoint",
    )


def event_time(value: int, *, instants: bool) -> datetime | int:
    """A time of rows as people read it: an instant in UTC, or the number that it is.

    Examples
    --------
    >>> str(event_time(1_772_368_800_000_000, instants=True)), event_time(12, instants=False)
    ('2026-03-01 12:40:00+00:00', 12)
    """
    if not instants:
        return value
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
    except OverflowError:
        return value


def lateness_changes(old: StateLayout, new: StateLayout) -> list[str]:
    """What differs in how late rows may be, where a join keeps watermarks of its own.

    Examples
    --------
    >>> from dovetail.inventory import HeldInput
    >>> two = (HeldInput("A", ()), HeldInput("B", ()))
    >>> old = StateLayout("window", two, {"delays": [0, 5_000_000], "idle": None})
    >>> lateness_changes(old, StateLayout("window", two, {"delays": [0, 9_000_000], "idle": None}))
    ["the lateness of B was '5 seconds' and is '9 seconds'"]
    """
    found = []
    for number, held in enumerate(new.inputs):
        before = old.number(held.name)
        if before is None or "delays" not in old.facts or "delays" not in new.facts:
            continue
        delays = old.facts["delays"][before], new.facts["delays"][number]
        if delays[0] != delays[1]:
            was, now = (in_words(delay) if delay else "0" for delay in delays)
            found.append(f"the lateness of {held.name} was {was!r} and is {now!r}")
    if old.facts.get("idle") != new.facts.get("idle"):
        was, now = (repr(None if one is None else in_words(one)) for one in (old.facts["idle"], new.facts["idle"]))
        found.append(f"the idle timeout was {was} and is {now}")
    return found


def shedding_changes(old: StateLayout, new: StateLayout) -> list[str]:
    """What differs in whether a join sheds."""
    words = {None: "nothing", "work": "work", "rows": "rows"}
    sheds = [words.get(one.facts.get("sheds"), "rows") for one in (old, new)]
    if old.family == new.family or {old.family, new.family} - {"window", "shedding"}:
        return []
    return [f"the join shed {sheds[0]} and sheds {sheds[1]}"]


def same_parts(old: Definition, new: Definition, *parts: str) -> None:
    """Refuse a change of parts that decide which rows were kept and what is known of them."""
    for word in differences(*({part: one.parts.get(part, "") for part in parts} for one in (old, new))):
        raise refused(word, "rows that the old join has dropped would count")


def asked_windows(old: Definition, new: Definition) -> tuple[tuple[int, int], tuple[int, int]]:
    """The windows of two joins in which rows of one input ask about the other, from the lowest to the highest end.

    Examples
    --------
    >>> layout = StateLayout("nearest", ())
    >>> asked_windows(Definition({"window": "-5 to 5"}, layout), Definition({"window": "0 to 9"}, layout))
    ((-5, 5), (0, 9))
    """
    ends = [one.parts["window"].split(" to ") for one in (old, new)]
    return (int(ends[0][0]), int(ends[0][1])), (int(ends[1][0]), int(ends[1][1]))


def asked_carry(old: Definition, new: Definition, standing: Standing, asking: str, answering: str) -> Carry:
    """What goes on where rows of one input ask about a window of the other, and are answered once it has closed.

    Of the rows that answer, those from the watermark on stay, as far as the window looks back, and those for which a
    row waits.  A row that looks back farther than before may ask for some that have gone: it is not answered.
    """
    (before, _), (now, _) = asked_windows(old, new)
    since = None
    if now < before and standing.watermark is not None:
        since = standing.watermark + before - now
    since = standing.later(since)
    return Carry({asking: NOTHING_GONE if since is None else since, answering: NOTHING_GONE}, {"since": since}, since)


@dataclass(frozen=True)
class TakeStored(ABC):
    """The segments of an old cell in, of all operators of a join; the rows of one input out, each once."""

    layout: StateLayout
    side: int
    since: int
    """The time before which rows stay behind."""
    columns: tuple[int, ...]
    """Which columns of the stored rows are wanted."""

    def __call__(self, operators: Operators) -> Iterator[pa.RecordBatch]:
        """Batches of those columns and :data:`GIVEN`."""
        for rows, given in self.held(operators):
            kept = np.flatnonzero(self.kept(rows))
            wanted = rows.select(list(self.columns)).take(kept)
            yield pa.RecordBatch.from_arrays(
                [*wanted.columns, pa.array(given[kept])], names=[*wanted.schema.names, GIVEN]
            )

    @abstractmethod
    def held(self, operators: Operators) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """The stored rows of the input, and which of them have been in a result."""

    @abstractmethod
    def kept(self, rows: pa.RecordBatch) -> Mask:
        """Which of the stored rows go on."""


@dataclass(frozen=True)
class TakeLettered(TakeStored):
    """Rows of a join whose segments are a letter for their side and a number."""

    letters: ClassVar[str]
    mark: ClassVar[str | None] = None
    """The column that says which rows have been in a result."""

    def held(self, operators: Operators) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """The rows of all segments with the letter of the side."""
        return take_lettered(operators, self.letters[self.side], self.mark)

    def kept(self, rows: pa.RecordBatch) -> Mask:
        """Rows from the time on that they have to have."""
        kept: Mask = order_codes(rows.column(self.time(rows)), "int") >= self.since
        return kept

    def time(self, rows: pa.RecordBatch) -> int:
        """The place of the column of time."""
        return self.layout.inputs[self.side].time or 0


@dataclass(frozen=True)
class KeyedAdoption(ABC):
    """How a new join stores held rows whose cells are those of its keys; without keys it has one."""

    keyed: bool
    told: Mapping[str, Any]

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers of the cells."""
        return tuple(range(STREAM_CELLS if self.keyed else 1))

    @abstractmethod
    def segments(self, pieces: Pieces) -> Iterator[tuple[int, str, pa.RecordBatch]]:
        """The rows of both sides, of which the first call answers what is to be answered."""


def take_lettered(operators: Operators, letter: str, mark: str | None = None) -> Iterator[tuple[pa.RecordBatch, Mask]]:
    """The stored rows of a side whose segments are a letter and a number, in their order, and a column of flags."""
    for state in operators.values():
        own = [name for name in state if name.startswith(f"{letter}/")]
        for name in sorted(own, key=lambda name: int(name.partition("/")[2])):
            rows = state[name]
            flags = rows.column(mark) if mark is not None and mark in rows.schema.names else None
            none = np.zeros(rows.num_rows, dtype=np.bool_)
            yield rows, none if flags is None else flags.to_numpy(zero_copy_only=False)


def lettered(letters: str, sides: Sequence[pa.RecordBatch | None], since: int | None) -> Iterator[tuple[int, str, Any]]:
    """The segments of a cell whose sides are letters: one for each that has rows, and since when rows are answered."""
    for serial, (letter, rows) in enumerate(zip(letters, sides, strict=True)):
        if rows is not None and rows.num_rows:
            yield 0, f"{letter}/{serial}", in_utc(rows)
    if since is not None:
        yield 0, SINCE, since_segment(since)


def not_held(old: Definition, new: Definition) -> tuple[str, ...]:
    """What a changed condition may miss whatever the time: rows that could match nothing by the old one."""
    if old.same(new, "condition"):
        return ()
    return (
        "rows from before the change are not there if the old condition ruled them out by themselves: NULL in what it "
        "compared, or a condition on their input alone",
    )
