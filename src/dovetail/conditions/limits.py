"""How much a join may hold: the argument ``memory=``, which means the same everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from dovetail.errors import ArgumentError, is_whole

_UNITS = {"b": 1, "byte": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
MEMORY = "a number of rows such as 10_000, or a size such as '64 MB'"


@dataclass(frozen=True)
class Limit:
    """How much a join may hold: so many rows, or so many bytes of rows."""

    amount: int
    unit: Literal["rows", "bytes"] = "rows"

    def __str__(self) -> str:
        return f"{self.amount:,} {self.unit}"

    def rows(self, count: int, size: int) -> int:
        """How many rows may be held, at least one, where `count` rows take `size` bytes.

        Examples
        --------
        >>> Limit(100).rows(10, 800), Limit(100, "bytes").rows(10, 250), Limit(1, "bytes").rows(10, 250)
        (100, 4, 1)
        """
        return self.amount if self.unit == "rows" or not size else max(1, self.amount * count // size)


def memory_limit(value: int | str) -> Limit:
    """Read the argument ``memory=``.

    Examples
    --------
    >>> memory_limit(10_000)
    Limit(amount=10000, unit='rows')
    >>> memory_limit("64 MB")
    Limit(amount=64000000, unit='bytes')
    >>> memory_limit("64 apples")
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: memory='64 apples' is not an amount of memory
      accepted: a number of rows such as 10_000, or a size such as '64 MB'
      hint: units: B, KB, MB, GB, KiB, MiB, GiB
    """
    given = f"memory={value!r}"
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        unit = (
            _UNITS.get(match[2].lower().removesuffix("s") if len(match[2]) > 2 else match[2].lower()) if match else None
        )
        if match is None or unit is None:
            raise ArgumentError(
                f"{given} is not an amount of memory", accepted=MEMORY, hint="units: B, KB, MB, GB, KiB, MiB, GiB"
            )
        size = int(Decimal(match[1]) * unit)
        if size < 1:
            raise ArgumentError(f"{given} is no memory at all", accepted=MEMORY)
        return Limit(size, "bytes")
    if not is_whole(value):
        raise ArgumentError(given, accepted=MEMORY)
    return Limit(value)
