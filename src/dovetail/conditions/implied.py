"""Ranges that a comparison implies, whatever its form: tolerances by row, sums across inputs, distances.

``ABS(A.x - B.x) <= B.r`` cannot be evaluated on one input, and yet it is a range of ``A.x`` for each row of B.  What
leaves this module is a necessary condition only, which narrows the search; Spark evaluates the comparison itself on
what the search finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from sqlglot import TokenType

from dovetail.conditions.clauses import MIRRORED, Clauses, Span
from dovetail.conditions.forms import Addend, Band, Bound, Separable, Term

TINY = "1E-22D"
"""Larger than what is lost where the square of a float is too small to be represented."""
ROUNDED = 1e-5
"""More than squares and roots of 32-bit floats lose in rounding."""

_ABOVE = (TokenType.GT, TokenType.GTE)
_Sum = list[tuple[Span, bool]]


def implied_ranges(clauses: Clauses, left: Span, kind: TokenType, right: Span) -> tuple[Separable | Band, ...]:
    """The ranges that ``left kind right`` implies, over two inputs; none where nothing is known.

    Examples
    --------
    >>> from dovetail.conditions.tokens import read
    >>> text = "ABS(A.x - B.x) <= B.r"
    >>> clauses = Clauses(read(text, {"A": ["x"], "B": ["x", "r"]}))
    >>> for one in implied_ranges(clauses, Span(0, 6), TokenType.LTE, Span(7, 8)):
    ...     print([("-" if a.negative else "+") + str(a.term) for a in one.small], [str(a.term) for a in one.large])
    ['+A.x', '-B.x'] ['B.r']
    ['-A.x', '+B.x'] ['B.r']
    """
    if kind in _ABOVE:
        left, kind, right = right, MIRRORED[kind], left
    strict = kind is TokenType.LT
    bands = list(_bands(clauses, left, right))
    if bands:
        return tuple(bands)
    pairs = list(_distances(clauses, left, right))
    if not pairs and kind is TokenType.EQ:
        pairs = list(_distances(clauses, right, left))
    if not pairs:
        small, large = clauses.addends(left), clauses.addends(right)
        if small is not None and large is not None:
            pairs.append((_terms(clauses, small), _terms(clauses, large)))
            if kind is TokenType.EQ:
                pairs.append((pairs[0][1], pairs[0][0]))
    found = (_placed(small, large, strict=strict) for small, large in pairs)
    return tuple(one for one in found if one is not None)


def _bands(clauses: Clauses, left: Span, right: Span) -> Iterator[Band]:
    """The band on each axis of a distance that is at most a number."""
    root = _number(clauses.value(right))
    arguments, hypot = clauses.call(left, "sqrt"), clauses.call(left, "hypot")
    if hypot is not None and len(hypot) == 2:
        differences = hypot
    elif arguments is not None and len(arguments) == 1:
        differences = _squares(clauses, arguments[0])
    else:
        differences = _squares(clauses, left)
        squared = clauses.squared(right)
        root = root**0.5 if root is not None and root >= 0 else None
        if squared is not None:
            root = _number(clauses.value(squared))
    if root is None:
        return
    bound = Bound(abs(root) * (1 + ROUNDED) + float(TINY[:-1]), strict=False)
    for difference in differences:
        sides = clauses.difference(difference)
        if sides is not None and [len(clauses.aliases(side)) for side in sides] == [1, 1]:
            terms = [_term(clauses, side) for side in sides]
            if terms[0].alias != terms[1].alias:
                yield Band(terms[0], terms[1], Bound(-bound.value, strict=False), bound)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | Decimal) else None


def _distances(clauses: Clauses, left: Span, right: Span) -> Iterator[tuple[list[Addend], list[Addend]]]:
    """The two sides of ``d <= r`` and ``-d <= r`` for each difference d of a distance of at most r."""
    differences, bound = _absolute(clauses, left, right)
    for difference in differences:
        sums = clauses.addends(difference)
        # A difference within one input says nothing about the other.
        if sums is None or bound is None or len(clauses.aliases(difference)) != 2:
            continue
        small = _terms(clauses, sums)
        yield small, bound
        yield [addend.negated() for addend in small], bound


def _absolute(clauses: Clauses, left: Span, right: Span) -> tuple[Sequence[Span], list[Addend] | None]:
    """Expressions of which each is at most the bound, whatever its sign, where `left` is at most `right`."""
    linear = clauses.addends(right)
    bound = None if linear is None else _terms(clauses, linear)
    inside = clauses.inside_abs(left)
    if inside is not None:
        return [inside], bound
    arguments = clauses.call(left, "hypot")
    if arguments is not None and len(arguments) == 2:
        return arguments, bound
    arguments = clauses.call(left, "sqrt")
    if arguments is not None and len(arguments) == 1:
        roots = _squares(clauses, arguments[0])
        # Squares that vanish leave a distance of zero.
        return roots, None if bound is None else [*bound, Addend(Term("", TINY))]
    return _squares(clauses, left), _root(clauses, right)


def _squares(clauses: Clauses, span: Span) -> list[Span]:
    """What is squared in a sum of squares; nothing where another term might be negative."""
    summands = clauses.summands(span)
    roots = [clauses.squared(one) for one in summands or ()]
    return [] if None in roots else [root for root in roots if root is not None]


def _root(clauses: Clauses, span: Span) -> list[Addend] | None:
    """A sum that is at least the square root of a term."""
    squared = clauses.squared(span)
    sums = None if squared is None else clauses.addends(squared)
    if sums is not None:
        # The absolute value of a sum is at most the sum of the absolute values.
        sums_of = [Addend(_changed(addend.term, "ABS({})")) for addend in _terms(clauses, sums)]
        return [*sums_of, Addend(Term("", TINY))]
    if len(clauses.aliases(span)) > 1:
        return None
    root = _changed(_term(clauses, span), "SQRT(GREATEST(CAST(({}) AS DOUBLE), 0D))")
    return [Addend(root), Addend(Term("", TINY))]


def _changed(term: Term, form: str) -> Term:
    return Term(term.alias, form.format(term.sql))


def _terms(clauses: Clauses, addends: _Sum) -> list[Addend]:
    return [Addend(_term(clauses, span), negative) for span, negative in addends]


def _term(clauses: Clauses, span: Span) -> Term:
    """A term, over no input where it is a constant."""
    return Term(next(iter(clauses.aliases(span)), ""), clauses.sql(clauses.bare(span)))


def _placed(small: Sequence[Addend], large: Sequence[Addend], *, strict: bool) -> Separable | None:
    """Two sums over two inputs, each constant with the input that has more terms; None for other numbers of inputs."""
    aliases = [addend.term.alias for addend in (*small, *large) if addend.term.alias]
    inputs = list(dict.fromkeys(aliases))
    if len(inputs) != 2:
        return None
    home = max(reversed(inputs), key=aliases.count)

    def placed(addends: Sequence[Addend]) -> tuple[Addend, ...]:
        return tuple(Addend(Term(a.term.alias or home, a.term.sql), a.negative) for a in addends)

    return Separable(placed(small), placed(large), strict)
