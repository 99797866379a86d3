"""What the pictures share: how they are drawn, and that they have a light and a dark side.

A picture is an SVG file whose colours follow the reader: `prefers-color-scheme` is that of the page around it, on the
site and on the page of a repository.  It has a background of its own, so that it stays readable where a browser gets
that wrong.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

INK, POINT, BOX, HIT, GREEN = "#333333", "#3b6ea5", "#d9a441", "#b5432f", "#3a8f6a"

DARK = {
    "#ffffff": "#1e2129",
    "#000000": "#e4e4e7",
    INK: "#d8d9df",
    POINT: "#7fb0e6",
    BOX: "#a37c30",
    HIT: "#ff9d87",
    GREEN: "#6cc7a0",
    "#a8781d": "#e0b45c",
    "#8a8a80": "#9a9ba5",
    "#c4c4bc": "#6b6d78",
    "#c9c9bf": "#50525e",
    "#e4e4dc": "#363944",
    "#f1f1ec": "#2a2c36",
    "#f6e9e6": "#3d2e30",
    "#e8eef6": "#2a3444",
}
"""The colour that each colour of the drawings has on a dark page."""


def settings() -> None:
    """Set what all drawings have in common."""
    mpl.rcParams.update({"svg.hashsalt": "dovetail", "svg.fonttype": "path", "font.size": 10, "text.color": INK})


def save(figure: Any, script: str) -> None:
    """Write a figure beside the script that drew it."""
    file = Path(script).with_suffix(".svg")
    figure.savefig(file, metadata={"Date": None})
    text = file.read_text(encoding="utf-8")
    # Text without a colour of its own is black by SVG's rules, and has nothing to be matched by.
    rules = [f"svg{{fill:{DARK['#000000']}}}"]
    rules += [
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
        if f"{what}: {light}" in text
    ]
    style = f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    # Lines without trailing blanks, whatever matplotlib left there.
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    file.write_text(re.sub(r"(<svg\b[^>]*>)", rf"\1\n {style}", text, count=1), encoding="utf-8")
