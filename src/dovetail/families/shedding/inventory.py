"""The state of a window join that sheds load, for those who read it without the join: the window join's, and more."""

from __future__ import annotations

from dovetail.families.window import inventory as window
from dovetail.families.window.inventory import expiry, layout, side_of

__all__ = ["beside", "expiry", "layout", "side_of"]

CONTROL, SCOUTING = "shedding", "scouting"
"""The segments in which a cell, and a scout, keep what they have learned."""


def beside(name: str) -> str:
    """What a segment is that has no rows of an input.

    Examples
    --------
    >>> beside("left/0"), beside("shedding")
    ('sample of the rows that were forgotten', 'what shedding has learned')
    """
    if name.startswith("left/"):
        return "sample of the rows that were forgotten"
    return "what shedding has learned" if name in (CONTROL, SCOUTING) else window.beside(name)
