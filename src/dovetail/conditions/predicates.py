"""Join conditions: SQL text in, equalities, inequalities, bands, filters and the rest out.

Every expression that leaves this module is a slice of the user's own text in which only the column
references are rewritten.  A round trip through a syntax tree would change meanings (``'it''s'`` and
``x - INTERVAL 1 HOUR 30 MINUTES`` come back as something else); this way Spark sees what the user wrote.
:mod:`dovetail.conditions.tokens` reads the text, :mod:`dovetail.conditions.clauses` divides it, and this module says
what each piece is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlglot import TokenType

from dovetail.conditions.clauses import MIRRORED, Clauses, Span
from dovetail.conditions.forms import Band, Bound, Equality, Filter, Inequality, Part, Predicate, Rest, Term
from dovetail.conditions.implied import implied_ranges
from dovetail.conditions.literals import negated
from dovetail.conditions.tokens import ACCEPTED, read
from dovetail.errors import PredicateError


def parse(text: str, columns: Mapping[str, Sequence[str]]) -> Predicate:
    """Take the SQL text of a join condition apart.

    Parameters
    ----------
    text
        A condition in Spark SQL over ``alias.column``; ``column`` is enough where only one input has it.
    columns
        The column names of every input, by alias.

    Raises
    ------
    PredicateError
        If the text is no condition on rows, or a name in it is ambiguous.
    UnknownNameError
        If the text names an alias or a column that does not exist.

    Notes
    -----
    Only the outermost ANDs are taken apart; a NOT moves inward first.  ``x BETWEEN a AND b`` counts as ``x >= a AND
    x <= b``.  A difference compared with a literal is a band: a number, or an interval from weeks down to microseconds.
    Months and years have no fixed length, so a comparison with them goes to the rest, as do the
    ``DAY TO SECOND`` forms.

    Examples
    --------
    >>> p = parse("a.k = B.k AND B.v > A.v + 1 AND ABS(A.t - B.t) <= INTERVAL 10 MINUTES AND A.v <> 0",
    ...           {"A": ["k", "v", "t"], "B": ["k", "v", "t"]})
    >>> print(p)
    equality    A.k = B.k
    inequality  A.v + 1 < B.v
    band        A.t - B.t >= INTERVAL '-600' SECOND AND A.t - B.t <= INTERVAL '600' SECOND
    filter A    A.v <> 0
    >>> p.equalities
    (Equality(left=Term(alias='A', sql='`A`.`k`'), right=Term(alias='B', sql='`B`.`k`'), null_safe=False),)
    """
    if not isinstance(text, str):
        raise PredicateError(f"on={text!r} is not SQL text", accepted=ACCEPTED)
    clauses = Clauses(read(text, columns))
    parts = list(dict.fromkeys(part for span in clauses.conjuncts() for part in _classified(clauses, span)))
    # TRUE decides nothing, and no input has to wait for Spark to say so.
    parts = [part for part in parts if not (isinstance(part, Rest) and part.sql.strip("() ").upper() == "TRUE")]
    bands = [part for part in parts if isinstance(part, Band)]
    return replace(Predicate.of(parts), text=text, bands=_merged(bands))


# --- classifying conjuncts -----------------------------------------------------------------------------------


def _classified(clauses: Clauses, span: Span, *, denied: bool = False) -> list[Part]:
    """The parts of a condition, or of its negation; NULL stays NULL, so De Morgan's laws hold in SQL, too."""
    either, each = clauses.any_of(span), clauses.all_of(span)
    if not either and not each:
        behind = clauses.behind_not(span)
        if behind is not None:
            return _classified(clauses, behind, denied=not denied)
    if each if not denied else either:
        return [part for one in each or either for part in _classified(clauses, one, denied=denied)]
    sql = f"NOT ({clauses.sql(span)})" if denied else clauses.sql(span)
    as_it_is = _filter_or_rest(sql, clauses.aliases(span))
    if not isinstance(as_it_is, Rest) or not as_it_is.aliases:
        return [as_it_is]
    if either or each:
        texts = [clauses.sql(one) for one in either or each]
        return [replace(as_it_is, either=tuple(f"NOT ({text})" if denied else text for text in texts))]
    return _comparison(clauses, span, as_it_is, denied=denied)


