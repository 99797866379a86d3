"""Draws which-join.svg: a ladder of questions.  Run it from anywhere: python docs/images/which-join.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
from _paper import BOX, HIT, INK, POINT, save, settings
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

# Questions from above to below; what a yes leads to.
STEPS = [
    ("Only counts, sums, averages\nof what each row matches?", ["dt.aggregate_join"]),
    ("For each row one row: the last,\nthe next or the nearest in time?", ["dt.asof_join"]),
    ("For each row its k nearest, on a\nline, on a map or in space?", ["dt.nearest_join"]),
    ("The best pairs by several\ncriteria at once?", ["dt.bestmatch_join"]),
    (
        "Rows of two or more streams,\nor rows near each other in time?",
        ["dt.window_join", "too much arrives:\nshed=dt.Harvest()"],
    ),
    ("A comparison other than =?\n<, BETWEEN, overlap, tolerance", ["dt.theta_join"]),
    ("Equalities only, and the result\nis too large to compute?", ["dt.approx_join"]),
]
STEP, HEIGHT, WIDTH = 1.3, 0.76, 4.3


def box(axes: plt.Axes, x: float, y: float, text: str, colour: str, *, width: float, height: float) -> None:
    """A box around its text."""
    shape = FancyBboxPatch(
        (x, y - height / 2), width, height, boxstyle="round,pad=0.06", fc="#f1f1ec", ec=colour, lw=1.3
    )
    axes.add_patch(shape)
    style = {"family": "monospace", "weight": "bold"} if text.startswith("dt.") else {}
    axes.text(x + width / 2, y, text, ha="center", va="center", fontsize=9.5, linespacing=1.25, **style)


def arrow(axes: plt.Axes, start: tuple[float, float], end: tuple[float, float], word: str) -> None:
    """An arrow with its answer."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=INK, lw=1.1))
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    down = start[0] == end[0]
    axes.text(
        middle[0] + (0.12 if down else 0), middle[1] + (0 if down else 0.1), word,
        ha="left" if down else "center", va="center" if down else "bottom", fontsize=8.5,
    )  # fmt: skip


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    figure, axes = plt.subplots(figsize=(5.4, 6.6), layout="constrained")
    for at, (question, answers) in enumerate(STEPS):
        y = -STEP * at
        box(axes, 0, y, question, POINT, width=WIDTH, height=HEIGHT)
        for nr, answer in enumerate(answers):
            at_y = y if len(answers) == 1 else y + (0.36 if nr == 0 else -0.44)
            height = 0.42 if nr == 0 else 0.62
            box(axes, 5.5, at_y, answer, HIT if nr == 0 else BOX, width=2.7, height=height)
        first = y if len(answers) == 1 else y + 0.36
        arrow(axes, (WIDTH + 0.08, first), (5.42, first), "yes")
        arrow(axes, (WIDTH / 2, y - HEIGHT / 2 - 0.07), (WIDTH / 2, y - STEP + HEIGHT / 2 + 0.07), "no")
    last = -STEP * len(STEPS)
    box(axes, 0, last + 0.06, "Spark's own join: it does equalities well", "#8a8a80", width=8.2, height=0.55)
    axes.set(xlim=(-0.15, 8.45), ylim=(last - 0.32, 0.65))
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
