"""Which input goes to every task whole: the one that the user names, or one that Spark itself would broadcast.

Where both inputs are small, one task reads both.  That saves the stage that hands one of them to every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dovetail.errors import ArgumentError

Broadcast: TypeAlias = str | Literal[False] | None
"""The alias of an input; False for none, and None for one that is small enough, if there is one."""


ANYHOW = 64 << 10
"""Bytes of both inputs up to which one task joins them where a condition leaves the number of results open.

Many results are better formed by all tasks.
"""


@dataclass(frozen=True)
class Estimate:
    """What Spark's optimiser expects of an input: its bytes, and whether one task reads it about as fast as many."""

    size: int
    at_once: bool = False


@dataclass(frozen=True)
class Small:
    """An input that goes to every task whole; `size` is Spark's estimate where that was the reason.

    Where it is known that one task can as well read both inputs, `together` is their size.
    """

    alias: str
    size: int | None = None
    together: int | None = None

    @property
    def where(self) -> str:
        """Where the rows go, and the reason if it needs one, in words."""
        if self.together is not None:
            return f"one task reads both inputs: Spark estimates {size_text(self.together)} (broadcast=False shuffles)"
        text = f"the whole of {self.alias} goes to every task"
        if self.size is None:
            return text
        return f"{text}: Spark estimates {size_text(self.size)}, which it broadcasts as well (broadcast=False shuffles)"

    def for_results(self, *, bounded: bool) -> Small:
        """The choice once it is known whether the condition bounds the results."""
        if bounded or self.together is None or self.together <= ANYHOW:
            return self
        return replace(self, together=None)


def reads_both(small: Small | None) -> bool:
    """Whether one task reads both inputs."""
    return small is not None and small.together is not None


def size_text(size: int) -> str:
    """Bytes as people write them.

    Examples
    --------
    >>> size_text(120), size_text(3_250_586)
    ('120 B', '3.1 MiB')
    """
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def check_broadcast(broadcast: object) -> None:
    """Refuse what is neither an alias nor False."""
    if broadcast is not None and broadcast is not False and not isinstance(broadcast, str):
        raise ArgumentError(
            f"broadcast={broadcast!r}",
            accepted="the alias of a small input, or False for none",
            hint="without it an input goes to every task where Spark itself would broadcast it",
        )


def smallest(sizes: Mapping[str, Estimate], among: Sequence[str], *, both: Sequence[str] = ()) -> Small | None:
    """The smallest of the inputs whose sizes are known; None where none is.

    One task reads `both` inputs of the join if each can be read at once.

    Examples
    --------
    >>> sizes = {"a": Estimate(3_000_000, at_once=True), "b": Estimate(1_000_000, at_once=True)}
    >>> smallest(sizes, ["a", "b"])
    Small(alias='b', size=1000000, together=None)
    >>> smallest(sizes, ["a"], both=["a", "b"])
    Small(alias='a', size=3000000, together=4000000)
    """
    known = [alias for alias in among if alias in sizes]
    alias = min(known, key=lambda alias: sizes[alias].size, default=None)
    if alias is None:
        return None
    at_once = bool(both) and all(one in sizes and sizes[one].at_once for one in both)
    return Small(alias, sizes[alias].size, sum(sizes[one].size for one in both) if at_once else None)
