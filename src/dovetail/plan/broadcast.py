"""Which input goes to every task whole: the one that the user names, or one that Spark itself would broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dovetail.errors import ArgumentError

Broadcast: TypeAlias = str | Literal[False] | None
"""The alias of an input; False for none, and None for one that is small enough, if there is one."""


@dataclass(frozen=True)
class Small:
    """An input that goes to every task whole; `size` is Spark's estimate where that was the reason."""

    alias: str
    size: int | None = None

    @property
    def why(self) -> str:
        """The reason in words, if it needs one."""
        if self.size is None:
            return ""
        return f": Spark estimates {size_text(self.size)}, which it broadcasts as well (broadcast=False shuffles)"


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


def smallest(sizes: Mapping[str, int], among: Sequence[str]) -> Small | None:
    """The smallest of the inputs whose sizes are known; None where none is."""
    known = [alias for alias in among if alias in sizes]
    alias = min(known, key=lambda alias: sizes[alias], default=None)
    return None if alias is None else Small(alias, sizes[alias])
