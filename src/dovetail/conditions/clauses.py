"""How the brackets, keywords and operators of a join condition divide it.

Taking a condition apart needs no syntax tree: tokens and their nesting suffice, and with them every clause
stays a slice of the text that the user wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import TokenType

from dovetail.conditions.literals import Value, interval, number
from dovetail.conditions.tokens import Item

MIRRORED = {
    TokenType.EQ: TokenType.EQ,
    TokenType.LT: TokenType.GT,
    TokenType.LTE: TokenType.GTE,
    TokenType.GT: TokenType.LT,
    TokenType.GTE: TokenType.LTE,
}
"""The comparisons that an algorithm can use, and what each becomes when its sides change places."""


def _kinds(names: str) -> frozenset[TokenType]:
    return frozenset(TokenType[name] for name in names.split())


# What binds no tighter than a comparison in Spark's grammar.  Where one of these is on the same level as a comparison,
# the text on the comparison's two sides is not its two operands.
_LOOSE = _kinds("NEQ NULLSAFE_EQ NOT AND OR BETWEEN IN IS LIKE ILIKE RLIKE")
# What binds no tighter than a minus (the concatenation sign binds alike), or separates arguments.
_LOOSER_THAN_MINUS = _LOOSE.union(MIRRORED, _kinds("DPIPE AMP PIPE CARET COMMA ARROW"))
_PRODUCTS = _kinds("STAR SLASH MOD DIV")
_BEFORE_AN_OPERAND = _kinds("PLUS DASH STAR SLASH MOD DIV TILDE INTERVAL")
_CLOSING = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
    TokenType.L_BRACE: TokenType.R_BRACE,
    TokenType.CASE: TokenType.END,
}


class Span(NamedTuple):
    """The items from `start` up to, not including, `stop`."""

    start: int
    stop: int


class Clauses:
    """The items of a condition with their nesting.

    Examples
    --------
    >>> from dovetail.conditions.tokens import read
    >>> clauses = Clauses(read("(A.x < 1 AND A.x BETWEEN 2 AND 3)", {"A": ["x"]}))
    >>> [clauses.sql(span) for span in clauses.conjuncts()]
    ['`A`.`x` < 1', '`A`.`x` BETWEEN 2 AND 3']
    """

    def __init__(self, items: list[Item]) -> None:
        self._items = items
        self._close: dict[int, int] = {}
        self._depth: list[int] = []
        stack: list[int] = []
        for at, item in enumerate(items):
            # END closes a CASE; elsewhere it is a name.
            if stack and item.kind is _CLOSING[items[stack[-1]].kind]:
                self._close[stack.pop()] = at
            self._depth.append(len(stack))
            if item.kind in _CLOSING:
                stack.append(at)

    def conjuncts(self) -> Iterator[Span]:
        """The conditions that the outermost ANDs join, in the order of the text."""
        pending = [self.bare(Span(0, len(self._items)))]
        while pending:
            span = pending.pop()
            parts = self.all_of(span)
            if parts:
                pending.extend(reversed(parts))
            else:
                yield span

    def all_of(self, span: Span) -> list[Span]:
        """The conditions that the outermost ANDs of a span join; none where it has no such AND."""
        return [] if self._positions(span, TokenType.OR) else self._cut(span, self._ands(span))

    def any_of(self, span: Span) -> list[Span]:
        """The conditions that the outermost ORs of a span join; none where it has no OR."""
        return self._cut(span, self._positions(span, TokenType.OR))

    def _cut(self, span: Span, cuts: list[int]) -> list[Span]:
        ends = list(zip([span.start, *(cut + 1 for cut in cuts)], [*cuts, span.stop], strict=True))
        # Spark also knows functions and(...) and or(...).
        if not cuts or any(start == stop for start, stop in ends):
            return []
        return [self.bare(Span(*both)) for both in ends]

    def behind_not(self, span: Span) -> Span | None:
        """What a NOT in front of a span without AND and OR denies; None where there is none."""
        leads = self._items[span.start].kind is TokenType.NOT and span.stop - span.start > 1
        return self.bare(Span(span.start + 1, span.stop)) if leads else None

    def distinct_from(self, span: Span) -> tuple[Span, Span] | None:
        """The two sides where the span is ``x IS NOT DISTINCT FROM y``, else None."""
        at = next((at for at, kind in self.comparisons(span) if kind is TokenType.IS), None)
        words = [item.sql.upper() for item in self._items[at or 0 : (at or 0) + 4]]
        if at is None or words != ["IS", "NOT", "DISTINCT", "FROM"] or len(self.comparisons(span)) != 2:
            return None
        return Span(span.start, at), Span(at + 4, span.stop)

    def listed(self, span: Span) -> list[Span] | None:
        """The elements where the span is a list in parentheses, as behind IN; None for anything else.

        Examples
        --------
        >>> from dovetail.conditions.tokens import read
        >>> clauses = Clauses(read("(A.x, (A.y + 1))", {"A": ["x", "y"]}))
        >>> [clauses.sql(element) for element in clauses.listed(Span(0, 9))]
        ['`A`.`x`', '`A`.`y` + 1']
        """
        start, stop = span
        if self._items[start].kind is not TokenType.L_PAREN or self._close.get(start) != stop - 1:
            return None
        if stop - start < 3 or self._items[start + 1].kind in (TokenType.SELECT, TokenType.WITH):
            return None
        return [self.bare(one) for one in self._between_commas(Span(start + 1, stop - 1))]

    def _between_commas(self, span: Span) -> list[Span]:
        commas = self._positions(span, TokenType.COMMA)
        return [
            Span(*ends) for ends in zip([span.start, *(at + 1 for at in commas)], [*commas, span.stop], strict=True)
        ]

    def _ands(self, span: Span) -> list[int]:
        """The ANDs that join conditions, without those that belong to a BETWEEN."""
        cuts, betweens = [], 0
        for at in self._positions(span, TokenType.AND, TokenType.BETWEEN):
            if self._items[at].kind is TokenType.BETWEEN:
                betweens += 1
            elif betweens:
                betweens -= 1
            else:
                cuts.append(at)
        return cuts

    def comparisons(self, span: Span) -> list[tuple[int, TokenType]]:
        """The positions of the span's outermost comparisons, and of everything else that binds no tighter."""
        return [(at, self._items[at].kind) for at in self._positions(span, *_LOOSE, *MIRRORED)]

    def inside_abs(self, span: Span) -> Span | None:
        """The argument where the span is exactly one call of ``abs``, else None."""
        arguments = self.call(span, "abs")
        return arguments[0] if arguments is not None and len(arguments) == 1 else None

    def difference(self, span: Span) -> tuple[Span, Span] | None:
        """The two sides of the span's outermost minus; None where another operator is outermost."""
        span = self.bare(span)
        if self._positions(span, *_LOOSER_THAN_MINUS):
            return None
        # Plus and minus group from the left, so the last one is the outermost.
        signs = self._signs(span)
        if not signs or self._items[signs[-1]].kind is not TokenType.DASH:
            return None
        return Span(span.start, signs[-1]), Span(signs[-1] + 1, span.stop)

    def addends(self, span: Span) -> list[tuple[Span, bool]] | None:
        """The terms whose sum the span is, each over at most one input, and whether it is subtracted; None for no sum.

        Examples
        --------
        >>> from dovetail.conditions.tokens import read
        >>> clauses = Clauses(read("A.x - (B.x - 2 * B.y)", {"A": ["x"], "B": ["x", "y"]}))
        >>> [(clauses.sql(term), negative) for term, negative in clauses.addends(Span(0, 9))]
        [('`A`.`x`', False), ('`B`.`x` - 2 * `B`.`y`', True)]
        """
        span = self.bare(span)
        if len(self.aliases(span)) <= 1:
            return [(span, False)]
        if self._positions(span, *_LOOSER_THAN_MINUS):
            return None
        signs = self._signs(span)
        if not signs:
            # A sign in front binds tighter than a product, which is no sum.
            if self._items[span.start].kind not in (TokenType.PLUS, TokenType.DASH) or self._positions(
                span, *_PRODUCTS
            ):
                return None
            signs, starts, stops = [span.start], [span.start + 1], [span.stop]
        else:
            starts, stops = [span.start, *(at + 1 for at in signs)], [*signs, span.stop]
            signs = [-1, *signs]
        found: list[tuple[Span, bool]] = []
        for at, start, stop in zip(signs, starts, stops, strict=True):
            terms = self.addends(Span(start, stop))
            if terms is None:
                return None
            turned = at >= 0 and self._items[at].kind is TokenType.DASH
            found += [(term, negative ^ turned) for term, negative in terms]
        return found

    def _signs(self, span: Span) -> list[int]:
        """The outermost plus and minus signs with an operand on both sides."""
        return [
            at
            for at in self._positions(span, TokenType.PLUS, TokenType.DASH)
            if at > span.start and self._items[at - 1].kind not in _BEFORE_AN_OPERAND
        ]

    def summands(self, span: Span) -> list[Span] | None:
        """The terms of a sum without a minus; the span itself where it is no sum."""
        span = self.bare(span)
        if self._positions(span, *_LOOSER_THAN_MINUS):
            return None
        signs = self._signs(span)
        if any(self._items[at].kind is TokenType.DASH for at in signs):
            return None
        return [Span(*ends) for ends in zip([span.start, *(at + 1 for at in signs)], [*signs, span.stop], strict=True)]

    def squared(self, span: Span) -> Span | None:
        """What is squared where the span is ``x * x``, ``POW(x, 2)`` or ``POWER(x, 2)``, else None."""
        span = self.bare(span)
        arguments = self.call(span, "pow", "power")
        if arguments is not None:
            two = len(arguments) == 2 and self.value(arguments[1]) == 2
            return arguments[0] if two else None
        factors = self.product(span)
        if factors is None:
            return None
        return factors[0] if self.sql(factors[0]) == self.sql(factors[1]) else None

    def product(self, span: Span) -> tuple[Span, Span] | None:
        """The two factors where the span is one product, else None."""
        span = self.bare(span)
        if self._positions(span, *_LOOSER_THAN_MINUS) or self._signs(span):
            return None
        products = self._positions(span, *_PRODUCTS)
        if len(products) != 1 or self._items[products[0]].kind is not TokenType.STAR:
            return None
        return self.bare(Span(span.start, products[0])), self.bare(Span(products[0] + 1, span.stop))

    def call(self, span: Span, *names: str) -> list[Span] | None:
        """The arguments where the span is exactly one call of a function of these names, else None."""
        start, stop = self.bare(span)
        if self._items[start].sql.lower() not in names or self._close.get(start + 1) != stop - 1 or stop - start < 4:
            return None
        return self._between_commas(Span(start + 2, stop - 1))

    def value(self, span: Span) -> Value | None:
        """The value of a signed number or interval literal; None for anything else."""
        negative = False
        span = self.bare(span)
        while self._items[span.start].kind in (TokenType.PLUS, TokenType.DASH):
            negative ^= self._items[span.start].kind is TokenType.DASH
            span = self.bare(Span(span.start + 1, span.stop))
        sql = self.sql(span)
        if self._items[span.start].kind is TokenType.INTERVAL:
            length = interval(sql[len("INTERVAL") :].strip())
            return -length if length is not None and negative else length
        return number(sql, negative=negative)

    def bare(self, span: Span) -> Span:
        """The span without the parentheses around it; those of a tuple stay."""
        while (
            span.stop - span.start > 2
            and self._items[span.start].kind is TokenType.L_PAREN
            and self._close.get(span.start) == span.stop - 1
            and not self._positions(Span(span.start + 1, span.stop - 1), TokenType.COMMA)
        ):
            span = Span(span.start + 1, span.stop - 1)
        return span

    def _positions(self, span: Span, *kinds: TokenType) -> list[int]:
        """The positions of items of these kinds in the span, outside all of its brackets."""
        outside = self._depth[span.start]
        return [at for at in range(*span) if self._items[at].kind in kinds and self._depth[at] == outside]

    def aliases(self, span: Span) -> frozenset[str]:
        """The inputs whose columns occur in the span."""
        return frozenset(item.alias for item in self._items[slice(*span)] if item.alias is not None)

    def sql(self, span: Span) -> str:
        """The text of the span as Spark will see it."""
        # A comment or a line break between two items becomes one space.
        return "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in self._items[slice(*span)]).strip()
