"""Draws asof.svg: the directions, the tolerance and the cut.  Run it from anywhere: python docs/images/asof.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
from _paper import save, settings

INK, LEFT, RIGHT, HIT, PALE = "#333333", "#3b6ea5", "#d9a441", "#b5432f", "#e4e4dc"
TIMES = [0.8, 2.0, 4.6, 5.4, 8.6, 11.0]
MOMENT, WITHIN, CUT = 6.6, 2.4, 6.0


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    figure, axes = plt.subplots(figsize=(7.6, 3.2), layout="constrained")
    axes.axvspan(0, CUT, color="#f1f1ec", lw=0, zorder=0)
    axes.axvspan(CUT, 12, color=PALE, lw=0, zorder=0)
    axes.text(CUT / 2, -0.75, "slice 1", ha="center", fontsize=9)
    axes.text((CUT + 12) / 2, -0.75, "slice 2", ha="center", fontsize=9)
    rows = {"backward": (3, 5.4), "forward": (2, 8.6), "nearest": (1, 5.4)}
    for name, (height, found) in rows.items():
        axes.plot([MOMENT - WITHIN, MOMENT + WITHIN], [height, height], color="#c9c9bf", lw=6, solid_capstyle="butt")
        axes.plot(TIMES, [height] * len(TIMES), "o", color=RIGHT, ms=6, zorder=3)
        axes.plot([MOMENT], [height], "|", color=LEFT, ms=16, mew=2.5, zorder=4)
        arrow = {"arrowstyle": "->", "color": HIT, "lw": 1.6, "connectionstyle": "arc3,rad=-0.45"}
        if found > MOMENT:
            arrow["connectionstyle"] = "arc3,rad=0.45"
        axes.annotate("", xy=(found, height + 0.12), xytext=(MOMENT, height + 0.12), arrowprops=arrow)
        axes.text(-0.2, height, name, ha="right", va="center")
    axes.annotate(
        "", xy=(CUT + 0.25, 0.1), xytext=(5.4, 0.1), arrowprops={"arrowstyle": "->", "color": INK, "ls": "dashed"}
    )
    axes.plot([5.4], [0.1], "o", color=RIGHT, ms=6)
    axes.plot([CUT + 0.25], [0.1], "o", mfc="none", mec=RIGHT, ms=6)
    axes.text(-0.2, 0.1, "copied across the cut", ha="right", va="center", fontsize=9)
    axes.text(12.2, 2, "grey: within", ha="left", va="center", fontsize=9)
    axes.set(xlim=(0, 12), ylim=(-1.1, 3.9), title="one row of the first input, and what it finds in the second")
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
