"""Draws approx.svg: two reservoirs in strata, and a new row that meets one of them.  python docs/images/approx.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from _paper import save, settings

INK, LEFT, RIGHT, HIT, PALE = "#333333", "#3b6ea5", "#3a8f6a", "#b5432f", "#e4e4dc"
STRATA = ("a", "b", "c", "d")
# Rows seen and rows kept of each stratum: in proportion, but never fewer than two.
SEEN = {"R": (30, 12, 6, 1), "S": (24, 18, 6, 2)}
KEPT = {"R": (4, 2, 2, 1), "S": (3, 2, 2, 2)}


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    figure, axes = plt.subplots(figsize=(7.6, 3.3), layout="constrained")
    for left, (alias, colour) in zip((0.0, 9.5), (("R", LEFT), ("S", RIGHT)), strict=True):
        axes.text(left + 2.5, 5.0, f"memory of {alias}: 9 rows", ha="center", weight="bold", color=colour)
        for level, name in enumerate(STRATA):
            height = 4 - level
            seen, kept = SEEN[alias][level], KEPT[alias][level]
            axes.add_patch(plt.Rectangle((left, height - 0.36), 5.2, 0.72, color=PALE, lw=0))
            hit = alias == "S" and name == "b"
            x = left + 0.5 + 0.8 * np.arange(kept)
            axes.plot(x, np.full(kept, height), "o", color=HIT if hit else colour, ms=9)
            axes.text(left - 0.2, height, name, ha="right", va="center")
            axes.text(left + 5.3, height, f"{kept} of {seen}", ha="left", va="center", fontsize=9)
    axes.plot(7.6, 3, "o", color=LEFT, ms=11, mec=HIT, mew=2)
    axes.annotate("", (9.0, 3), (7.9, 3), arrowprops={"arrowstyle": "->", "color": HIT, "lw": 1.6})
    axes.text(7.6, 2.3, "a new row of R\nwith value b", ha="center", va="center", fontsize=9)
    axes.text(
        8.2, 0.1,
        "2 results now, each of weight 18 / 2 = 9; then the row takes a place in R if its random draw is small enough",
        ha="center", va="center", color=HIT, fontsize=9,
    )  # fmt: skip
    axes.set(xlim=(-1, 17), ylim=(-0.3, 5.4))
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
