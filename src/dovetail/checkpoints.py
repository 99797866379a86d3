"""What stored state says about itself: the format it is in, and which join wrote it.

Every cell of a streaming join stores a header with its segments, once.  A query that is started on a checkpoint of
another version or of another join finds the header of that one, and says so instead of reading rows that mean
something else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.conditions.durations import in_words
from dovetail.errors import CheckpointError
from dovetail.inventory import StateLayout

FORMAT = 2
"""Version of what stored state looks like; a reader refuses any other."""

SEGMENTS_STATE = "segments"
"""The name of the state in which a cell keeps its segments by their names."""
HEADER = "format"
"""The name under which it keeps the header."""

CHANGEABLE = (
    "a window join", "a theta join in windows", "an as-of join", "an aggregate join", "a nearest join",
)  # fmt: skip
"""Joins that can take over the rows of another definition of them; some changes are refused all the same."""
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
    layout: StateLayout | None = None
    """What the state looks like, for whoever reads it without the join.  It identifies nothing: lateness is in it."""

    @classmethod
    def of(cls, parts: Mapping[str, str], layout: StateLayout | None = None) -> CheckpointHeader:
        """The header of a join with these parts."""
        return cls(tuple((name, _short(text)) for name, text in parts.items()), layout)

    def stored(self) -> bytes:
        """What a cell stores."""
        about: dict[str, object] = {"format": FORMAT, "join": dict(self.parts)}
        if self.layout is not None:
            about["layout"] = self.layout.stored()
        return json.dumps(about).encode()

    @classmethod
    def read(cls, stored: bytes) -> CheckpointHeader:
        """A stored header of the present format; refuses any other."""
        about = _read(stored)
        _check_format(about)
        join = about.get("join")
        parts = tuple((str(name), str(text)) for name, text in join.items()) if isinstance(join, dict) else ()
        return cls(parts, StateLayout.read(about.get("layout")))

    def check(self, stored: bytes | None) -> None:
        """Refuse state with another header, or with none."""
        if stored == self.stored():
            return
        about = _read(stored)
        _check_format(about)
        before, now = about.get("join"), dict(self.parts)
        found = differences(before if isinstance(before, dict) else {}, now)
        if found:
            carried = isinstance(before, dict) and _may_change(before, now)
            way = (
                "; dt.resume(frame, old, new) makes one from the rows that are held, and for a job file "
                "dovetail migrate OLD NEW --job JOB"
            )
            raise CheckpointError(
                f"the checkpoint belongs to another join: {'; '.join(found)}",
                accepted="the join that wrote the checkpoint",
                hint="take the change back, or start this join from a new checkpoint" + (way if carried else ""),
            )


def _may_change(before: Mapping[str, object], now: Mapping[str, str]) -> bool:
    """Whether one join may take over the rows of the other, as far as the kinds of both tell."""
    counted = any(str(parts.get("window", "")).endswith(" rows") for parts in (before, now))
    return before.get("join") == now.get("join") in CHANGEABLE and not counted


def check_headers(expected: Sequence[CheckpointHeader], stored: Sequence[bytes]) -> None:
    """Refuse the headers of a whole query, which may have several joins.

    Headers that are equal belong together, whatever their order; the first that has no equal is compared with the first
    that is left.  A query with more or fewer joins than before is Spark's to refuse.

    Examples
    --------
    >>> a, b, c = (CheckpointHeader.of({"join": "a theta join in windows", "window": f"{n} rows"}) for n in (1, 2, 3))
    >>> check_headers([a, b], [b.stored(), a.stored()])
    >>> check_headers([a, c], [b.stored(), a.stored()])
    Traceback (most recent call last):
    dovetail.errors.CheckpointError: the checkpoint belongs to another join: the window was '2 rows' and is '3 rows'
      accepted: the join that wrote the checkpoint
      hint: take the change back, or start this join from a new checkpoint
    """
    known = [json.loads(header.stored()).get("join") for header in expected]
    found = [_read(one).get("join") for one in stored]
    changed = [header for header, join in zip(expected, known, strict=True) if join not in found]
    others = [one for one, join in zip(stored, found, strict=True) if join not in known]
    for header, other in zip(changed, others, strict=False):
        header.check(other)
    for one in stored:
        _check_format(_read(one))


def _check_format(about: Mapping[str, object]) -> None:
    if about.get("format") != FORMAT:
        raise CheckpointError(
            f"the checkpoint holds state of format {about.get('format')}; "
            f"this version of Dovetail reads format {FORMAT}",
            accepted=f"a checkpoint of format {FORMAT}",
            hint="run the query with the version of Dovetail that wrote it, or start from a new checkpoint",
        )


def _read(stored: bytes | None) -> dict[str, object]:
    """A header as it was stored; anything else is no format we know."""
    if stored is None:
        return {"format": 0}
    try:
        about = json.loads(stored)
    except (ValueError, RecursionError):
        return {"format": repr(stored[:40])}
    return about if isinstance(about, dict) else {"format": about}


def differences(before: Mapping[str, object], now: Mapping[str, str]) -> list[str]:
    """What differs between the parts of two joins, in words."""
    kinds = (before.get("join"), now.get("join"))
    if kinds[0] != kinds[1]:
        # All else differs too, and would only hide it.
        return [f"it was {kinds[0]} and is {kinds[1]}"]
    return [
        f"the {name} was {_quoted(name, before)} and is {_quoted(name, now)}"
        for name in [*now, *(name for name in before if name not in now)]
        if before.get(name) != now.get(name)
    ]


def _quoted(name: str, parts: Mapping[str, object]) -> str:
    text = parts.get(name)
    if text in (None, ""):
        return "not given"
    said = str(text)
    if name == "tolerance" and said.lstrip("-").isdigit() and _has_timestamps(parts):
        return repr(in_words(int(said)))
    return repr(_spoken(said))


_SPAN = re.compile(
    r"(?P<other>[^,]+?) (?P<low>-?\d+) to (?P<high>-?\d+)(?P<unit> microseconds)? after (?P<one>[^,]+?)(?=, | or |$)"
)
_LENGTH = re.compile(r"(?P<length>\d+) microseconds(?P<old> old, every (?P<every>\d+)$)?")


def _spoken(text: str) -> str:
    """Stored lengths of time as people write them.  What is stored are numbers, spelled the same in every version.

    Examples
    --------
    >>> _spoken("B -10000000 to 10000000 microseconds after A"), _spoken("B 0 to 5 after A")
    ('A and B at most 10 seconds apart', 'B at most 5 after A')
    >>> _spoken("60000000 microseconds"), _spoken("5 rows")
    ('1 minute', '5 rows')
    """
    return _LENGTH.sub(_length, _SPAN.sub(_span, text))


def _span(match: re.Match[str]) -> str:
    low, high, one, other = int(match["low"]), int(match["high"]), match["one"], match["other"]

    def length(value: int) -> str:
        return in_words(value) if match["unit"] else str(value)

    if low == -high:
        return f"{one} and {other} at most {length(high)} apart"
    if low == 0:
        return f"{other} at most {length(high)} after {one}"
    if high == 0:
        return f"{one} at most {length(-low)} after {other}"
    return f"{other} from {length(low)} to {length(high)} after {one}"


def _length(match: re.Match[str]) -> str:
    every = f" old, every {in_words(int(match['every']))}" if match["old"] else ""
    return in_words(int(match["length"])) + every


def _has_timestamps(parts: Mapping[str, object]) -> bool:
    """Whether the time columns of a join are timestamps, which count in microseconds."""
    columns = [str(text) for name, text in parts.items() if name.startswith("columns of ")]
    times = str(parts.get("time", "")).split(", ")
    found = [
        re.search(rf"(?:^|, ){re.escape(time)} timestamp", text) for time, text in zip(times, columns, strict=False)
    ]
    return bool(found) and all(found)


def _short(text: str) -> str:
    if len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}... ({hashlib.sha256(text.encode()).hexdigest()[:16]})"
