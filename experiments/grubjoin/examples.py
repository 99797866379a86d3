"""The paper's worked examples: Figures 3, 4 and 6, on the library's own model and search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import claims
import numpy as np
from measure import random_case
from reproduce import Claim, Report

import plots
from dovetail.families.shedding.optimizer.fractions import _up, harvest_counts
from dovetail.families.shedding.optimizer.model import Floats, Ints, Model, build_model

RATES, WINDOW, SLICE = (300.0, 100.0, 150.0), 10.0, 2.0
ORDERS = np.array([[1, 2], [2, 0], [1, 0]])
"""R1 = {2, 3}, R2 = {3, 1}, R3 = {2, 1}."""


def figure3(context: Any) -> Report:
    """Section 4.1.2: five slices a window, z[1,1] = 0.6 of W3 by the ranks 4, 3, 5, and z[1,2] = 0.4 of W2 by 3, 2."""
    scores = np.ones((3, 3, 5))
    scores[0, 2], scores[0, 1] = [1, 2, 4, 5, 3], [1, 4, 5, 3, 2]
    model = build_model([1.0] * 3, np.array([[2, 1], [0, 2], [0, 1]]), np.ones((3, 3, 5)), scores, np.ones((3, 2)))
    counts = np.ones((3, 2), dtype=np.int64)
    counts[0] = round(0.6 * 5), round(0.4 * 5)
    selected = model.selected(counts)[0]
    third, second = (1 + np.flatnonzero(selected[side]) for side in (2, 1))
    context.tick()
    plots.lines(
        context.out / "figure3.png",
        [
            (
                "direction 1",
                range(1, 6),
                {"W3": selected[2].astype(float).tolist(), "W2": selected[1].astype(float).tolist()},
            )
        ],
        "slice",
        "looked at",
        "Figure 3: window harvesting",
    )
    found = f"{third.tolist()} of W3, {second.tolist()} of W2"
    return Report(
        "figure3",
        "Figure 3: example of window harvesting",
        (found + ", as printed: 3, 4, 5 and 2, 3",),
        [
            Claim(
                "Figure 3",
                "z = 0.6 of W3 with ranks 4, 3, 5 selects 3, 4, 5; z = 0.4 of W2 with ranks 3, 2 selects 2, 3",
                found,
                (third.tolist(), second.tolist()) == ([3, 4, 5], [2, 3]),
                "these slices and no others",
            ),
        ],
    )


def _lagging(width: float, tail: float) -> tuple[Floats, Floats, Floats]:
    """Densities of T2 - T1 and T3 - T1, peaks at 4 s and 5 s with tails, and the times that they are of."""
    at = np.arange(-WINDOW, WINDOW, 0.05) + 0.025
    first, second = (np.exp(-np.abs(at - lag) / width) + tail for lag in (4.0, 5.0))
    return first / first.sum(), second / second.sum(), at


def example4(level: float, width: float, tail: float, *, directed: bool) -> Model:
    """The join of Figure 4; selectivities and densities are in its chart only, so both are parameters.

    Selectivities rise from streams 2 and 3 to 1 and 2 to 1 and 3, which is what the printed join orders need.
    """
    f21, f31, at = _lagging(width, tail)
    apart = np.subtract.outer(at, at)  # T3 - T2 = (T3 - T1) - (T2 - T1), taken to be independent: equation (2)
    edges = np.arange(0.0, WINDOW + SLICE, SLICE)
    scores = np.zeros((3, 3, 5))
    for side, density in ((1, f21), (2, f31)):
        scores[side, 0] = np.histogram(at, edges, weights=density)[0]
        scores[0, side] = np.histogram(-at, edges, weights=density)[0]
    both = f31[:, None] * f21[None, :]
    scores[2, 1] = np.histogram(apart.ravel(), edges, weights=both.ravel())[0]
    scores[1, 2] = np.histogram(-apart.ravel(), edges, weights=both.ravel())[0]
    selectivity = level * np.array([[0, 2, 3], [2, 0, 1], [3, 1, 0]])
    fanouts = np.array([[selectivity[i, side] * RATES[side] * WINDOW for side in ORDERS[i]] for i in range(3)])
    if directed:
        # Of the matches of two streams, a direction finds those that came before: the part of the density in its past.
        fanouts *= np.array([[2 * scores[i, side].sum() for side in ORDERS[i]] for i in range(3)])
    rows = np.tile(np.array(RATES)[None, :, None] * SLICE, (3, 1, 5))
    return build_model(RATES, ORDERS, rows, scores, fanouts)


def figure4(context: Any) -> Report:
    rows: list[list[str]] = []
    held: dict[tuple[bool, bool], list[bool]] = {}
    for level, width, tail, directed in product((0.0005, 0.002, 0.008), (0.5, 1.5), (0.0, 0.1), (False, True)):
        model = example4(level, width, tail, directed=directed)
        best, ours = (harvest_counts(model, 0.5, method=method) for method in ("exhaustive", "double-sided"))
        printed = harvest_counts(model, 0.5, refined=False)
        held.setdefault((directed, tail > 0), []).append(best[2].tolist() == [5, 5])
        rows.append(
            [
                f"{level:g}, {width:g} s, {tail:g}, {'by direction' if directed else 'as printed'}",
                *(str((counts / 5).tolist()) for counts in (best, printed)),
                f"{model.output(printed) / model.output(best):.3f}",
                f"{model.output(ours) / model.output(best):.3f}",
            ]
        )
    context.tick()
    heads = ("selectivity of 2 and 3, width, tail, fan-out", "best z[i, j]", "greedy's", "greedy", "refined")
    text = "\n".join(
        ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads), *("| " + " | ".join(row) + " |" for row in rows)]
    )
    model = example4(0.002, 1.5, 0.1, directed=True)
    chosen = model.selected(harvest_counts(model, 0.5, method="exhaustive"))
    plots.lines(
        context.out / "figure4.png",
        [
            (
                f"direction {i + 1}",
                range(1, 6),
                {f"W{side + 1}": chosen[i, side].astype(float).tolist() for side in range(3) if side != i},
            )
            for i in range(3)
        ],
        "slice",
        "looked at",
        "Figure 4: the optimum of the example",
    )
    return Report("figure4", "Figure 4: optimal window harvesting, z = 0.5", (text,), [claims.third_direction(held)])


def steps(model: Model, budget: float, begin: Ints) -> tuple[list[dict[str, int]], Ints]:
    """Figure 5's search one step at a time: candidates, those infeasible, and what was chosen."""
    counts, frozen, trace = begin.copy(), np.zeros(begin.shape, dtype=np.bool_), []
    while True:
        old_c, old_o = model.evaluated(counts)
        best, chosen, tried, infeasible = 0.0, None, 0, 0
        for i, j in np.ndindex(*counts.shape):
            if frozen[i, j] or counts[i, j] >= model.sizes[i, j]:
                continue
            tried += 1
            counts[i, j] += 1
            cost, output = model.evaluated(counts)
            counts[i, j] -= 1
            if cost > budget:
                frozen[i, j], infeasible = True, infeasible + 1
            elif (output - old_o) / (cost - old_c) > best:
                best, chosen = (output - old_o) / (cost - old_c), (i, j)
        trace.append({"candidates": tried, "infeasible": infeasible})
        if chosen is None:
            return trace, counts
        counts[chosen] += 1


