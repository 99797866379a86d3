"""``WINDOW`` and ``TIME`` as arguments of a call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dovetail.errors import in_statement, listing
from dovetail.families.window.graph import after, path
from dovetail.statements.calls import Facts, alias_named
from dovetail.statements.syntax.grammar import Window
from dovetail.statements.syntax.statement import Block


def asks_in_window(block: Block) -> bool:
    """Whether the windows are those in which the rows of an AGGREGATE or a NEAREST JOIN ask for others."""
    extras, joins = block.extras, block.joins
    alone = bool(extras.windows) and extras.memory is None and extras.shed is None
    return alone and len(joins) == 1 and joins[0].kind in ("aggregate", "nearest")


def asked_window(block: Block, text: str, facts: Facts, argument: str) -> dict[str, Any]:
    """The time columns and the window of such a join, as its arguments; nothing without a window."""
    if not block.extras.windows:
        return {}
    aliases = [relation.alias for relation in block.relations]
    window = windows_of(block.extras.windows, text, aliases)
    return {"time": times_of(block, text, facts, every=True), argument: window}


def windows_of(windows: tuple[Window, ...], text: str, aliases: Collection[str]) -> Any:
    """The windows of a clause, as the argument of a join takes them."""
    if len(windows) == 1 and not windows[0].aliases:
        return windows[0].sizes[0]
    bounds: dict[tuple[str, str], Any] = {}
    for window in windows:
        if not window.aliases:
            raise in_statement(
                text,
                window.offset,
                "a window for all inputs together with other windows",
                accepted="WINDOW (A, B) = ... for each pair",
            )
        stops = [alias_named(text, window.offset, name, aliases, "the window") for name in window.aliases]
        hops = len(stops) - 1
        if len(window.sizes) not in (1, hops) and not window.between:
            raise in_statement(
                text,
                window.offset,
                f"{hops} hop(s) and {len(window.sizes)} lengths",
                accepted="one length, or one for each hop",
            )
        if window.both_ways:
            if len(windows) > 1:
                raise in_statement(text, window.offset, "BOTH WAYS with other windows", accepted="a single path")
            return path(" -> ".join(stops), window.sizes[0] if len(window.sizes) == 1 else window.sizes, both_ways=True)
        sizes = window.sizes * hops if len(window.sizes) == 1 else window.sizes
        for hop in range(hops):
            pair = (stops[hop], stops[hop + 1])
            if pair in bounds or pair[0] == pair[1]:
                what = f"two windows from {pair[0]} to {pair[1]}" if pair in bounds else "a window to itself"
                raise in_statement(text, window.offset, what, accepted="one window for each pair of two inputs")
            if window.between:
                bounds[pair] = (window.sizes[0], window.sizes[1])
            else:
                bounds[pair] = after(sizes[hop]) if window.directed else sizes[hop]
    return bounds


def times_of(block: Block, text: str, facts: Facts, *, every: bool = False) -> dict[str, str]:
    """The time column of every input: what TIME says, else the watermark's, else the only timestamp.

    A static relation beside streams has no window, so it has no time unless TIME names it: it is joined as it is.
    Where rows ask about a window, `every` input has one.
    """
    aliases = [relation.alias for relation in block.relations]
    said: dict[str, str] = {}
    for time in block.extras.times:
        if time.alias is not None:
            said[alias_named(text, time.offset, time.alias, aliases, "TIME")] = time.column
    timed = [alias for alias in aliases if every or alias in said or not facts.streams or alias in facts.streams]
    for time in block.extras.times:
        if time.alias is None:
            said.update({alias: time.column for alias in timed if alias not in said})
    for alias in timed:
        if alias in said:
            continue
        choices = facts.watermarked.get(alias) or facts.timestamps.get(alias) or ()
        if len(choices) != 1:
            what = f"has the timestamps {listing(choices)}" if choices else "has no column of type timestamp"
            raise in_statement(
                text, block.extras.windows[0].offset, f"the time of {alias} is not clear: it {what}",
                accepted="a clause behind the window, such as TIME ts or TIME A.ts, B.at",
                hint="a stream has its time from withWatermark, a table from its only timestamp; numbers need TIME",
            )  # fmt: skip
        said[alias] = choices[0]
    return said
