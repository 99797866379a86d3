"""Statements around a query: ``INSERT``, ``CREATE TABLE ... AS`` and ``CREATE VIEW ... AS``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlglot import Token, TokenType

from dovetail.errors import in_statement
from dovetail.statements.syntax.dialect import tokens_of

_QUERY = frozenset((TokenType.SELECT, TokenType.WITH))
_TEMPORARY = frozenset(("TEMP", "TEMPORARY"))


@dataclass(frozen=True)
class View:
    """A view to be created."""

    name: str
    temporary: bool
    shared: bool
    """Whether it is a GLOBAL temporary view."""
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


def read_command(text: str) -> Command | None:
    """The statement as a command around a query; None for everything else.

    Examples
    --------
    >>> read_command("INSERT INTO t SELECT * FROM a").head
    'INSERT INTO t '
    >>> read_command("CREATE OR REPLACE TEMP VIEW v (x, y) AS SELECT * FROM a").view
    View(name='v', temporary=True, shared=False, replace=True, columns=('x', 'y'))
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
        return Command("view", head, query, _view(text, tokens[:start], before))
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


def _view(text: str, tokens: Sequence[Token], words: Sequence[str]) -> View:
    at = words.index("VIEW") + 1
    kept = tuple(words[at : at + 3]) == ("IF", "NOT", "EXISTS")
    name, rest = tokens[at + 3 * kept], list(tokens[at + 3 * kept + 1 :])
    temporary = bool(_TEMPORARY & set(words[:at]))
    if temporary and kept:
        raise in_statement(text, name.start, "a temporary view IF NOT EXISTS", accepted="CREATE OR REPLACE TEMP VIEW")
    columns: list[str] = []
    if rest and rest[0].token_type is TokenType.L_PAREN:
        close = next(number for number, token in enumerate(rest) if token.token_type is TokenType.R_PAREN)
        columns = [token.text for token in rest[1:close] if token.token_type is not TokenType.COMMA]
        rest = rest[close + 1 :]
    if temporary and [token.text.upper() for token in rest] != ["AS"]:
        raise in_statement(
            text,
            rest[0].start,
            "comments and properties of a temporary view",
            accepted="CREATE TEMP VIEW v AS query",
        )
    return View(name.text, temporary, "GLOBAL" in words[:at], "REPLACE" in words[:at], tuple(columns))