def _comparison(clauses: Clauses, span: Span, as_it_is: Rest, *, denied: bool) -> list[Part]:
    """The parts of a condition without AND, OR and NOT around it."""
    found = clauses.comparisons(span)
    loose, kinds = [at for at, _ in found], [kind for _, kind in found]
    if len(kinds) == 3 and kinds[0] is TokenType.NOT and kinds[1:] == _BETWEEN:
        # x NOT BETWEEN a AND b
        return _between(clauses, Span(span.start, loose[0]), loose[1], loose[2], span.stop, as_it_is, denied=not denied)
    if kinds == _BETWEEN:
        return _between(clauses, Span(span.start, loose[0]), loose[0], loose[1], span.stop, as_it_is, denied=denied)
    if len(kinds) == 1 and kinds[0] in _DENIED:
        kind = _DENIED[kinds[0]] if denied else kinds[0]
        if kind in MIRRORED:
            return [_compared(clauses, Span(span.start, loose[0]), kind, Span(loose[0] + 1, span.stop), as_it_is)]
    if kinds == ([TokenType.NOT, TokenType.IN] if denied else [TokenType.IN]):
        return [_one_of(clauses, Span(span.start, loose[0]), Span(loose[-1] + 1, span.stop), as_it_is)]
    sides = clauses.distinct_from(span)
    if kinds == [TokenType.NULLSAFE_EQ]:
        sides = Span(span.start, loose[0]), Span(loose[0] + 1, span.stop)
    if sides is not None and not denied and all(len(clauses.aliases(side)) == 1 for side in sides):
        left, right = (_term(clauses, side) for side in sides)
        return [Equality(left, right, null_safe=True)]
    return [as_it_is]


_BETWEEN = [TokenType.BETWEEN, TokenType.AND]
_DENIED = {
    TokenType.LT: TokenType.GTE, TokenType.LTE: TokenType.GT, TokenType.GT: TokenType.LTE, TokenType.GTE: TokenType.LT,
    TokenType.EQ: TokenType.NEQ, TokenType.NEQ: TokenType.EQ,
}  # fmt: skip
"""What holds where a comparison does not, and is not NULL."""


def _between(
    clauses: Clauses, middle: Span, low: int, high: int, stop: int, as_it_is: Rest, *, denied: bool
) -> list[Part]:
    """``middle BETWEEN a AND b``, whose keywords are the items `low` and `high`, or its negation."""
    text, bounds = clauses.sql(middle), (Span(low + 1, high), Span(high + 1, stop))
    if denied:
        outside = zip(bounds, ("<", ">"), strict=True)
        return [replace(as_it_is, either=tuple(f"{text} {sign} {clauses.sql(bound)}" for bound, sign in outside))]
    halves: list[Part] = []
    for bound, kind, sign in zip(bounds, (TokenType.GTE, TokenType.LTE), (">=", "<="), strict=True):
        half = _filter_or_rest(f"{text} {sign} {clauses.sql(bound)}", clauses.aliases(middle) | clauses.aliases(bound))
        halves.append(_compared(clauses, middle, kind, bound, half))
    # Nothing is gained by a half that no algorithm can use: then the text stays as it is.
    if all(isinstance(half, Rest) for half in halves):
        implied = tuple(one for half in halves if isinstance(half, Rest) for one in half.implied)
        return [replace(as_it_is, implied=implied)]
    return halves


def _one_of(clauses: Clauses, value: Span, listed: Span, as_it_is: Rest) -> Rest:
    """``value IN (...)``: equal to one of several."""
    elements = clauses.listed(listed)
    if elements is None:
        return as_it_is
    text, texts = clauses.sql(value), list(dict.fromkeys(clauses.sql(element) for element in elements))
    either = tuple(f"({text}) = ({one})" for one in texts)
    return replace(as_it_is, either=either, alike=(text, *texts))


