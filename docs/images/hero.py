"""Draws hero.svg: the pairs that a band join has to look at, by Spark alone and here.  python docs/images/hero.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from _paper import BOX, HIT, POINT, save, settings

ROWS, BAND = 14, 0.06


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    random = np.random.default_rng(5)
    left, right = (np.sort(random.uniform(0, 1, ROWS)) for _ in range(2))
    near = np.abs(left[:, None] - right[None, :]) <= BAND
    figure, panels = plt.subplots(1, 2, figsize=(4.6, 2.75), layout="constrained")
    # A box is searched for in the sorted points: what is looked at are the ends of its run, and the run itself.
    ends = near.copy()
    ends[1:] |= near[:-1]
    looked = {"Spark alone:\nevery pair": np.ones_like(near), "Dovetail:\nsort and search": near | ends}
    for axes, (title, seen) in zip(panels, looked.items(), strict=True):
        rows, columns = np.nonzero(seen & ~near)
        axes.scatter(columns, rows, s=15, marker="s", color=BOX if seen.all() else "#c9c9bf", lw=0)
        rows, columns = np.nonzero(near)
        axes.scatter(columns, rows, s=22, marker="s", color=HIT, lw=0)
        axes.set_title(title, fontsize=11)
        axes.set(xlim=(-1, ROWS), ylim=(ROWS, -1), aspect="equal")
        axes.set_xlabel(f"{int(seen.sum())} pairs looked at", fontsize=9.5, color=POINT)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_color("#c9c9bf")
    figure.text(0.5, 0.0, "red: the matches", ha="center", va="bottom", fontsize=9, color=HIT)
    figure.get_layout_engine().set(rect=(0, 0.07, 1, 0.93))
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
