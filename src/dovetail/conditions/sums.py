"""Expressions of `least` and `most`: the value of one input, a sum of one value of each input, or anything else."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType

from dovetail.conditions.tokens import Item

_PLAIN = {
    TokenType.COLUMN, TokenType.NUMBER, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH,
    TokenType.L_PAREN, TokenType.R_PAREN,
}  # fmt: skip
_OPERATORS = {TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH}


@dataclass(frozen=True)
class Sum:
    """``left + right``, each over one input; None where the sum has no term of an input."""

    left: str | None
    right: str | None


def split_sum(items: list[Item], aliases: tuple[str, str]) -> Sum | None:
    """Split an expression into the term of each input, or give None where it is no such sum.

    Only a plus or a minus outside all brackets divides it, and only if nothing but arithmetic is next to it.

    Examples
    --------
    >>> from dovetail.conditions.tokens import read
    >>> columns = {"R": ["cost"], "S": ["cost", "rate"]}
    >>> split_sum(read("R.cost * 2 - S.cost", columns), ("R", "S"))
    Sum(left='`R`.`cost` * 2', right='-(`S`.`cost`)')
    >>> split_sum(read("abs(S.cost)", columns), ("R", "S"))
    Sum(left=None, right='abs(`S`.`cost`)')
    >>> split_sum(read("R.cost * S.rate", columns), ("R", "S")) is None
    True
    """
    used = _aliases(items)
    if len(used) == 1:
        text = _sql(items)
        return Sum(text, None) if used == {aliases[0]} else Sum(None, text)
    signs, depth = [], 0
    for at, item in enumerate(items):
        if item.kind is TokenType.R_PAREN:
            depth -= 1
        call = at + 1 < len(items) and items[at + 1].kind is TokenType.L_PAREN
        if depth == 0:
            if item.kind not in _PLAIN and not call:
                return None
            binary = at > 0 and items[at - 1].kind not in _OPERATORS
            if item.kind in (TokenType.PLUS, TokenType.DASH) and binary:
                signs.append(at)
        if item.kind is TokenType.L_PAREN:
            depth += 1
    if not signs:
        return None
    # Plus and minus group from the left, so the last one is the outermost.
    at = signs[-1]
    sides = items[:at], items[at + 1 :]
    if any(len(_aliases(side)) != 1 for side in sides):
        return None
    first, second = _sql(sides[0]), _sql(sides[1])
    if items[at].kind is TokenType.DASH:
        second = f"-({second})"
    return Sum(first, second) if _aliases(sides[0]) == {aliases[0]} else Sum(second, first)


def _aliases(items: list[Item]) -> set[str]:
    return {item.alias for item in items if item.alias is not None}


def _sql(items: list[Item]) -> str:
    return "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in items).strip()
