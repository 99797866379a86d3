"""The plan of a window join.

:func:`plan_window` decides and builds the spec.  It knows the condition with its types, the windows and a few facts
about the inputs, and no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa

from dovetail.columns.layout import Source, key_source
from dovetail.columns.spark_hash import placed
from dovetail.conditions.comparison import Key
from dovetail.conditions.durations import duration
from dovetail.conditions.forms import Predicate
from dovetail.conditions.names import quoted
from dovetail.errors import (
    ArgumentError,
    UnboundedJoinError,
    UnsupportedTypeError,
    is_whole,
    unknown_alias,
    unknown_column,
)
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import RandomDrop, Shed
from dovetail.families.window.graph import Length, WindowGraph
from dovetail.families.window.router import choose_grid
from dovetail.families.window.spec import Conditions, Options, WindowJoinSpec, build_conditions
from dovetail.plan.further import FurtherJoin
from dovetail.plan.theta import Facts
from dovetail.plan.window_judged import as_roles, judged
from dovetail.plan.window_plan import WindowPlan

EXHAUSTIVE = 2000
"""Settings of one direction of a join that an exhaustive search goes through at most."""
CELLS_PER_TASK = 4
"""Cells of a batch join per shuffle partition: a task holds one cell at a time."""
CELLS_PER_STREAMING_TASK = 2
"""The results of one cell travel on while the next one is joined; every further cell costs calls of the state store."""
CELLS_PER_SHEDDING_TASK = 1
"""Cells of one task would take turns, and each would take the time of the others for one that it cannot shorten."""

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz", "date")


@dataclass(frozen=True)
class InputColumns:
    """The columns of one input: their names, their types as Spark spells them, and the Arrow types they travel in."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    arrow: tuple[pa.DataType, ...]

    def number(self, name: str) -> int | None:
        """The number of a column by its name, in any case; None where there is none."""
        folded = [column.casefold() for column in self.names]
        return folded.index(name.casefold()) if name.casefold() in folded else None


def plan_window(
    inputs: tuple[str, ...],
    predicate: Predicate,
    facts: Facts,
    options: Options,
    graph: WindowGraph,
    *,
    columns: Mapping[str, InputColumns],
    times: tuple[str, ...],
    numeric: bool,
    delays: tuple[int, ...],
    idle: int | None,
    shed: Shed | None = None,
    tables: tuple[FurtherJoin, ...] = (),
) -> WindowPlan:
    """Decide how a window join runs, or say why it cannot.

    Parameters
    ----------
    inputs
        The aliases, in the user's order.
    predicate, facts, options, graph
        What to join, what is known of the inputs, what the user asked for, and the windows.
    columns
        The columns of each input.
    times, numeric
        The time column of each input, and whether it holds whole numbers.
    delays, idle
        How late rows may be, and when an input is no longer waited for.
    shed
        How to shed load, if at all.
    tables
        Static inputs that are joined with what the streams give.
    """
    roles = options.roles
    slices = None if shed is None else _slices(shed, facts, options, graph, numeric=numeric)
    if len(inputs) > 2 and roles is None and not options.inner:
        raise ArgumentError(
            f"how={options.how!r} with {len(inputs)} inputs",
            accepted="how='inner', or a mapping that says what each input is to the join",
            hint=f"how={{{inputs[0]!r}: 'keep'}} keeps the rows of {inputs[0]!r} that are in no match",
        )
    if roles is not None and roles.extras and options.algorithm != "auto":
        raise ArgumentError(
            f"algorithm={options.algorithm!r} with how={roles.text(inputs)}",
            accepted="algorithm='auto' where an input is 'optional', 'present' or 'absent'",
        )
    preserved = [inputs[side] for side in options.preserved()]
    rests, verdicts = judged(inputs, facts.rests, options, streaming=bool(facts.streams))
    asked = options.how
    if verdicts and not facts.streams:
        options = replace(options, how=as_roles(options))
    conditions = build_conditions(inputs, facts.equalities, facts.comparisons)
    for alias in preserved:
        conditions = _unfiltered(conditions, inputs.index(alias), alias, predicate)
    dates = _dates_as_instants(inputs, columns, times)
    conditions = _with_keys(conditions, dates)
    streaming = bool(facts.streams)
    grid = choose_grid(conditions, graph, options, streaming=streaming, numeric=numeric)
    partitions = options.partitions or facts.shuffle_partitions
    per_task = CELLS_PER_STREAMING_TASK if streaming else CELLS_PER_TASK
    if shed is not None:
        per_task = CELLS_PER_SHEDDING_TASK
    cells = per_task * partitions if conditions.classes or grid is not None else 1
    known = [columns[alias] for alias in inputs]
    sources = tuple(_sources(alias, columns[alias], conditions.keys[side]) for side, alias in enumerate(inputs))
    spec = WindowJoinSpec(
        aliases=inputs,
        options=options,
        graph=graph,
        # The last key of an input whose dates are turned into instants; it travels behind the payload, and all others
        # that do come before it.
        times=tuple(
            known[side].names.index(name)
            if dates[side] is None
            else len(known[side].names) + sources[side].count(None) - 1
            for side, name in enumerate(times)
        ),
        payload=tuple(len(input_columns.names) for input_columns in known),
        types=tuple(input_columns.arrow for input_columns in known),
        keys=conditions.keys,
        sources=sources,
        classes=conditions.classes,
        equalities=conditions.equalities,
        comparisons=conditions.comparisons,
        delays=delays,
        idle=idle,
        cells=cells,
        grid=grid,
        numbers=placed(cells, partitions),
    )
    filters = tuple((f.alias, f.sql) for f in predicate.filters if f.alias not in preserved)
    return WindowPlan(
        spec, facts.streams, predicate, times, numeric, partitions, filters, rests, asked=asked, verdicts=verdicts,
        tables=tables, shed=shed, slices=slices,
    )  # fmt: skip


