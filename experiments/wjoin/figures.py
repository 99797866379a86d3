"""Figures 7, 8, 9, 13 and 14 of the W-join paper, in shape."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import claims
import data
import numpy as np
from data import HOUR, SECOND
from measure import (
    FLAT,
    GCA,
    GCA_NLW,
    HW,
    LCA,
    LCA_NLW,
    MW,
    NLW,
    NLW_FLAT,
    ORDERS,
    PATH,
    PATH_FLAT,
    RIPPLE,
    RIPPLE_FLAT,
    XJOIN,
    Series,
    Variant,
    both_ways,
    compare,
    series,
)
from reproduce import Claim, Report

import plots

ROWS = 20_000
"""Rows of all streams together in the experiments on synthetic streams."""
RATE, SHORT, ROWS_EACH = 1000, 0.2, 3000
"""Streams of one rate by the matches of a row: rows a second, the window in seconds, rows of each stream."""
SWEEPS = ("MW-join", "GCA", "LCA")
"""What passes a row by where some other stream has none to offer."""
SWITCHING_ROWS = 60_000
"""The same where a stream switches its rate: 100 rows of the slow stream take 30,000 of the others."""


@dataclass(frozen=True)
class Context:
    """Where the output goes, how many runs to make, and whom to tell that another run is done."""

    out: Path
    runs: int
    tick: Callable[[], None]

    @property
    def how(self) -> dict:
        """What every measurement takes."""
        return {"runs": self.runs, "tick": self.tick}


def rows(found: Mapping[object, Mapping[str, Series]], name: str) -> str:
    """The figure's numbers, one line for each setting and algorithm."""
    lines = [
        f"| {name} | algorithm | rows come | service time, us | of the first rows | of the last | comparisons per row "
        "| rows buffered | no join needed | results |",
        "|" + " --- |" * 10,
    ]
    for key, row in found.items():
        for s in row.values():
            part = max(len(s.service) // 10, 1)
            cells = [
                key, s.label, s.order,
                f"{s.mean:.2f}", f"{s.service[:part].mean():.2f}", f"{s.service[-part:].mean():.2f}",
                f"{s.comparisons:,.0f}", f"{s.buffered.mean():,.0f}",
                f"{100 * s.idle:.0f} %" if s.label in SWEEPS else "", f"{s.results:,}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def on_stores(key: str, where: str, variants: Sequence[Variant], judge: Callable) -> Callable[[Context], Report]:
    """Figures 7 and 8: two days of stores, a window of one hour, 2 to 4 streams."""

    def make(context: Context) -> Report:
        found = {}
        for n in (2, 3, 4):
            streams = data.stores(n, 2)
            total = sum(len(side.times) for side in streams.sides)
            windows = data.one_window(n, HOUR)
            found[n] = compare(variants, streams, windows, total, "in turn", **context.how)
        heading = f"{where}: {', '.join(v.label for v in variants)} on store data, window of 1 hour"
        panels = [(f"{n}-way join", list(row.values())) for n, row in found.items()]
        plots.over_rows(context.out / f"{key}.png", panels, heading)
        return Report(key, heading, (rows(found, "streams"),), judge(where, found))

    return make


def _figure_7(where: str, found: Mapping[int, Mapping[str, Series]]) -> list[Claim]:
    return [
        *claims.outperforms(
            where, "NLW-join outperforms the ripple join in all cases", found, "NLW-join", "ripple join"
        ),
        *claims.outperforms(where, "MW-join outperforms NLW-join", found, "MW-join", "NLW-join"),
        claims.outperforms(
            where,
            "MW-join is almost an order of magnitude faster than NLW-join",
            found,
            "MW-join",
            "NLW-join",
            claims.ALMOST,
        )[0],
        claims.level(where, found, ("NLW-join", "MW-join")),
        claims.opening_hours(where, found[2]),
    ]


def _figure_8(where: str, found: Mapping[int, Mapping[str, Series]]) -> list[Claim]:
    return [
        *claims.outperforms(where, "HW-join outperforms XJoin in all cases", found, "HW-join", "XJoin"),
        claims.level(where, found, ("HW-join",)),
        claims.opening_hours(where, found[2]),
    ]


def figure_9a(context: Context) -> Report:
    """2 to 6 streams, rates from 1000 down to 100 rows a second."""
    where = "Figure 9(a)"
    found: dict[str, dict[int, dict[str, Series]]] = {order: {} for order in ORDERS}
    for n in range(2, 7):
        streams = data.exponential(np.geomspace(1000, 100, n), ROWS, 100)
        windows = data.one_window(n, SECOND)
        sweep = series(MW, streams, windows, ROWS, "by time", **context.how)
        for order in ORDERS:
            row = compare((NLW, NLW_FLAT, HW), streams, windows, ROWS, order, **context.how)
            found[order][n] = {**row, "MW-join": sweep}
    heading = "Figure 9(a): 2 to 6 synthetic streams of 1000 to 100 rows/s, window of 1 s, 100 values"
    panels = [(f"rows come {order}", found[order]) for order in ORDERS]
    plots.over_streams(context.out / "fig09a.png", panels, heading)
    judged = []
    for order in ORDERS:
        at = f"{where}, {order}"
        judged += [
            *claims.outperforms(
                at,
                "MW-join is more than an order of magnitude better than NLW-join",
                found[order],
                "MW-join",
                "NLW-join",
                claims.ORDER_OF_MAGNITUDE,
            ),
            *claims.maintained(at, found[order], "MW-join", "NLW-join"),
        ]
    return Report("fig09a", heading, tuple(rows(found[order], "streams") for order in ORDERS), judged)


def figure_9b(context: Context) -> Report:
    """2 to 6 stores, comparable rates."""
    where = "Figure 9(b)"
    found = {}
    for n in range(2, 7):
        streams = data.stores(n, 1)
        found[n] = compare(
            (NLW, NLW_FLAT, MW, HW), streams, data.one_window(n, HOUR), 15_000 * n, "in turn", **context.how
        )
    heading = "Figure 9(b): 2 to 6 stores, comparable rates, window of 1 hour, 15,000 rows of each"
    plots.over_streams(context.out / "fig09b.png", [("store data", found)], heading)
    judged = [
        *claims.converges(where, found, "MW-join", "NLW-join"),
        *claims.best_and_scales(where, found, "HW-join"),
    ]
    return Report("fig09b", heading, (rows(found, "streams"), ratios(context.tick)), judged)


def ratios(tick: Callable[[], None]) -> str:
    """What the convergence of Figure 9(b) hangs on: comparisons of NLW-join over MW-join, by the matches of a row."""
    head = "| streams | rows come | " + " | ".join(f"n = {n}" for n in range(2, 7)) + " | results per row, n = 2 to 6 |"
    lines = [head, "|" + " --- |" * 8]

    def add(name: str, made: Callable[[int], data.Streams], length: float, each: int) -> None:
        for order in ORDERS:
            found = []
            for n in range(2, 7):
                streams, windows = made(n), data.one_window(n, length)
                pair = [series(v, streams, windows, each * n, order, runs=1, tick=tick) for v in (NLW, MW)]
                found.append((pair[0].comparisons / pair[1].comparisons, pair[0].results / (each * n)))
            cells = [f"{ratio:.2f}" for ratio, _ in found]
            results = ", ".join(f"{some:.2f}" for _, some in found)
            lines.append(f"| {name} | {order} | {' | '.join(cells)} | {results} |")

    for share in (0.02, 0.25, 0.5, 0.75, 1.0, 1.5):
        values = round(RATE * SHORT / share)
        add(
            f"{RATE} rows/s, {SHORT:g} s, {share:g} matches a window",
            lambda n, values=values: data.exponential([RATE] * n, 2 * ROWS_EACH, values),
            SHORT * SECOND,
            ROWS_EACH,
        )
    for each in (1000, 5000):
        add(f"stores, 1 hour, {each:,} rows of each", lambda n: data.stores(n, 1), HOUR, each)
    return "Comparisons of NLW-join over those of MW-join, and what they hang on\n\n" + "\n".join(lines)


def figure_9c(context: Context) -> Report:
    """Four streams of 1000 rows a second; the last one switches to 10 and back every 100 rows."""
    where = "Figure 9(c)"
    tables, panels, judged = [], [], []
    for length, values in ((1.0, 250), (0.05, 12)):
        windows = data.one_window(4, length * SECOND)
        steady = data.exponential([1000] * 4, SWITCHING_ROWS, values)
        switching = data.switching(1000, 10, 100, SWITCHING_ROWS, values)
        found: dict[str, dict[str, Series]] = {}
        for name, streams in (("comparable", steady), ("D switches", switching)):
            row = {"MW-join": series(MW, streams, windows, SWITCHING_ROWS, "by time", **context.how)}
            for order, variant in itertools.product(ORDERS, (NLW, NLW_FLAT, HW)):
                row[f"{variant.label} {order}"] = series(
                    variant, streams, windows, SWITCHING_ROWS, order, **context.how
                )
            found[name] = row
            panels.append((f"window of {length:g} s, {name}", list(row.values())))
        tables.append(f"Window of {length:g} s, {values} values\n\n{rows(found, 'rates')}")
        before, after = found["comparable"], found["D switches"]
        at = f"{where}, window of {length:g} s"
        judged += claims.reacts(at, before["MW-join"], after["MW-join"])
        judged += [
            claims.unchanged(f"{at}, {order}", [(before[k], after[k]) for k in before if k.endswith(order)])
            for order in ORDERS
        ]
    heading = "Figure 9(c): four streams of 1000 rows/s, and D switching between 10 and 1000 rows/s"
    plots.over_rows(context.out / "fig09c.png", panels, heading, log=True)
    return Report("fig09c", heading, tuple(tables), judged)


def figure_13(context: Context) -> Report:
    """Windows that differ: all pairs but one have a short window."""
    where = "Figure 13"
    streams = data.exponential([1000] * 4, ROWS, 250)
    found, judged, panels = {}, [], []
    for short in (0.8, 0.1):
        edges = dict.fromkeys(itertools.combinations(range(4), 2), (-short * SECOND, short * SECOND))
        edges[2, 3] = (-SECOND, SECOND)
        for closed in (False, True):
            if closed and short == 0.8:
                continue  # 1 s is the shortest path already
            windows = data.windows(4, edges, close=closed)
            name = f"{short:g} s and 1 s" + (", shortest paths" if closed else "")
            found[name] = compare((GCA, LCA, GCA_NLW, LCA_NLW), streams, windows, ROWS, "by time", **context.how)
            row = found[name]
            judged += claims.faster(
                f"{where}, {name}", "LCA outperforms GCA", row["LCA"], row["GCA"], row["LCA"], row["GCA with NLW-join"],
                reading="the global approach is the nested loop's",
            )  # fmt: skip
            panels.append((name, list(row.values())))
    heading = "Figure 13: global and local conservative approach, 4-way join of 1000 rows/s, 250 values"
    plots.over_rows(context.out / "fig13.png", panels, heading, log=True)
    return Report("fig13", heading, (rows(found, "windows"),), judged)


def figure_14(context: Context) -> Report:
    """A path both ways, streams of comparable and of different rates."""
    where = "Figure 14"
    windows = data.path([0.2 * SECOND] * 3)
    found, judged, panels = {}, [], []
    for name, rates in (("small variations", (1000, 950, 900, 850)), ("large variations", (1000, 100, 1000, 10))):
        streams = data.exponential(rates, ROWS, 50)
        row = {"LCA": series(LCA, streams, windows, ROWS, "by time", **context.how)}
        for order, variant in itertools.product(ORDERS, (PATH, PATH_FLAT)):
            row[f"{order}{FLAT}" if variant is PATH_FLAT else order] = both_ways(
                variant, streams, windows, ROWS, order, **context.how
            )
        found[f"{name} ({', '.join(map(str, rates))} rows/s)"] = row
        panels.append((name, list(row.values())))
        for order in ORDERS:
            at, lca, path, flat = f"{where}, {name}, {order}", row["LCA"], row[order], row[f"{order}{FLAT}"]
            if name.startswith("small"):
                judged += claims.faster(at, "NLW-join outperforms LCA", path, lca, flat, lca)
            else:
                judged += claims.faster(at, "LCA performs best", lca, path, lca, flat)
    heading = "Figure 14: the path A, B, C, D or back, each step within 0.2 s, 50 values"
    plots.over_rows(context.out / "fig14.png", panels, heading, log=True)
    return Report("fig14", heading, (rows(found, "rates"),), judged)


FIGURES: dict[str, Callable[[Context], Report]] = {
    "7": on_stores("fig07", "Figure 7", (RIPPLE, NLW, RIPPLE_FLAT, NLW_FLAT, MW), _figure_7),
    "8": on_stores("fig08", "Figure 8", (XJOIN, HW), _figure_8),
    "9a": figure_9a,
    "9b": figure_9b,
    "9c": figure_9c,
    "13": figure_13,
    "14": figure_14,
}
