"""What a join's rows carry, in words: the columns that were asked for, and inputs that are wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.plan import Plan

WIDE = 30
"""From so many columns on, `explain` tells that an input is wide: half of a join's time is then carrying them."""


@dataclass(frozen=True)
class Travelling:
    """The columns of an input that travel, of all that it has."""

    names: tuple[str, ...]
    of: int
    decides: str | None = None
    """The last column that a result shows of an input whose columns, from left to right, decide between equal rows."""

    def text(self, alias: str) -> str:
        """In words.

        Examples
        --------
        >>> Travelling(("id", "bid"), 100).text("q")
        'q: 2 of 100'
        """
        counted = f"{alias}: {len(self.names)} of {self.of}"
        if self.decides is None:
            return counted
        return f"{counted} (those up to {self.decides} decide between equally good rows; ties= would name what decides)"


@dataclass(frozen=True)
class SelectedPlan:
    """The plan of a join of which only some columns come out."""

    plan: Plan
    items: tuple[str, ...]
    travelling: Mapping[str, Travelling]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The aliases, in the user's order."""
        return self.plan.inputs

    @property
    def streams(self) -> frozenset[str]:
        """Those of them that are streams."""
        return self.plan.streams

    @property
    def shed(self) -> object:
        """How a window join sheds, if it does."""
        return getattr(self.plan, "shed", None)

    def text(self) -> str:
        """The plan of the join, with what is selected below its inputs."""
        lines = [f"  select      {', '.join(self.items)}", f"  columns     {columns_text(self.travelling)}"]
        return inserted(self.plan.text(), lines)


def columns_text(travelling: Mapping[str, Travelling]) -> str:
    """How many columns of each input travel."""
    return "; ".join(one.text(alias) for alias, one in travelling.items()) + " travel"


def inserted(text: str, lines: Sequence[str]) -> str:
    r"""Lines of a plan's text below the line of its inputs.

    Examples
    --------
    >>> print(inserted("a join\n  inputs      R, S\n  join        R with S", ["  select      R.id"]))
    a join
      inputs      R, S
      select      R.id
      join        R with S
    """
    given = text.splitlines()
    at = next((number for number, line in enumerate(given) if line.startswith("  inputs ")), 0) + 1
    return "\n".join([*given[:at], *lines, *given[at:]])


def memory_line(plan: Plan, most: str | None) -> str | None:
    """What happens to a cell that needs more than a worker may take; None where nothing limits a worker."""
    if most is None:
        return None
    splits = getattr(getattr(plan, "plan", plan), "splits_cells", False)
    what = "waits on disk and is joined in pieces" if splits else "is refused, in words that name its most frequent key"
    return f"  memory      a worker may take {most} (spark.executor.pyspark.memory): a cell that needs more {what}"


def wide_line(widths: Mapping[str, int], hint: str = "select=[...]") -> str | None:
    """The warning about wide inputs, by their number of columns; None where there are none.

    Examples
    --------
    >>> wide_line({"t": 100, "q": 5})
    '  wide        rows carry all their columns, t 100: name those that you need, select=[...]'
    >>> wide_line({"t": 5})
    """
    wide = {alias: width for alias, width in widths.items() if width >= WIDE}
    if not wide:
        return None
    counted = ", ".join(f"{alias} {width}" for alias, width in wide.items())
    return f"  wide        rows carry all their columns, {counted}: name those that you need, {hint}"
