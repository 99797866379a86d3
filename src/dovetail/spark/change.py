"""A checkpoint for joins that are defined otherwise than those that wrote the old one: what changes, and its state.

:func:`compared` finds out on the driver what differs and whether it can be answered; :func:`adopted` is the new state,
as a frame.  Rows that are held become a frame of their input's columns and take the way of new rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from dovetail.changing import (
    GIVEN,
    Carry,
    Definition,
    Resumed,
    Standing,
    event_time,
    lateness_changes,
    refused,
    shedding_changes,
)
from dovetail.checkpoints import CheckpointHeader, differences
from dovetail.columns.held import since_of
from dovetail.columns.layout import ARRIVAL, SEGMENT, SIDE, SINCE, STREAM_CELL
from dovetail.columns.stored import opened, read_as_state
from dovetail.inventory import HeldInput, StateLayout
from dovetail.moving import MOVED, ROUTED, AdoptCell, TakeHeld, TakeInPlace
from dovetail.spark.carriers import arrow_type, carried_fields, restored
from dovetail.spark.intake import Intake
from dovetail.spark.metrics import Recorder
from dovetail.spark.retyping import Kept, kept_columns
from dovetail.spark.routing import arrow_function
from dovetail.spark.runtime.versions import apply_by_group
from dovetail.spark.state import read_segments
from dovetail.spark.stream import PACKED_ROWS

MOVED_SCHEMA = T.StructType(
    [
        T.StructField("operator", T.IntegerType()),
        T.StructField("cell", T.IntegerType()),
        T.StructField("name", T.StringType()),
        T.StructField("segment", T.BinaryType()),
    ]
)
"""Segments on their way."""
_OTHER_PLACES = ("number of partitions",)
"""Parts of an identity that only say where rows lie."""
_HEAD = "head"


@dataclass(frozen=True)
class Changed:
    """One join of a query, as it was and as it is."""

    old: Definition
    new: Definition
    operators: tuple[int, ...]
    """Spark's numbers of its old operators."""
    recorders: tuple[Recorder, ...]
    """Its new operators, the last one first: Spark numbers them so."""
    words: tuple[str, ...]
    """What differs."""

    @property
    def intake(self) -> Intake:
        """How the new join takes in rows."""
        found = [recorder.intake for recorder in self.recorders if recorder.intake is not None]
        if not found or self.old.layout.family not in _CHANGING or self.new.layout.family not in _CHANGING:
            raise refused(
                "; ".join(self.words),
                f"{self.old.parts['join']} keeps more than rows, which only the same definition can read",
            )
        return found[0]

    @property
    def family(self) -> Any:
        """The module that knows what of the old state goes on."""
        return import_module(f"dovetail.families.{_CHANGING[self.old.layout.family]}.changing")


_CHANGING = {
    "window": "window", "shedding": "window", "theta": "theta", "asof": "asof", "aggregate": "aggregate",
    "nearest": "nearest",
}  # fmt: skip
"""Families that can be changed, and where it says how."""


@dataclass(frozen=True)
class Adopted:
    """A join that changes, with what goes on."""

    changed: Changed
    carry: Carry
    kept: Mapping[str, Sequence[Kept]]
    """For each input that stays the columns that its rows get."""

    def resumed(self) -> Resumed:
        """What to tell of it."""
        complete = self.carry.complete_from
        time = None if complete is None else event_time(complete, instants=_instants(self.changed.new))
        return Resumed(self.changed.words, time, self.carry.notes)


def compared(
    headers: Mapping[int, CheckpointHeader], recorders: Sequence[Recorder], folder: Path
) -> tuple[list[Changed], dict[int, Recorder]]:
    """The joins that differ, and for each operator of the others the recorder of the same join.

    Joins that are the same belong together, whatever their order; the first that has no equal is compared with the
    first that is left.
    """
    new = _grouped((recorder, recorder.header) for recorder in recorders)
    old = _grouped((number, _laid_out(header, recorders)) for number, header in headers.items())
    same = {key: old.pop(key) for key in list(old) if key in new and len(old[key]) == len(new[key])}
    others = {key: new[key] for key in new if key not in same}
    unchanged = {
        number: recorder
        for key, numbers in same.items()
        for number, recorder in zip(sorted(numbers), sorted(new[key], key=_place), strict=True)
    }
    if len(old) != len(others):
        raise refused(
            f"the query had {len(old) + len(same)} joins with state and has {len(new)}", "no join may come or go"
        )
    changed = []
    for numbers, recorders_of in zip(old.values(), others.values(), strict=True):
        if len(numbers) != len(recorders_of) and (len(old) > 1 or same):
            raise refused(
                "one of several joins of a query has another number of operators",
                "Spark would number them all differently",
            )
        changed.append(_changed(headers[numbers[0]], numbers, sorted(recorders_of, key=_place), folder))
    return changed, unchanged


