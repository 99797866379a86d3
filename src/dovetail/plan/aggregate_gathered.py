"""``count(DISTINCT x)``, ``median`` and percentiles: what their arguments say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.families.aggregate.spec import Function

ACCURACY = 10_000
"""Spark's own, where ``percentile_approx`` has no third argument."""

_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?=[dDfF]?$|[bB][dD]$)")
_ARRAY = re.compile(r"array\s*\((.*)\)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Gathered:
    """A call that needs all matches of a row in one place."""

    function: Function
    argument: str
    fractions: tuple[float, ...] = ()
    error: float | None = None


def gathered_call(word: str, pieces: Sequence[str]) -> Gathered | None:
    """The call that a function and the texts of its arguments are; None for what Spark has to answer from the pairs.

    Distinct values are counted exactly where Spark may approximate: no error is within every bound on it.

    Examples
    --------
    >>> gathered_call("percentile", ["q.x", "array(0.25, 0.5D)"])
    Gathered(function='percentile', argument='q.x', fractions=(0.25, 0.5), error=None)
    >>> gathered_call("count", ["DISTINCT q.x"]).argument
    'q.x'
    >>> gathered_call("percentile", ["q.x", "t.p"]) is None
    True
    """
    if word == "count" and len(pieces) == 1:
        head, _, argument = pieces[0].partition(" ")
        if head.upper() == "DISTINCT" and argument.strip() not in ("", "*"):
            return Gathered("count_distinct", argument.strip())
        return None
    if word == "approx_count_distinct" and len(pieces) in (1, 2) and all(_number(piece) for piece in pieces[1:]):
        return Gathered("count_distinct", pieces[0])
    if word == "median" and len(pieces) == 1:
        return Gathered("percentile", pieces[0], (0.5,))
    if word == "percentile" and len(pieces) == 2:
        fractions = _fractions(pieces[1])
        return None if fractions is None else Gathered("percentile", pieces[0], fractions)
    if word in ("percentile_approx", "approx_percentile") and len(pieces) in (2, 3):
        fractions, accuracy = _fractions(pieces[1]), _number(pieces[2]) if len(pieces) == 3 else ACCURACY
        if fractions is not None and accuracy is not None and accuracy >= 1:
            return Gathered("percentile", pieces[0], fractions, 1 / accuracy)
    return None


def _number(text: str) -> float | None:
    found = _NUMBER.match(text.strip())
    return None if found is None else float(found[0])


def _fractions(text: str) -> tuple[float, ...] | None:
    """One fraction, or those of an array."""
    several = _ARRAY.fullmatch(text.strip())
    found = [_number(piece) for piece in (several[1].split(",") if several else [text])]
    good = [one for one in found if one is not None and one <= 1]
    return tuple(good) if found and len(good) == len(found) else None