STORY: Sequence[dict[str, int]] = (
    {"candidates": 6, "infeasible": 2},
    {"candidates": 4, "infeasible": 2},
    {"candidates": 2, "infeasible": 2},
)
"""What the text tells of Figure 6."""


def figure6(context: Any) -> Report:
    """A join and a budget for which the search, from 0.2 of every window, goes as the text tells; and ours agrees."""
    random, begin, agreed, tried = np.random.default_rng(6), np.full((3, 2), 2, dtype=np.int64), 0, 0
    shown, story = [], 0
    for case in range(400):
        model = random_case(random, 3, 10, correlated=True)
        for more in (1.02, 1.05, 1.1, 1.2):
            budget = more * model.cost(begin)
            trace, end = steps(model, budget, begin)
            compiled = _up(budget, 2, begin, np.zeros(begin.shape, dtype=np.bool_), model)
            tried, agreed = tried + 1, agreed + bool(np.isclose(model.output(compiled), model.output(end)))
            if trace == list(STORY):
                story += 1
                if not shown:
                    shown = [f"case {case}, a budget of {more:g} of the setting 0.2: ends at {(end / 10).tolist()}"]
    context.tick()
    plots.lines(
        context.out / "figure6.png",
        [
            (
                "as told",
                (1, 2, 3),
                {name: [float(step[name]) for step in STORY] for name in ("candidates", "infeasible")},
            )
        ],
        "step",
        "settings",
        "Figure 6: the greedy search",
    )
    text = f"{story} of {tried} random joins go as told; the first: " + "; ".join(shown or ["none"])
    return Report(
        "figure6",
        "Figure 6: illustration of the greedy heuristic",
        (text,),
        [
            Claim(
                "Figure 6",
                "From 0.2 everywhere: six candidates, two infeasible; four, two; two, both, and the search ends",
                text,
                story > 0,
                "some random join goes so, step by step",
            ),
            Claim(
                "Figure 6",
                "Candidates that are infeasible are frozen, the best of the others is the next base",
                f"{agreed} of {tried} searches have the output of the compiled one",
                agreed == tried,
                "all of them",
            ),
        ],
    )
