"""The figure that every chart is drawn on.

This module needs matplotlib; `dovetail.plots.charts` imports it when called.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

INK = "#333333"
COLOURS = ("#2c6fbb", "#c0392b", "#5a9e6f", "#8e6bb0", "#b08d57", "#444444")

_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Picture(Figure):
    """A matplotlib figure that needs no window and no global state, and shows itself in a notebook."""

    def png(self, dpi: int = 130) -> bytes:
        """The picture as the bytes of a PNG file."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=dpi)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def html(self) -> str:
        """The picture as an HTML element that holds all of it."""
        return f'<img alt="" src="data:image/png;base64,{base64.b64encode(self.png()).decode("ascii")}">'


def axes(panels: int, width: float, height: float, **options: Any) -> tuple[Picture, list[Any]]:
    """A new figure with its panels side by side."""
    with mpl.rc_context(_STYLE):
        figure = Picture(figsize=(width, height), layout="constrained")
        made = figure.subplots(1, panels, squeeze=False, **options)
    return figure, list(made[0])


def rectangle(left: float, top: float, width: float, height: float) -> Rectangle:
    """A shaded cell of a matrix."""
    return Rectangle((left, top), width, height, facecolor=COLOURS[0], alpha=0.55, edgecolor="white", linewidth=0.6)