def _unfiltered(conditions: Conditions, side: int, alias: str, predicate: Predicate) -> Conditions:
    """Conditions for an input whose rows all come out: its filters only keep rows from matching, by a NULL key."""
    passes = " AND ".join(f"({f.sql})" for f in predicate.filters if f.alias == alias)
    if not passes:
        return conditions
    extra = Key(f"CASE WHEN {passes} THEN 0L END", "BIGINT", alias)
    return _with_keys(conditions, [extra if number == side else None for number in range(len(conditions.keys))])


def _with_keys(conditions: Conditions, extra: Sequence[Key | None]) -> Conditions:
    """Conditions with one more key for some of the inputs."""
    keys = [own if key is None else (*own, key) for own, key in zip(conditions.keys, extra, strict=True)]
    return replace(conditions, keys=tuple(keys))


def _dates_as_instants(
    inputs: tuple[str, ...], columns: Mapping[str, InputColumns], times: tuple[str, ...]
) -> list[Key | None]:
    """For each input with dates beside an input with timestamps, its time as Spark compares it with those.

    Spark takes a date for midnight in the time zone of the session.  Dates alone, and dates beside timestamps without
    a zone, are days of 24 hours, and need no zone.
    """
    kinds = [columns[alias].types[columns[alias].names.index(name)] for alias, name in zip(inputs, times, strict=True)]
    mixed = "timestamp" in kinds
    return [
        Key(f"{quoted(alias)}.{quoted(name)}", "TIMESTAMP", alias) if mixed and kind == "date" else None
        for alias, name, kind in zip(inputs, times, kinds, strict=True)
    ]


def _sources(alias: str, columns: InputColumns, keys: Sequence[Key]) -> tuple[int | None, ...]:
    """For each key the payload column that holds it as it is, or None."""
    payload = [
        (f"{quoted(alias)}.{quoted(name)}", kind) for name, kind in zip(columns.names, columns.types, strict=True)
    ]
    sources = [key_source(payload, key) for key in keys]
    return tuple(None if source is None or source != Source(source.column) else source.column for source in sources)


def _slices(shed: Shed, facts: Facts, options: Options, graph: WindowGraph, *, numeric: bool) -> Slices:
    """The slices of a join that sheds, or why it cannot."""
    if not facts.streams:
        raise ArgumentError("shed= with static inputs", accepted="streams: static inputs set no pace to keep up with")
    if options.kind.unmatched or options.roles is not None:
        how = repr(options.how) if options.roles is None else options.roles.text(graph.aliases)
        raise ArgumentError(
            f"shed= with how={how}", accepted="how='inner' or 'semi'",
            hint="a row whose match was shed would come out as one without a match",
        )  # fmt: skip
    if options.algorithm not in ("auto", "nested"):
        raise ArgumentError(f"shed= with algorithm={options.algorithm!r}", accepted="algorithm='auto' or 'nested'")
    if isinstance(shed, RandomDrop):
        return Slices.of(graph.hull)
    early = f"keep={shed.keep!r}" if shed.memory is None else f"memory={shed.memory!r}"
    if (shed.memory is not None or shed.keep != "windows") and not options.kind.pairs_only:
        raise ArgumentError(f"{early} with how={options.how!r}", accepted="how='inner' with memory= or keep=")
    width = None if shed.basic_window is None else wait(shed.basic_window, "basic_window", numeric=numeric)
    slices = Slices.of(graph.hull, None if width is None else max(1, width))
    settings = slices.most ** (len(graph.aliases) - 1)
    if shed.method == "exhaustive" and settings > EXHAUSTIVE:
        raise ArgumentError(
            f"method='exhaustive' with {settings:,} settings of each of {len(graph.aliases)} directions",
            accepted=f"at most {EXHAUSTIVE:,} of them, or method='double-sided'", hint="give a longer basic_window",
        )  # fmt: skip
    return slices


