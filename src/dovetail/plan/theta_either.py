"""Theta joins on an OR: a search for each of its conditions, whose pairs come out once."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare
from dovetail.plan.theta_plan import ThetaPlan


@dataclass(frozen=True)
class EitherPlan:
    """What a join on an OR will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    how: How
    conditions: tuple[str, ...]
    searches: tuple[ThetaPlan | EitherPlan, ...]
    """One for each condition of the OR."""

    @property
    def streams(self) -> frozenset[str]:
        """The inputs that are streams."""
        return self.searches[0].streams

    def text(self) -> str:
        """The plan as lines of text: each search after the other."""
        lines = [f"theta join on either of {len(self.conditions)} conditions, how={self.how!r}"]
        lines.append(f"  inputs      {', '.join(self.inputs)}")
        for number, (condition, search) in enumerate(zip(self.conditions, self.searches, strict=True), start=1):
            found = "" if number == 1 else ", without the pairs of those before"
            lines.append(f"  search {number}    {bare(condition)}{found}")
            lines += [f"    {line}" for line in search.text().splitlines()]
        if self.how in ("left", "right", "full"):
            lines.append("  then        rows that no search has a match for")
        return "\n".join(lines)
