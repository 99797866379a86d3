"""``dovetail state``: what the joins of a streaming query hold, as tables or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dovetail.errors import visible
from dovetail.spark.runtime.quiet import quiet_session
from dovetail.spark.state import state

Held = Mapping[str, Any]
"""A row of :func:`dovetail.spark.state.state`."""

SHOWN = 20
"""Cells that are listed, the largest first."""
_WIDEST = 1000


def run(console: Console, checkpoint: str, log: Path, *, cells: bool, samples: int, as_json: bool) -> None:
    """Read a checkpoint and print what is in it."""
    with quiet_session("dovetail-state", log, conf={"spark.sql.session.timeZone": "UTC"}) as spark:
        held: list[Held] = [row.asDict() for row in state(spark, checkpoint, samples=samples).collect()]
    if as_json:
        # Not through the console, which would wrap lines and colour numbers.
        print(json.dumps({"inputs": by_input(held), "cells": [_plain(row) for row in held]}, default=_spelled))
        return
    show(console, held, cells=cells)


def by_input(held: Sequence[Held]) -> list[dict[str, Any]]:
    """One entry for each operator and input, and for each kind of thing beside rows, with how uneven its cells are.

    Examples
    --------
    >>> row = {"operator": 0, "join": "an as-of join", "input": "A", "rows": 3, "bytes": 10, "segments": 1, "freed": 2}
    >>> [entry] = by_input([row | {"cell": 0}, row | {"cell": 1, "rows": 9}])
    >>> entry["rows"], entry["cells"], entry["fullest"], entry["skew"], entry["freed"]
    (12, 2, 1, 1.5, 4)
    """
    groups: dict[tuple[int, str | None, str | None, str | None], list[Held]] = {}
    for row in held:
        key = (row["operator"], str(row.get("join")), row.get("input"), row.get("beside"))
        groups.setdefault(key, []).append(row)
    return [
        _entry(*key, rows)
        for key, rows in sorted(groups.items(), key=lambda group: (group[0][0], group[0][2] is None, str(group[0])))
    ]


def _entry(
    operator: int, join: str | None, name: str | None, beside: str | None, rows: Sequence[Held]
) -> dict[str, Any]:
    known = [row["rows"] for row in rows if row.get("rows") is not None]
    entry: dict[str, Any] = {"operator": operator, "join": join, "input": name, "beside": beside, "cells": len(rows)}
    entry |= {key: sum(row[key] or 0 for row in rows) for key in ("bytes", "segments")}
    if name is not None:
        entry["rows"] = sum(known)
        entry["fullest"] = max(rows, key=lambda row: row["rows"])["cell"]
        entry["skew"] = round(max(known) * len(known) / max(1, sum(known)), 2)
        entry["freed"] = _over(sum, rows, "freed")
        for end, choose in (("oldest", min), ("newest", max)):
            entry[end] = _over(choose, rows, end)
            if entry[end] is None:
                entry[end] = _over(choose, rows, f"{end}_number")
        samples = [sample for row in rows for sample in row.get("samples") or ()]
        entry |= {"samples": samples} if samples else {}
    return entry


def _over(choose: Any, rows: Sequence[Held], name: str) -> Any:
    known = [row[name] for row in rows if row.get(name) is not None]
    return choose(known) if known else None


def show(console: Console, held: Sequence[Held], *, cells: bool) -> None:
    """Print tables: the inputs of each join, what it keeps beside rows, and perhaps its largest cells."""
    entries = by_input(held)
    for operator in sorted({entry["operator"] for entry in entries}):
        own = [entry for entry in entries if entry["operator"] == operator]
        console.print(f"[bold]{_safe(own[0]['join'])}[/], operator {operator}", highlight=False)
        table = _table("input", "rows", "bytes", "cells", "fullest", "skew", "oldest", "newest", "freed next")
        for entry in own:
            if entry["input"] is not None:
                table.add_row(
                    _safe(entry["input"]), _count(entry["rows"]), _count(entry["bytes"]), _count(entry["cells"]),
                    f"cell {entry['fullest']}", f"{entry['skew']:g}", _spelled(entry["oldest"]),
                    _spelled(entry["newest"]), _count(entry["freed"]),
                )  # fmt: skip
        _print_whole(console, table)
        for entry in own:
            if entry["input"] is None:
                about = f"  beside rows: {entry['beside']}, {_count(entry['bytes'])} bytes"
                console.print(about, highlight=False, soft_wrap=True)
        if cells:
            _print_whole(console, _cells([row for row in held if row["operator"] == operator]))
        for entry in own:
            for sample in entry.get("samples", ())[:SHOWN]:
                console.print(visible(f"  {entry['input']}  {sample}"), highlight=False, markup=False, soft_wrap=True)
        console.print()


def _print_whole(console: Console, table: Table) -> None:
    """Print a table that may be wider than the terminal, or than the 80 columns that Rich takes a file for.

    Rich would shorten its numbers to dots.
    """
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum
    usual = console.width
    console.width = max(needed, usual)  # what print takes as its width is at most the console's
    console.print(table)
    console.width = usual


def _cells(held: Sequence[Held]) -> Table:
    table = _table("cell", "partition", "input", "rows", "bytes", "oldest", "newest", "freed next")
    rows = sorted((row for row in held if row.get("input") is not None), key=lambda row: -row["bytes"])
    for row in rows[:SHOWN]:
        ends = [row[end] if row.get(end) is not None else row.get(f"{end}_number") for end in ("oldest", "newest")]
        table.add_row(
            str(row["cell"]), str(row["partition"]), _safe(row["input"]), _count(row["rows"]), _count(row["bytes"]),
            *map(_spelled, ends), _count(row["freed"]),
        )  # fmt: skip
    if len(rows) > SHOWN:
        table.caption = f"the largest {SHOWN} of {len(rows)}"
    return table


def _safe(name: object) -> str:
    """A name out of a checkpoint: neither Rich nor the terminal takes it for anything else."""
    return escape(visible(str(name)))


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("input", "oldest", "newest") else "right", no_wrap=True)
    return table


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _spelled(value: object) -> str:
    """A time in UTC, or the number that it is."""
    if isinstance(value, datetime):
        # PySpark hands over instants as local times.
        return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
    return "-" if value is None else str(value)


def _plain(row: Held) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
