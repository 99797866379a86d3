"""What stored state says about itself: the format it is in, and which join wrote it.

Every cell of a streaming join stores a header with its segments, once.  A query that is started on a checkpoint of
another version or of another join finds the header of that one, and says so instead of reading rows that mean
something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.errors import CheckpointError

FORMAT = 2
"""Version of what stored state looks like; a reader refuses any other."""

_LONG = 200
"""Longer texts, such as the columns of a wide table, are cut, and a hash represents the rest."""


@dataclass(frozen=True)
class CheckpointHeader:
    """What identifies a join in its checkpoint: its parts in words, such as ``{"window": "10 rows"}``.

    Only what stored rows depend on is a part.  Lateness, the pace of load shedding or the algorithm may change from one
    run to the next.

    Examples
    --------
    >>> header = CheckpointHeader.of({"inputs": "A, B", "window": "10 rows"})
    >>> header.check(header.stored())
    >>> header.check(CheckpointHeader.of({"inputs": "A, B", "window": "20 rows"}).stored())
    Traceback (most recent call last):
    dovetail.errors.CheckpointError: the checkpoint belongs to another join: the window was '20 rows' and is '10 rows'
      accepted: the join that wrote the checkpoint
      hint: take the change back, or start this join from a new checkpoint
    >>> header.check(b'{"format": 99}')
    Traceback (most recent call last):
    dovetail.errors.CheckpointError: the checkpoint holds state of format 99; this version of Dovetail reads format 2
      accepted: a checkpoint of format 2
      hint: run the query with the version of Dovetail that wrote it, or start from a new checkpoint
    """

    parts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> CheckpointHeader:
        """The header of a join with these parts."""
        return cls(tuple((name, _short(text)) for name, text in parts.items()))

    def stored(self) -> bytes:
        """What a cell stores."""
        return json.dumps({"format": FORMAT, "join": dict(self.parts)}).encode()

    def check(self, stored: bytes | None) -> None:
        """Refuse state with another header, or with none."""
        if stored == self.stored():
            return
        about = _read(stored)
        if about.get("format") != FORMAT:
            raise CheckpointError(
                f"the checkpoint holds state of format {about.get('format')}; "
                f"this version of Dovetail reads format {FORMAT}",
                accepted=f"a checkpoint of format {FORMAT}",
                hint="run the query with the version of Dovetail that wrote it, or start from a new checkpoint",
            )
        before, now = about.get("join"), dict(self.parts)
        differences = _differences(before if isinstance(before, dict) else {}, now)
        if differences:
            raise CheckpointError(
                f"the checkpoint belongs to another join: {'; '.join(differences)}",
                accepted="the join that wrote the checkpoint",
                hint="take the change back, or start this join from a new checkpoint",
            )


def _read(stored: bytes | None) -> dict[str, object]:
    """A header as it was stored; anything else is no format we know."""
    if stored is None:
        return {"format": 0}
    try:
        about = json.loads(stored)
    except ValueError:
        return {"format": repr(stored[:40])}
    return about if isinstance(about, dict) else {"format": about}


def _differences(before: Mapping[str, object], now: Mapping[str, str]) -> list[str]:
    kinds = (before.get("join"), now.get("join"))
    if kinds[0] != kinds[1]:
        # All else differs too, and would only hide it.
        return [f"it was {kinds[0]} and is {kinds[1]}"]
    return [
        f"the {name} was {_quoted(before.get(name))} and is {_quoted(now.get(name))}"
        for name in [*now, *(name for name in before if name not in now)]
        if before.get(name) != now.get(name)
    ]


def _quoted(text: object) -> str:
    return "not given" if text in (None, "") else repr(text)


def _short(text: str) -> str:
    if len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}... ({hashlib.sha256(text.encode()).hexdigest()[:16]})"
