"""Plans: what a join will do, decided before anything runs, and printable.  One module per family."""

from __future__ import annotations

from typing import Protocol


class Plan(Protocol):
    """What the drivers, the metrics and `explain` need of the plan of any family."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The aliases, in the user's order."""

    @property
    def streams(self) -> frozenset[str]:
        """Those of them that are streams."""

    def text(self) -> str:
        """What will happen and why, as lines of text."""