def _laid_out(header: CheckpointHeader, recorders: Sequence[Recorder]) -> CheckpointHeader:
    """A header of an earlier version, which noted no layout, with that of the same join."""
    if header.layout is None:
        for recorder in recorders:
            if recorder.header is not None and _parts(recorder.header) == _parts(header):
                return replace(header, layout=recorder.header.layout)
    return header


def _parts(header: CheckpointHeader) -> dict[str, str]:
    return {name: text for name, text in header.parts if name not in _OTHER_PLACES}


def _place(recorder: Recorder) -> int:
    return recorder.above


def _grouped(headers: Any) -> dict[str, list[Any]]:
    """Operators of one join: those whose headers are the same but for the places of rows."""
    groups: dict[str, list[Any]] = {}
    for one, header in headers:
        facts = {} if header.layout is None else header.layout.facts
        late = [facts.get(name) for name in ("delays", "idle")]
        family = None if header.layout is None else header.layout.family
        groups.setdefault(json.dumps([_parts(header), late, family]), []).append(one)
    return groups


def _changed(header: CheckpointHeader, numbers: list[int], recorders: list[Recorder], folder: Path) -> Changed:
    wanted = recorders[0].header
    assert wanted is not None
    before, now = dict(header.parts), dict(wanted.parts)
    words = [
        word for word in differences(before, now) if not any(word.startswith(f"the {part} ") for part in _OTHER_PLACES)
    ]
    if before.get("join") != now.get("join"):
        raise refused("; ".join(words), "the two joins keep different rows")
    assert wanted.layout is not None
    layout = header.layout or _assumed(before, now, wanted.layout)
    if layout is None:
        raise refused(
            "; ".join(words),
            f"{folder} was last written by a version of Dovetail that did not note what lies there",
            instead="run the old query once more with this version, and resume then",
        )
    words += lateness_changes(layout, wanted.layout) + shedding_changes(layout, wanted.layout)
    old, new = Definition(before, layout), Definition(now, wanted.layout)
    return Changed(old, new, tuple(sorted(numbers)), tuple(recorders), tuple(words))


def _assumed(before: Mapping[str, str], now: Mapping[str, str], layout: StateLayout) -> StateLayout | None:
    """The layout of a join whose version noted none, where it differs in its columns only: all else is the same."""
    columns = "columns of "
    apart = [name for name in {*before, *now} if before.get(name) != now.get(name) and name not in _OTHER_PLACES]
    if layout.family != "window" or any(not name.startswith(columns) for name in apart):
        return None
    if (layout.facts["routing"] or {}).get("sliced"):
        return None
    inputs = []
    for held in layout.inputs:
        fields = _fields(before[f"{columns}{held.name}"])
        if fields is None or held.time is None or held.time >= len(held.columns):
            return None
        names = tuple(name for name, _ in fields)
        time = held.columns[held.time]
        if time not in names:
            return None
        inputs.append(HeldInput(held.name, names, names.index(time), held.reach, tuple(kind for _, kind in fields)))
    return replace(layout, inputs=tuple(inputs))


def _fields(text: str) -> list[tuple[str, str]] | None:
    """Columns and their types as a header spells them; None where it was too long and cut.

    Examples
    --------
    >>> _fields("id bigint, at decimal(10,2), m map<string,int>")
    [('id', 'bigint'), ('at', 'decimal(10,2)'), ('m', 'map<string,int>')]
    """
    if "... (" in text:
        return None
    # A comma and a space follow a column; types are spelled without spaces, but for intervals and collations.
    fields = [part.partition(" ") for part in text.split(", ")]
    return [(name, kind) for name, _, kind in fields] if all(kind for _, _, kind in fields) else None


def decided(spark: SparkSession, folder: Path, batch: int, watermark: int | None, changed: Changed) -> Adopted:
    """What goes on of a join; refuses what cannot."""
    intake = changed.intake
    kept = {
        held.name: kept_columns(held, _types(changed, held), intake.schemas[held.name], intake.sql)
        for held in changed.old.layout.inputs
        if held.name in intake.schemas
    }
    standing = _standing(spark, folder, batch, watermark, changed)
    return Adopted(changed, changed.family.carry(changed.old, changed.new, standing), kept)


def heads(spark: SparkSession, folder: Path, batch: int, operator: int) -> Iterator[dict[str, Any]]:
    """What the cells of a window join say of themselves."""
    stored = read_segments(spark, str(folder), operator, batch).where(F.col("name") == _HEAD)
    for row in stored.select("segment").collect():
        with read_as_state(str(folder)):
            about: dict[str, Any] = dict(json.loads(opened(bytes(row.segment)).schema.metadata[b"about"]))
        yield about


