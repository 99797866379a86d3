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
            cuts = [] if self._positions(span, TokenType.OR) else self._ands(span)
            if not cuts:
                yield span
                continue
            starts, stops = [span.start, *(cut + 1 for cut in cuts)], [*cuts, span.stop]
            if any(start == stop for start, stop in zip(starts, stops, strict=True)):
                yield span  # Spark also knows a function and(...)
                continue
            pending.extend(self.bare(Span(*ends)) for ends in reversed(list(zip(starts, stops, strict=True))))

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
        start, stop = self.bare(span)
        if self._items[start].sql.lower() == "abs" and self._close.get(start + 1) == stop - 1:
            return Span(start + 2, stop - 1)
        return None

    def difference(self, span: Span) -> tuple[Span, Span] | None:
        """The two sides of the span's outermost minus; None where another operator is outermost."""
        span = self.bare(span)
        if self._positions(span, *_LOOSER_THAN_MINUS):
            return None
        # Plus and minus group from the left, so the last one is the outermost.
        signs = [
            at
            for at in self._positions(span, TokenType.PLUS, TokenType.DASH)
            if at > span.start and self._items[at - 1].kind not in _BEFORE_AN_OPERAND
        ]
        if not signs or self._items[signs[-1]].kind is not TokenType.DASH:
            return None
        return Span(span.start, signs[-1]), Span(signs[-1] + 1, span.stop)

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
