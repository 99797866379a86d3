"""What the dialect adds to Spark SQL, as the parser leaves it: frozen values that point into the user's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class Slice(NamedTuple):
    """The characters of the statement from `start` up to, not including, `stop`."""

    start: int
    stop: int

    def of(self, text: str) -> str:
        """The characters themselves.

        Examples
        --------
        >>> Slice(7, 10).of("SELECT A.x")
        'A.x'
        """
        return text[self.start : self.stop]


Size: TypeAlias = int | str
"""A window or a memory limit: a bare number, or text with a unit."""


@dataclass(frozen=True)
class Window:
    """``WINDOW = size``, ``WINDOW (A, B) = size`` or ``BETWEEN low AND high``, ``DWINDOW (A, B) = size``."""

    offset: int
    sizes: tuple[Size, ...]
    aliases: tuple[str, ...] = ()
    """None of them for all inputs."""
    directed: bool = False
    both_ways: bool = False
    between: bool = False


@dataclass(frozen=True)
class Time:
    """A column of ``TIME``, of one input or of all."""

    offset: int
    alias: str | None
    column: str


@dataclass(frozen=True)
class Memory:
    """``WITHIN MEMORY amount [POLICY name] [SEED number] [RESULTS number]``."""

    offset: int
    amount: Size
    policy: str | None = None
    seed: int | None = None
    results: int | None = None


@dataclass(frozen=True)
class Shed:
    """``SHED HARVEST | RANDOM DROP``, and the options behind it by the names that the Python classes give them."""

    offset: int
    harvest: bool
    options: Mapping[str, Size | float] = field(default_factory=dict)


@dataclass(frozen=True)
class Extras:
    """The clauses behind FROM that are not Spark's."""

    windows: tuple[Window, ...] = ()
    times: tuple[Time, ...] = ()
    memory: Memory | None = None
    shed: Shed | None = None
    slice: Slice | None = None

    def __bool__(self) -> bool:
        return bool(self.windows or self.memory or self.shed)


@dataclass(frozen=True)
class Ordered:
    """``left order right`` behind ON: a criterion by the name of its order."""

    left: Slice
    order: str
    right: Slice
    offset: int


@dataclass(frozen=True)
class Extreme:
    """``MINIMIZE expression`` or ``MAXIMIZE expression``."""

    expression: Slice
    largest: bool


@dataclass(frozen=True)
class Agreeing:
    """``left = right`` in the list behind ON: pairs compete within each value."""

    left: Slice
    right: Slice


Criterion: TypeAlias = Ordered | Extreme | Agreeing


@dataclass(frozen=True)
class Compute:
    """What follows ``AGGREGATE JOIN relation ON condition``: aggregates by the name of their column."""

    aggregates: tuple[tuple[str, Slice], ...]
    keep: bool = True
    """Whether rows without a match come out."""


@dataclass(frozen=True)
class Near:
    """What ``NEAREST 3 JOIN relation ON distance TIES FIRST`` says beside its condition."""

    k: int = 1
    ties: str = "all"


@dataclass(frozen=True)
class Best:
    """What follows ``BESTMATCH JOIN relation``."""

    criteria: tuple[Criterion, ...]
    keep: bool = False
    """Whether rows without a candidate come out."""
