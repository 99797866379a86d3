"""Draws bestmatch.svg: pairs as points, and which of them are best.  Run it: python docs/images/bestmatch.py."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from _paper import save, settings

INK, LEFT, RIGHT, BEST = "#333333", "#3b6ea5", "#d9a441", "#b5432f"
LIMIT = 3.0


def best(costs: np.ndarray) -> np.ndarray:
    """Which rows of costs no other row beats."""
    beaten = [bool(((costs <= cost).all(axis=1) & (costs < cost).any(axis=1)).any()) for cost in costs]
    return ~np.array(beaten)


def main() -> None:
    """Draw the picture beside this file."""
    settings()
    row = np.array([4.0, 4.0])
    others = np.array([[4.4, 5.9], [5.6, 4.5], [3.1, 4.9], [2.6, 5.6], [6.3, 5.2], [4.9, 2.2], [1.7, 3.4], [6.9, 7.2]])
    names = "abcdefgh"
    costs = np.abs(others - row)
    near = (costs <= LIMIT).all(axis=1)
    chosen = np.zeros(len(others), dtype=bool)
    chosen[near] = best(costs[near])
    figure, (plane, space) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
    plane.add_patch(plt.Rectangle(row - LIMIT, 2 * LIMIT, 2 * LIMIT, color="#f1f1ec", zorder=0))
    for point, good in zip(others, chosen, strict=True):
        if good:
            plane.plot(*zip(row, point, strict=True), color=BEST, lw=1.2, zorder=1)
    plane.plot(*row, "x", color=LEFT, ms=9, mew=2)
    plane.plot(*others.T, "o", color=RIGHT, ms=7, zorder=2)
    for name, point in zip(names, others, strict=True):
        plane.annotate(name, point, xytext=(6, 3), textcoords="offset points")
    plane.set(
        title="a row of R and the rows of S", xlim=(0.4, 8), ylim=(0.4, 8), xlabel="x", ylabel="y", aspect="equal"
    )
    plane.text(1.15, 1.15, "within", fontsize=9)
    order = np.argsort(costs[chosen][:, 0])
    stairs = costs[chosen][order]
    space.step([*stairs[:, 0], LIMIT], [*stairs[:, 1], stairs[-1, 1]], where="post", color=BEST, lw=1, zorder=1)
    space.fill_between(
        [*stairs[:, 0], LIMIT], [*stairs[:, 1], stairs[-1, 1]], LIMIT, step="post", color="#f6e9e6", zorder=0
    )
    for name, cost, good, inside in zip(names, costs, chosen, near, strict=True):
        if inside:
            space.plot(*cost, "o", color=BEST if good else RIGHT, ms=7, zorder=2)
            space.annotate(name, cost, xytext=(6, 3), textcoords="offset points")
    space.set(title="its pairs, by how far they are apart", xlim=(0, LIMIT), ylim=(0, LIMIT), aspect="equal")
    space.set(xlabel="|R.x - S.x|", ylabel="|R.y - S.y|")
    space.text(1.9, 2.7, "beaten", color=BEST, fontsize=9)
    for axes in (plane, space):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, __file__)
    plt.close(figure)


if __name__ == "__main__":
    main()