def check_run(found: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Refuse the checkpoint of a changed join that has not run yet: cells have still to give what is due."""
    if any("adopted" in one for one in found):
        raise refused(
            f"{folder} was made for another definition of the join and has not run since", "rows are due there",
            instead="start the query there once, or resume from the checkpoint that it was made from",
        )  # fmt: skip


def _standing(spark: SparkSession, folder: Path, batch: int, watermark: int | None, changed: Changed) -> Standing:
    """Where the old join stood, as its cells tell."""
    if changed.old.layout.family not in ROUTED:
        stored = read_segments(spark, str(folder), changed.operators[0], batch).where(F.col("name") == SINCE).limit(1)
        with read_as_state(str(folder)):
            since = [since_of({SINCE: opened(bytes(row.segment))}) for row in stored.collect()]
        return Standing(watermark, since=since[0] if since else None)
    found = [one for operator in changed.operators for one in heads(spark, folder, batch, operator)]
    check_run(found, folder)
    with read_as_state(str(folder)):
        tops = [
            max((top for one in found if (top := one["tops"][side]) is not None), default=None)
            for side in range(len(changed.old.layout.inputs))
        ]
        lacking = [one["lacking"] for one in found if one.get("lacking") is not None]
        return Standing(watermark, tuple(tops), tuple(map(max, zip(*lacking, strict=True))))


def adopted(spark: SparkSession, folder: Path, batch: int, one: Adopted, operators: Sequence[int]) -> DataFrame:
    """The segments of the new state, for operators of these numbers: that which holds rows, then that which decides."""
    changed = one.changed
    segments = read_segments(spark, str(folder), changed.operators[0], batch).select(*MOVED)
    for operator in changed.operators[1:]:
        segments = segments.union(read_segments(spark, str(folder), operator, batch).select(*MOVED))
    held = {alias: _held(segments, one, alias) for alias in one.kept}
    intake = changed.intake
    adoption = intake.adopt(one.carry.told)
    # Every cell has to know where the old join stood, also one that gets no rows.
    numbers = ", ".join(map(str, adoption.cells))
    packed = spark.sql(
        f"SELECT explode(array({numbers})) AS {STREAM_CELL}, -1 AS {SIDE}, 0L AS {ARRIVAL}, "
        f"CAST(NULL AS BINARY) AS {SEGMENT}"
    )
    for rows in intake.pack(held):
        packed = packed.union(rows)
    if hasattr(changed.family, "take_in_place"):
        stage = arrow_function(TakeInPlace(partial(changed.family.take_in_place, one.carry.told)))
        packed = packed.union(apply_by_group(segments, "cell", stage, PACKED_ROWS))
    headers = tuple(recorder.header.stored() for recorder in changed.recorders if recorder.header is not None)
    adopting = AdoptCell(adoption, len(changed.new.layout.inputs), tuple(operators), (headers[0],) * len(operators))
    return apply_by_group(packed, STREAM_CELL, arrow_function(adopting), MOVED_SCHEMA)


def _held(segments: DataFrame, one: Adopted, alias: str) -> DataFrame:
    """The rows of an input that go on, with the columns that it has now."""
    layout, kept = one.changed.old.layout, one.kept[alias]
    side = layout.number(alias)
    assert side is not None
    stored = [column for column in kept if column.place is not None]
    take = one.changed.family.TakeRows(
        layout, side, one.carry.since[alias], tuple(column.place for column in stored)
    )  # fmt: skip
    # Declared NULL or not as new rows are: a kernel puts them together, and Arrow insists on one schema.
    fields = [T.StructField(f"c{at}", column.kind, column.field.nullable) for at, column in enumerate(stored)]
    schema = T.StructType([*carried_fields(fields), T.StructField(GIVEN, T.BooleanType())])
    certain = {
        f"c{at}": f"{alias}.{column.field.name}" for at, column in enumerate(stored) if not column.field.nullable
    }
    stage = TakeHeld(take, tuple(arrow_type(field.dataType) for field in fields), certain)
    rows = restored(apply_by_group(segments, "cell", arrow_function(stage), schema), fields)
    places = {id(column): f"c{at}" for at, column in enumerate(stored)}
    columns = [column.expression(places.get(id(column))) for column in kept]
    return rows.select(*columns, F.col(f"`{GIVEN}`"))


def _types(changed: Changed, held: HeldInput) -> tuple[str, ...]:
    """The types of the columns that are held, as Spark spells them; the last version stored them as text only."""
    text = changed.old.parts.get(f"columns of {held.name}", "")
    fields = _fields(text)
    if held.types:
        return held.types
    if text == changed.new.parts.get(f"columns of {held.name}", ""):
        return tuple(field.dataType.simpleString() for field in changed.intake.schemas[held.name].fields)
    if fields is not None and [name for name, _ in fields] == list(held.columns):
        return tuple(kind for _, kind in fields)
    raise refused(
        f"the columns of {held.name} are other ones",
        "the checkpoint was last written by a version of Dovetail that did not note the types of so many",
        instead="run the old query once more with this version, and resume then",
    )


def _instants(definition: Definition) -> bool:
    """Whether the times of a join are instants, not numbers."""
    times = [name.removesuffix(" as timestamp") for name in definition.parts.get("time", "").split(", ")]
    kinds = [
        kind
        for held in definition.layout.inputs
        for name, kind in zip(held.columns, held.types, strict=False)
        if name in times
    ]
    return not kinds or kinds[0].startswith(("timestamp", "date"))
