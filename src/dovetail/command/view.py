"""A run as a terminal shows it: what `dovetail run` and `dovetail top` draw from progress records."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dovetail.watch.records import Record

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN = 12
_FEWEST = 3
_COURSE = 24
_AROUND = 6
"""Lines of a view that are neither a figure nor a micro-batch: heading, frame of the table, the cursor's own."""


def run_view(
    records: Sequence[Record], *, running: bool, height: int | None = None, status: str | None = None
) -> RenderableType:
    """The state of a run.

    Parameters
    ----------
    records
        The records of its file.
    running
        Whether it goes on.
    height
        Lines of the terminal.  The table gets shorter to fit, because a live view that does not fit loses its end.
    status
        What to say instead of "running".
    """
    start = records[0] if records and records[0].get("kind") == "start" else {}
    batches = batch_records(records)
    if status is None:
        status = "running" if running else str(records[-1].get("status", "gone without an end")) if records else "new"
    head = Text.assemble(
        (str(start.get("job", "?")), "bold"), f"  {start.get('mode', '')}  ",
        (status, "green" if status in ("running", "finished") else "yellow"),
        f"  since {str(start.get('time', '?'))[:19].replace('T', ' ')}  process {start.get('pid', '?')}",
        no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    if not batches:
        return Group(head, Text("no micro-batch has ended yet", style="dim"))
    rates = _rates(batches)
    room = _SHOWN if height is None else height - rates.row_count - _AROUND
    return Group(head, rates, _table(batches[-max(_FEWEST, min(_SHOWN, room)) :]))


def batch_records(records: Sequence[Record]) -> list[Record]:
    """The records of micro-batches."""
    return [record for record in records if record.get("kind") == "batch"]


def _rates(batches: Sequence[Record]) -> Table:
    """One line for each figure that the run has: its course as bars, and the last value."""
    lines = (
        ("rows a second", "done_per_second", "rows processed per second"),
        ("arrive a second", "arrived_per_second", "rows that arrived per second"),
        ("results", "results", "of the last micro-batch"),
        ("rows held", "held_rows", "kept for later matches"),
        ("bytes held", "held_bytes", "of state"),
        ("lag", "lag", "seconds from the watermark to the newest row"),
        ("behind", "behind", "rows that the sources hold unread"),
        ("throttle", "throttle", "share of the work that is done; 1 is all of it"),
        ("recall", "recall", "estimated share of the results that are found"),
    )
    rows = []
    for name, key, what in lines:
        known = [float(record[key]) for record in batches if _is_figure(record.get(key))]
        if known:
            rows.append((name, sparkline(known[-_COURSE:]), figure(known[-1]), what))
    # A narrow terminal cuts the explanations off, and no figure.
    names, figures = (max((len(row[at]) for row in rows), default=0) for at in (0, 2))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=names)
    table.add_column(min_width=_COURSE, style="cyan")
    table.add_column(min_width=figures, justify="right")
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _table(batches: Sequence[Record]) -> Table:
    columns = [
        ("batch", "batch"), ("rows in", "rows"), ("results", "results"), ("held", "held_rows"), ("late", "late"),
        ("evicted", "evicted"), ("throttle", "throttle"), ("recall", "recall"), ("seconds", "seconds"),
    ]  # fmt: skip
    # A figure that this run does not have gets no column.
    shown = [(name, key) for name, key in columns if any(record.get(key) is not None for record in batches)]
    table = Table(box=box.SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    for name, _ in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for record in batches:
        table.add_row(*(figure(record.get(key)) for _, key in shown))
    return table


def sparkline(values: Sequence[float]) -> str:
    """Values as bars, the largest one full.

    Examples
    --------
    >>> sparkline([0, 1, 2, 4])
    '▁▃▅█'
    """
    top = max(values, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, max(0, int(value / top * (len(_BARS) - 1) + 0.5)))] for value in values)


def figure(value: object) -> str:
    """A number as people read it.

    Examples
    --------
    >>> figure(1234567), figure(0.5), figure(12.0), figure(None)
    ('1,234,567', '0.50', '12', '')
    """
    if value is None:
        return ""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return escape(str(value))
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def batch_line(record: Record) -> str:
    """A micro-batch in one line, for output that is not a terminal."""
    parts = [f"batch {record.get('batch')}", f"{figure(record.get('rows'))} rows in"]
    for key, what in (("results", "results"), ("held_rows", "held"), ("late", "late"), ("evicted", "evicted")):
        if record.get(key) is not None:
            parts.append(f"{figure(record[key])} {what}")
    return ", ".join([*parts, f"{figure(record.get('seconds'))} s"])
