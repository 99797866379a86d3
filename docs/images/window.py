"""Draws window.svg: three streams, their windows and watermarks.  Run it: python docs/images/window.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
from _paper import save, settings

INK, ROW, WINDOW, HIT, GONE = "#333333", "#3b6ea5", "#d9a441", "#b5432f", "#c4c4bc"
STREAMS = {
    "A": [1.0, 2.2, 3.6, 5.0, 6.4, 7.9, 9.3],
    "B": [1.6, 3.1, 4.4, 6.0, 7.2, 8.8],
    "C": [2.0, 4.0, 5.2, 7.0, 8.1, 10.1],
}
MATCH = {"A": 5.0, "B": 6.0, "C": 8.1}
WATERMARKS = {"A": 8.6, "B": 7.8, "C": 9.4}
GOES = {"A": 6.3, "B": 5.4, "C": 6.8}
"""Before these times rows have gone: every other input's watermark is out of reach."""


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    figure, axes = plt.subplots(figsize=(7.6, 3.2), layout="constrained")
    for height, (name, times) in zip((2, 1, 0), STREAMS.items(), strict=True):
        axes.plot([0.4, 10.8], [height, height], color="#e4e4dc", lw=1, zorder=0)
        for time in times:
            colour = HIT if MATCH[name] == time else GONE if time < GOES[name] - 1.6 else ROW
            axes.plot(time, height, "o", color=colour, ms=7, zorder=4)
        mark = WATERMARKS[name]
        axes.plot([mark, mark], [height - 0.22, height + 0.22], color=INK, lw=1.4, zorder=3)
        axes.text(mark, height + 0.27, "watermark", ha="center", va="bottom", fontsize=7.5)
        axes.text(0.2, height, f"stream {name}", ha="right", va="center")
    a, b, c = MATCH.values()
    axes.fill_between([a, a + 1.5], 0.9, 1.1, color=WINDOW, alpha=0.6, lw=0, zorder=1)
    axes.fill_between([b, b + 2.5], -0.1, 0.1, color=WINDOW, alpha=0.6, lw=0, zorder=1)
    axes.plot([a, b, c], [2, 1, 0], color=HIT, lw=1.2, zorder=3)
    axes.text(a + 0.1, 1.52, "B after A,\nwithin 5 s", fontsize=8, ha="right", va="center")
    axes.text(b + 0.5, 0.45, "C after B,\nwithin 10 s", fontsize=8, ha="right", va="center")
    axes.text(
        1.6, -0.62, "gone: nothing that may\nstill come can match", color="#8a8a80", fontsize=8, ha="center", va="top"
    )
    axes.text(
        c, -0.62, "the match leaves with\nthe row that completes it", color=HIT, fontsize=8, ha="center", va="top"
    )
    axes.set(xlim=(-0.9, 11), ylim=(-1.25, 2.7), title='dt.path("A -> B -> C", ["5 seconds", "10 seconds"])')
    axes.axis("off")
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