def read_times(time: str | Mapping[str, str], columns: Mapping[str, InputColumns]) -> tuple[dict[str, str], bool]:
    """The time column of each input as it is spelled there, and whether it holds whole numbers."""
    if isinstance(time, Mapping):
        for alias in time:
            if alias not in columns:
                raise unknown_alias(str(alias), columns, where="time=")
        missing = [alias for alias in columns if alias not in time]
        if missing:
            raise ArgumentError(
                f"time= names no column for the input {missing[0]!r}", accepted="a column for every input"
            )
    elif not isinstance(time, str) or not time.strip():
        raise ArgumentError(
            f"time={time!r} is not a column name",
            accepted="the name of the time column of all inputs, or a mapping from an alias to a name",
        )
    names: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for alias, known in columns.items():
        name = str(time if isinstance(time, str) else time[alias])
        number = known.number(name)
        if number is None:
            raise unknown_column(name, alias, known.names, where="time=")
        names[alias] = known.names[number]
        kinds.setdefault(_time_kind(alias, name, known.types[number]), alias)
    if len(kinds.keys() - {"date"}) > 1 or kinds.keys() == {"date", "bigint"}:
        given = " and ".join(f"{kind} in {alias!r}" for kind, alias in kinds.items())
        raise UnsupportedTypeError(
            f"the times of the inputs are {given}",
            accepted="whole numbers, timestamps or timestamps without a zone in all inputs; dates beside timestamps",
        )
    return names, "bigint" in kinds


def _time_kind(alias: str, name: str, kind: str) -> str:
    """What times of a type are compared as, or why they cannot be."""
    if kind in _INTEGERS:
        return "bigint"
    if kind in _TIMES:
        return kind
    hint = None
    if kind.startswith(("float", "double", "decimal")):
        hint = f"scale it to whole numbers first, such as CAST({name} * 1000 AS BIGINT)"
    elif kind.startswith("string"):
        hint = f"turn it into a timestamp first: to_timestamp({name})"
    raise UnsupportedTypeError(
        f"time={name!r} has the type {kind} in {alias!r}", accepted="timestamps, dates or whole numbers", hint=hint
    )


def read_delays(
    lateness: Length | Mapping[str, Length] | None,
    watermarks: Mapping[str, int | None],
    times: Mapping[str, str],
    streams: Sequence[str],
    *,
    numeric: bool,
) -> tuple[int, ...]:
    """How late rows of each input may be: as the argument says, else as the input's own watermark says."""
    given: dict[str, Length] = {}
    if isinstance(lateness, Mapping):
        for alias, value in lateness.items():
            if alias not in watermarks:
                raise unknown_alias(str(alias), watermarks, where="lateness=")
            given[alias] = value
    elif lateness is not None:
        given = dict.fromkeys(watermarks, lateness)
    delays = []
    for alias, watermark in watermarks.items():
        if alias in given:
            delays.append(wait(given[alias], "lateness", numeric=numeric))
        elif watermark is not None or alias not in streams:
            delays.append(watermark or 0)
        else:
            name = times[alias]
            remedy = f"lateness={{{alias!r}: 10}}" if numeric else f"frame.withWatermark({name!r}, '10 seconds')"
            raise UnboundedJoinError(
                f"the stream {alias!r} has no watermark on {name!r}, so no row of the others could ever go",
                accepted=f"a stream with a watermark, such as {remedy}, or lateness=",
            )
    return tuple(delays)


def wait(value: object, argument: str, *, numeric: bool) -> int:
    """A length of time that may be zero, in units of the time columns."""
    if numeric:
        if not isinstance(value, int) or not is_whole(value, least=0):
            raise ArgumentError(
                f"{argument}={value!r}", accepted="a whole number of at least 0, as the time columns hold"
            )
        return value
    if value in (0, timedelta(0)) and not isinstance(value, bool):
        return 0
    return duration(value, argument=argument)  # type: ignore[arg-type]
