"""Parameters of a statement, ``:name`` and ``?``, replaced by literals before anything reads the text.

Dovetail reads conditions itself, so it needs the values; a literal has the type that Spark gives the value.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlglot import Token, TokenType

from dovetail.errors import ArgumentError, closest, in_statement, listing
from dovetail.statements.syntax.dialect import tokens_of
from dovetail.statements.syntax.grammar import Slice

_OPERAND_ENDS = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.STRING, TokenType.NUMBER))
_ACCEPTED = "args={'name': value} for :name, or args=[value, ...] for ?"


def bind(text: str, args: Mapping[str, Any] | Sequence[Any] | None) -> str:
    """The text with its parameters replaced.

    Raises
    ------
    ArgumentError
        If a parameter has no value, a value no parameter, or a value cannot be written in SQL.

    Examples
    --------
    >>> bind("SELECT * FROM a, b WHERE a.x - b.x <= :gap AND a.name = :name", {"gap": 5, "name": "it's"})
    "SELECT * FROM a, b WHERE a.x - b.x <= 5 AND a.name = CAST(X'69742773' AS STRING)"
    >>> bind("SELECT * FROM a WHERE x > ? AND y < ?", [-1, 2.5])
    'SELECT * FROM a WHERE x > (-1) AND y < 2.5D'
    """
    if not args or not isinstance(text, str):
        return text
    tokens = tokens_of(text)
    if isinstance(args, Mapping):
        values = {str(name): value for name, value in args.items()}
        places = list(_named(tokens))
    elif isinstance(args, Sequence) and not isinstance(args, str | bytes):
        values = {str(number): value for number, value in enumerate(args)}
        marks = [token for token in tokens if token.token_type is TokenType.PLACEHOLDER]
        places = [(str(number), Slice(token.start, token.end + 1)) for number, token in enumerate(marks)]
        if len(places) != len(values):
            raise ArgumentError(f"{len(values)} values for {len(places)} parameters", accepted="a value for each ?")
    else:
        raise ArgumentError(f"args={args!r}", accepted=_ACCEPTED)
    pieces, begin = [], 0
    for name, at in places:
        if name not in values:
            raise in_statement(
                text, at.start, f"the parameter {name!r} has no value", accepted="a value for each parameter",
                hint=closest(name, list(values)) or f"args has {listing(values)}",
            )  # fmt: skip
        pieces += [text[begin : at.start], literal(name, values[name])]
        begin = at.stop
    return "".join([*pieces, text[begin:]])


def _named(tokens: Sequence[Token]) -> Iterator[tuple[str, Slice]]:
    """Names behind a colon; one that follows an operand takes a field out of a VARIANT instead."""
    for number, token in enumerate(tokens[:-1]):
        if token.token_type is not TokenType.COLON:
            continue
        name, before = tokens[number + 1], tokens[number - 1] if number else None
        word = name.text.isidentifier() and name.start == token.end + 1
        operand = before is not None and (before.token_type in _OPERAND_ENDS or before.end + 1 == token.start)
        joined = operand and before is not None and (before.text.isidentifier() or before.token_type in _OPERAND_ENDS)
        if word and not joined:
            yield name.text, Slice(token.start, name.end + 1)


def literal(name: str, value: Any) -> str:
    """A Python value as SQL, of the type that Spark gives it.

    Examples
    --------
    >>> literal("x", 2**40), literal("x", None), literal("x", dt.timedelta(seconds=90))
    ('1099511627776L', 'NULL', "INTERVAL '0 0:01:30.000000' DAY TO SECOND")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        suffix = "" if -(2**31) <= value < 2**31 else "L" if -(2**63) <= value < 2**63 else "BD"
        return _signed(f"{value}{suffix}")
    if isinstance(value, float):
        return _signed(f"{value!r}D") if math.isfinite(value) else f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return _signed(f"{value:f}BD")
    if isinstance(value, str):
        # What a backslash or a quote means depends on settings of the session; hexadecimal digits mean themselves.
        plain = value.isprintable() and not set(value) & set("\\'")
        return f"'{value}'" if plain else f"CAST(X'{value.encode().hex().upper()}' AS STRING)"
    if isinstance(value, bytes | bytearray):
        return f"X'{bytes(value).hex().upper()}'"
    if isinstance(value, dt.datetime):
        # Python takes a time without a zone for one of the machine's zone, and so does PySpark.
        return f"TIMESTAMP_LTZ '{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return _interval(value)
    if isinstance(value, list | tuple):
        return f"array({', '.join(literal(name, one) for one in value)})"
    raise ArgumentError(
        f"the parameter {name!r} is a {type(value).__name__}",
        accepted="None, bool, int, float, Decimal, str, bytes, date, datetime, timedelta, or a list of them",
    )


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def _interval(value: dt.timedelta) -> str:
    sign, value = ("-", -value) if value < dt.timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    time = f"{value.days} {hours}:{minutes:02}:{seconds:02}.{value.microseconds:06}"
    return f"INTERVAL {sign}'{time}' DAY TO SECOND"
