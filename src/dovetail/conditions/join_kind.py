"""Which rows a join of two inputs gives: the pairs, and the rows that have no match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from dovetail.errors import ArgumentError, choice

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Spelling = Literal[
    "outer", "full_outer", "fullouter", "left_outer", "leftouter", "right_outer", "rightouter",
    "left_semi", "leftsemi", "left_anti", "leftanti",
]  # fmt: skip
"""What Spark also calls them; any case and, between two words, a space will do as well."""

HOWS: tuple[How, ...] = ("inner", "left", "right", "full", "semi", "anti")
_WORDS: dict[str, How] = {
    **{how: how for how in HOWS},
    "outer": "full",
    "fullouter": "full",
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
}

_Word = TypeVar("_Word")


def read_how(how: _Word | str, hows: Sequence[_Word]) -> _Word:
    """The word for `how` among those that a family takes, from any spelling that Spark takes.

    What is no text is left to the family.

    Examples
    --------
    >>> read_how("LEFT_OUTER", HOWS), read_how("outer", HOWS), read_how("leftsemi", HOWS)
    ('left', 'full', 'semi')
    >>> read_how("full_outer", ("inner", "left"))
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: how='full_outer' is not a choice
      accepted: 'inner', 'left'
    """
    if not isinstance(how, str):
        return how
    folded = how.lower().replace("_", "").replace(" ", "")
    for word in hows:
        if word == _WORDS.get(folded):
            return word
    if folded == "cross":
        raise ArgumentError(
            f"how={how!r} is not a choice",
            accepted=", ".join(map(repr, hows)),
            hint="a cross join has no condition to look for: Spark's own frame.crossJoin(other) gives all pairs",
        )
    raise choice("how", how, [str(word) for word in hows])


@dataclass(frozen=True, slots=True)
class JoinKind:
    """What ``how=`` means for the two sides of a join: 0 is the left one, 1 the right one.

    Every question about ``how`` is asked here, so that no driver, stage or kernel compares strings.

    Examples
    --------
    >>> kind = JoinKind.of("left")
    >>> kind.preserved, kind.emitted, kind.optional
    ((True, False), (True, True), (False, True))
    >>> JoinKind.of("anti").pairs, JoinKind.of("anti").unmatched
    (False, True)
    """

    how: How

    @staticmethod
    def of(how: How) -> JoinKind:
        """The kind of that name."""
        return _KINDS[how]

    @property
    def pairs(self) -> bool:
        """Whether matching pairs come out; a semi or anti join only asks whether there is one."""
        return self.how not in ("semi", "anti")

    @property
    def pairs_only(self) -> bool:
        """Whether matching pairs are all that comes out."""
        return self.pairs and not self.unmatched

    @property
    def unmatched(self) -> bool:
        """Whether some rows come out that have no match."""
        return self.how not in ("inner", "semi")

    @property
    def outer(self) -> bool:
        """Whether a side may be NULL in the result."""
        return self.how in ("left", "right", "full")

    @property
    def preserved(self) -> tuple[bool, bool]:
        """Of which sides every row comes out, matched or not (an anti join gives those that have no match)."""
        return self.how in ("left", "full", "anti"), self.how in ("right", "full")

    @property
    def emitted(self) -> tuple[bool, bool]:
        """Which sides have columns in the result."""
        return True, self.pairs

    @property
    def optional(self) -> tuple[bool, bool]:
        """Which sides are NULL in the rows that have no match."""
        return self.how in ("right", "full"), self.how in ("left", "full")

    @property
    def mirrored(self) -> JoinKind:
        """The same join with its sides exchanged; semi and anti joins have no such twin."""
        return _KINDS[_MIRRORED[self.how]]


_MIRRORED: dict[How, How] = {"inner": "inner", "left": "right", "right": "left", "full": "full"}
_KINDS: dict[How, JoinKind] = {how: JoinKind(how) for how in HOWS}
