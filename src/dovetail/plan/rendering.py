"""A plan as notebooks and narrow terminals show it: each label stays next to its words."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from dataclasses import dataclass
from html import escape

_LINE = re.compile(r"(?P<indent> *)(?:(?P<label>\S+(?: \S+)*?) {2,})?(?P<words>.*)")

# Greys that are half see-through and the page's own colour of text: readable on white and on black.
_TABLE = "border-collapse:collapse;margin:0.3em 0;border-left:3px solid rgba(128,128,128,0.5)"
_CELL = "padding:0 1em 0 {indent}ch;text-align:left;vertical-align:top;border:none;background:none"
_LABEL = "opacity:0.65;white-space:nowrap;"
_WORDS = "font-family:monospace;white-space:normal;"


@dataclass(frozen=True)
class Shown:
    r"""A plan to show; :func:`show` does it.

    Examples
    --------
    >>> plan = Shown("theta join, batch\n  inputs      R, S")
    >>> print(plan)
    theta join, batch
      inputs      R, S
    >>> plan._repr_html_().count("<tr>")
    2
    """

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """What Jupyter asks for."""
        title, *lines = self.text.splitlines()
        heading = f'<tr><td colspan="2" style="{_CELL.format(indent=1)}"><b>{escape(title)}</b></td></tr>'
        return f'<table style="{_TABLE}">{heading}{"".join(map(_row, lines))}</table>'


def _row(line: str) -> str:
    found = _LINE.fullmatch(line)
    assert found is not None  # every part of the pattern may be empty
    indent, words = len(found["indent"]) + 1, escape(found["words"])
    if found["label"] is None:
        return f'<tr><td colspan="2" style="{_WORDS}{_CELL.format(indent=indent)}">{words}</td></tr>'
    label = f'<td style="{_LABEL}{_CELL.format(indent=indent)}">{escape(found["label"])}</td>'
    return f'<tr>{label}<td style="{_WORDS}{_CELL.format(indent=0)}">{words}</td></tr>'


def folded(text: str, width: int) -> str:
    r"""The lines of a plan within `width` columns, continued below their words and not below their labels.

    Examples
    --------
    >>> print(folded("theta join\n  kernel      range: sorted points, one run for each box", 40))
    theta join
      kernel      range: sorted points, one
                  run for each box
    """
    lines: list[str] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        assert found is not None
        below = " " * min(found.start("words"), width // 2)
        lines += textwrap.wrap(line, width, subsequent_indent=below, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def show(text: str) -> None:
    """Print a plan, or have it rendered where IPython runs the program."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(text)
    else:
        # IPython chooses: a notebook takes the table, a terminal the text.
        importlib.import_module("IPython.display").display(Shown(text))
