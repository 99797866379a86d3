"""A run as a terminal shows it: what `dovetail run` and `dovetail top` draw from progress records."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dovetail.jobs.progress import Record

_BARS = "▁▂▃▄▅▆▇█"
_SHOWN = 12


def run_view(records: Sequence[Record], *, running: bool, shown: int = _SHOWN) -> RenderableType:
    """The state of a run.

    Parameters
    ----------
    records
        The records of its file.
    running
        Whether it goes on.
    shown
        Micro-batches in the table.
    """
    start = records[0] if records and records[0].get("kind") == "start" else {}
    batches = batch_records(records)
    status = "running" if running else records[-1].get("status", "gone without an end") if records else "nothing yet"
    head = Text.assemble(
        (str(start.get("job", "?")), "bold"), f"  {start.get('mode', '')}  ",
        (status, "green" if status in ("running", "finished") else "yellow"),
        f"  since {str(start.get('time', '?'))[:19]}  process {start.get('pid', '?')}",
    )  # fmt: skip
    if not batches:
        return Group(head, Text("no micro-batch has ended yet", style="dim"))
    return Group(head, _rates(batches), _table(batches[-shown:]))


def batch_records(records: Sequence[Record]) -> list[Record]:
    """The records of micro-batches."""
    return [record for record in records if record.get("kind") == "batch"]


def _rates(batches: Sequence[Record]) -> Table:
    """One line for each figure that the run has: its course as bars, and the last value."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    lines = (
        ("rows a second", "done_per_second", "rows done a second"),
        ("arrive a second", "arrived_per_second", "rows that came a second"),
        ("results", "results", "of the last micro-batch"),
        ("rows held", "held_rows", "kept for later matches"),
        ("bytes held", "held_bytes", "of state"),
        ("lag", "lag", "seconds from the watermark to the newest row"),
        ("behind", "behind", "rows that the sources hold unread"),
        ("throttle", "throttle", "share of the work that is done; 1 is all of it"),
        ("recall", "recall", "estimated share of the results that come out"),
    )
    for name, key, what in lines:
        course = [record.get(key) for record in batches]
        known = [float(value) for value in course if value is not None]
        if known:
            table.add_row(name, Text(sparkline(known[-40:]), style="cyan"), figure(known[-1]), Text(what, style="dim"))
    return table


def _table(batches: Sequence[Record]) -> Table:
    columns = [
        ("batch", "batch"), ("rows in", "rows"), ("results", "results"), ("held", "held_rows"), ("late", "late"),
        ("forgotten", "evicted"), ("lag s", "lag"), ("throttle", "throttle"), ("recall", "recall"),
        ("seconds", "seconds"),
    ]  # fmt: skip
    # A figure that this run does not have gets no column.
    there = [(name, key) for name, key in columns if any(record.get(key) is not None for record in batches)]
    table = Table(box=box.SIMPLE)
    for name, _ in there:
        table.add_column(name, justify="right")
    for record in batches:
        table.add_row(*(figure(record.get(key)) for _, key in there))
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
    for key, what in (("results", "results"), ("held_rows", "held"), ("late", "late"), ("evicted", "forgotten")):
        if record.get(key) is not None:
            parts.append(f"{figure(record[key])} {what}")
    return ", ".join([*parts, f"{figure(record.get('seconds'))} s"])
