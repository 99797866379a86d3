"""Statements around a query: ``INSERT``, ``CREATE TABLE ... AS`` and ``CREATE VIEW ... AS``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import Token, TokenType

from dovetail.statements.syntax.dialect import tokens_of

_QUERY = frozenset((TokenType.SELECT, TokenType.WITH))
_TEMPORARY = frozenset(("TEMP", "TEMPORARY"))


@dataclass(frozen=True)
class View:
    """A temporary view to be created."""

    name: str
    shared: bool
    """Whether it is a GLOBAL one."""
    replace: bool
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """What a statement does with a query."""

    kind: Literal["write", "view"]
    head: str
    """The text before the query."""
    query: str
    view: View | None = None
    """None also for a view that only Spark can create: a permanent one, or one with comments or properties."""


def read_command(text: str) -> Command | None:
    """The statement as a command around a query; None for everything else.

    Examples
    --------
    >>> read_command("INSERT INTO t SELECT * FROM a").head
    'INSERT INTO t '
    >>> read_command("CREATE OR REPLACE TEMP VIEW v (x, y) AS SELECT * FROM a").view
    View(name='v', shared=False, replace=True, columns=('x', 'y'))
    >>> read_command("SELECT * FROM a") is None
    True
    """
    tokens = tokens_of(text)
    words = [token.text.upper() for token in tokens]
    if not words or words[0] not in ("INSERT", "CREATE", "REPLACE"):
        return None
    start = _query_start(tokens, created=words[0] != "INSERT")
    if start is None:
        return None
    offset = tokens[start].start
    head, query = text[:offset], text[offset:]
    before = words[:start]
    if words[0] != "INSERT" and "VIEW" in before[:6]:
        return Command("view", head, query, _view(tokens[:start], before))
    return Command("write", head, query)


def _query_start(tokens: Sequence[Token], *, created: bool) -> int | None:
    """The token with which the query begins: outside parentheses, behind AS where something is created."""
    depth = 0
    for number, token in enumerate(tokens):
        opens = token.token_type is TokenType.L_PAREN
        wrapped = opens and number + 1 < len(tokens) and tokens[number + 1].token_type in _QUERY
        behind_as = number > 0 and tokens[number - 1].text.upper() == "AS"
        begins = token.token_type is TokenType.SELECT or (token.token_type in _QUERY and not created)
        if depth == 0 and (begins or ((wrapped or token.token_type in _QUERY) and (behind_as or not created))):
            return number
        depth += opens - (token.token_type is TokenType.R_PAREN)
    return None


def _view(tokens: Sequence[Token], words: Sequence[str]) -> View | None:
    """The temporary view that a head describes by its name, and perhaps its columns; None for all else."""
    at = words.index("VIEW") + 1
    rest = list(tokens[at + 1 : -1])
    columns = [token.text for token in rest[1:-1:2]]
    listed = not rest or (
        rest[0].token_type is TokenType.L_PAREN
        and rest[-1].token_type is TokenType.R_PAREN
        and len(rest) % 2 == 1
        and all(token.token_type is TokenType.COMMA for token in rest[2:-1:2])
    )
    if not _TEMPORARY & set(words[:at]) or words[at] == "IF" or not listed:
        return None
    return View(tokens[at].text, "GLOBAL" in words[:at], "REPLACE" in words[:at], tuple(columns))