def _compared(clauses: Clauses, left: Span, kind: TokenType, right: Span, as_it_is: Filter | Rest) -> Part:
    """The part that `left kind right` is; `as_it_is` where no algorithm can use it."""
    sides = clauses.aliases(left), clauses.aliases(right)
    if isinstance(as_it_is, Filter) or len(as_it_is.aliases) != 2:
        return as_it_is
    if all(len(side) == 1 for side in sides):
        a, b = _term(clauses, left), _term(clauses, right)
        if kind is TokenType.EQ:
            return Equality(a, b)
        small, large = (a, b) if kind in (TokenType.LT, TokenType.LTE) else (b, a)
        return Inequality(small, large, strict=kind in (TokenType.LT, TokenType.GT))
    band = None
    if not sides[1]:
        band = _band(clauses, left, kind, right)
    elif not sides[0]:
        band = _band(clauses, right, MIRRORED[kind], left)
    return band or replace(as_it_is, implied=implied_ranges(clauses, left, kind, right))


def _band(clauses: Clauses, span: Span, kind: TokenType, literal: Span) -> Band | None:
    value = clauses.value(literal)
    if value is None:
        return None
    absolute = clauses.inside_abs(span)
    sides = clauses.difference(span if absolute is None else absolute)
    if sides is None:
        return None
    inputs = [clauses.aliases(side) for side in sides]
    if inputs[0] == inputs[1] or any(len(aliases) != 1 for aliases in inputs):
        return None
    left, right = (_term(clauses, side) for side in sides)
    below, end = kind in (TokenType.LT, TokenType.LTE), Bound(value, kind in (TokenType.LT, TokenType.GT))
    if absolute is not None:
        return Band(left, right, _turned(end), end) if below else None
    return Band(
        left,
        right,
        low=None if below else end,
        high=None if kind in (TokenType.GT, TokenType.GTE) else end,
    )


def _term(clauses: Clauses, span: Span) -> Term:
    (alias,) = clauses.aliases(span)
    return Term(alias, clauses.sql(clauses.bare(span)))


def _filter_or_rest(sql: str, aliases: frozenset[str]) -> Filter | Rest:
    return Filter(next(iter(aliases)), sql) if len(aliases) == 1 else Rest(sql, aliases)


# --- bands -----------------------------------------------------------------------------------------------


def _merged(bands: list[Band]) -> tuple[Band, ...]:
    """Bands over the same two terms as one band, where that is the same condition."""
    kept: list[Band] = []
    for band in bands:
        for at, other in enumerate(kept):
            both = _both(other, band)
            if both is not None:
                kept[at] = both
                break
        else:
            kept.append(band)
    return tuple(kept)


def _both(one: Band, two: Band) -> Band | None:
    if (one.left, one.right) == (two.right, two.left):
        # b - a is the negative of a - b but for NaN, which exceeds every bound in both.  Turning is therefore
        # sound if NaN fails both before and after, that is, if both have an upper end.
        if one.high is None or two.high is None:
            return None
        two = Band(two.right, two.left, _turned(two.high), _turned(two.low))
    if (one.left, one.right) != (two.left, two.right):
        return None
    ends = [end.value for end in (one.low, one.high, two.low, two.high) if end is not None]
    if len({isinstance(value, timedelta) for value in ends}) > 1:
        return None
    if not (_comparable(one.low, two.low) and _comparable(one.high, two.high)):
        return None
    return Band(one.left, one.right, _tighter(one.low, two.low, max), _tighter(one.high, two.high, min))


def _comparable(one: Bound | None, two: Bound | None) -> bool:
    """Whether the tighter of two ends is known without knowing the type that Spark compares them in.

    A conversion can make different literals equal but cannot change their order.  Where both ends are
    strict, or neither is, the order of the literals therefore decides.
    """
    return one is None or two is None or one.strict == two.strict


def _tighter(one: Bound | None, two: Bound | None, pick: Callable[..., Bound]) -> Bound | None:
    if one is None or two is None:
        return one or two
    return pick(one, two, key=lambda end: end.value)


def _turned(end: Bound | None) -> Bound | None:
    return None if end is None else Bound(negated(end.value), end.strict)
