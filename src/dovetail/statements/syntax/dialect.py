"""The dialect: text -> tokens -> syntax tree.

sqlglot reads the statement and says where its parts are; it never writes SQL.  Spark gets the user's own text back, in
which only the joins that Dovetail runs are replaced, because a round trip through a syntax tree changes meanings.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot import ErrorLevel, Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from dovetail.conditions.tokens import unfinished_at
from dovetail.errors import StatementError, in_statement
from dovetail.statements.syntax.parser import DovetailParser

ACCEPTED = "one query of Spark SQL, with the joins that docs/sql.md adds"


class UnreadableError(StatementError):
    """The text cannot be read, whether it is wrong or newer than the parser."""


class Dovetail(Spark):
    """Spark SQL and the joins of this library."""

    Parser = DovetailParser


_DIALECT = Dovetail()
_BEGINNINGS = {
    ("AGGREGATE", "JOIN"), ("NEAREST", "JOIN"),
    ("BESTMATCH", "JOIN"), ("ASOF", "JOIN"), ("ASOF", "LEFT"), ("ASOF", "RIGHT"), ("ASOF", "FULL"), ("ASOF", "SEMI"),
    ("ASOF", "ANTI"), ("ASOF", "INNER"), ("DWINDOW", "("), ("DWINDOW", "="),
    ("WINDOW", "="), ("WINDOW", "("), ("WITHIN", "MEMORY"), ("SHED", "HARVEST"), ("SHED", "RANDOM"),
}  # fmt: skip


def tokens_of(text: str) -> list[Token]:
    """The tokens of a statement, or an error that points at what does not end."""
    try:
        return list(_DIALECT.tokenize(text))
    except TokenError:
        what = "a string, a name or a comment begins here and does not end"
        raise in_statement(text, unfinished_at(text, _DIALECT), what, accepted=ACCEPTED) from None


def read_query(text: str) -> exp.Expr:
    """The syntax tree of one query.

    Raises
    ------
    StatementError
        If the text is no query, with its line and a caret under the position.

    Examples
    --------
    >>> read_query("SELECT A.x FROM A, B WINDOW = 1 HOUR").meta["extras"].windows[0].sizes
    ('1 HOUR',)
    >>> read_query("SELECT A.x FROM A, B WINDOW = soon")
    Traceback (most recent call last):
    dovetail.errors.StatementError: SQL, line 1: a length is missing
        SELECT A.x FROM A, B WINDOW = soon
                                      ^
      accepted: a length such as 10 SECONDS, 1 HOUR 30 MINUTES, or a number where the times are numbers
    """
    if not isinstance(text, str):
        raise StatementError(f"a {type(text).__name__} is not SQL text", accepted=ACCEPTED)
    tokens = tokens_of(text)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise StatementError("the statement is empty", accepted=ACCEPTED)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise in_statement(text, token.start, "a second statement follows", accepted=ACCEPTED)
    for at in range(2, len(tokens)):
        before, word, behind = (token.token_type for token in tokens[at - 2 : at + 1])
        given = tokens[at - 1]
        if (before, word, behind) == (TokenType.GROUP_BY, TokenType.WINDOW, TokenType.L_PAREN):
            # sqlglot would take GROUP BY window(ts, '1 hour') for an empty GROUP BY and a clause WINDOW.
            tokens[at - 1] = _retagged(given, TokenType.VAR)
        elif given.text.upper() == "MATCH_CONDITION" and behind is TokenType.L_PAREN:
            tokens[at - 1] = _retagged(given, TokenType.MATCH_CONDITION)
    try:
        (tree,) = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        raise StatementError("the statement is nested too deeply to read", accepted=ACCEPTED) from None
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, StatementError):
            raise
        # sqlglot counts on the right number of arguments in a few functions, such as map().
        raise UnreadableError(
            "the statement holds a function call or a clause that cannot be read",
            accepted=ACCEPTED,
            hint="look for a call with a wrong number of arguments, or a clause that breaks off",
        ) from error
    if not isinstance(tree, exp.Query | exp.Values):
        first = tokens[0]
        raise in_statement(text, first.start, f"{first.text.upper()} begins no query", accepted=ACCEPTED)
    return tree


def uses_dialect(tokens: Sequence[Token]) -> bool:
    """Whether a statement may use a clause that Spark does not have; it is not one by the words alone.

    Examples
    --------
    >>> uses_dialect(tokens_of("SELECT * FROM A, B WINDOW = 1 HOUR")), uses_dialect(tokens_of("SELECT * FROM A, B"))
    (True, False)
    """
    words = [token.text.upper() for token in tokens]
    pairs = set(pairwise(words))
    counted = any(a == "NEAREST" and c == "JOIN" for a, c in zip(words, words[2:], strict=False))
    return counted or bool(pairs & _BEGINNINGS)


def _retagged(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end)


def _syntax_error(text: str, error: ParseError) -> StatementError:
    first = error.errors[0] if error.errors else {}
    line, column = first.get("line"), first.get("col")
    offset = len(text.rstrip())
    if line is not None and column is not None and str(first.get("highlight") or ""):
        lines = text.splitlines(keepends=True)
        # sqlglot counts to the last character of the token.
        begin = sum(len(row) for row in lines[: int(line) - 1])
        offset = begin + int(column) - len(str(first["highlight"]))
    what = (
        "the statement cannot be read from here on" if offset < len(text.rstrip()) else "the statement breaks off here"
    )
    positioned = in_statement(text, offset, what, accepted=ACCEPTED)
    return UnreadableError(positioned.given, accepted=positioned.accepted)
