"""The wire format by name: columns that cross a module, a process or a shuffle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A key that need not travel: a payload column, or one of type double moved by a number."""

    column: int
    shift: float = 0.0
