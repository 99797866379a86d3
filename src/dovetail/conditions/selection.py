"""The columns that a call selects: reading ``select=``, item by item, with names that exist.

Which columns of the inputs a call needs at all, so that the others need not travel, is another question:
:mod:`dovetail.conditions.mentions` answers it from words alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import Dialect, ErrorLevel, Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from dovetail.conditions.mentions import mentioned
from dovetail.conditions.names import quoted
from dovetail.conditions.tokens import AGGREGATES, is_named
from dovetail.errors import (
    ArgumentError,
    UnknownNameError,
    at_position,
    closest,
    listing,
    unknown_alias,
    unknown_column,
)

ACCEPTED = "columns and expressions of the joined row: select=['t.id', 'q.bid - t.price AS gap', 'q.*']"
"""What an error message says of a selection that it refuses."""

_SPARK = Dialect.get_or_raise("spark")
_HEAD = "SELECT "
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_NO_CALL = (TokenType.DOT, TokenType.LIKE, TokenType.ILIKE)
"""Behind these, a name in front of a parenthesis is no aggregate: LIKE ANY (...)."""
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)


@dataclass(frozen=True)
class Output:
    """What an item gives: SQL over the joined row, and the columns of the inputs that it reads."""

    sql: str
    uses: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Row:
    """What a joined row has: the columns of each input, those that come out, and further columns of the join."""

    columns: Mapping[str, Sequence[str]]
    outputs: Sequence[str]
    """Aliases whose rows come out: one for semi and anti joins."""
    further: Sequence[str] = ()
    how: str = ""
    """Why the others do not, for messages."""
    open: bool = False
    """Whether there may be further columns that nobody knows yet: before the join, unknown names may mean them."""


def split_items(text: str) -> list[str]:
    """The items of a list, as SQL separates them.

    Examples
    --------
    >>> split_items("t.id, greatest(t.x, q.y) AS most")
    ['t.id', 'greatest(t.x, q.y) AS most']
    """
    tokens = _tokens(text)
    items: list[str] = []
    depth = begin = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if token.token_type is TokenType.COMMA and depth == 0:
            items.append(text[begin : token.start])
            begin = token.end + 1
    return [item.strip() for item in (*items, text[begin:])]


def read_item(text: str, row: Row) -> list[Output]:
    """An item of a selection: one output, or those that a star stands for.

    Raises
    ------
    ArgumentError
        If it is no expression over the joined row.
    UnknownNameError
        If it names an input or a column that does not exist.

    Examples
    --------
    >>> row = Row({"t": ["id", "price"], "q": ["bid"]}, ["t", "q"])
    >>> [output.sql for output in read_item("bid - T.price AS gap", row)]
    ['`q`.`bid` - `t`.`price` AS gap']
    >>> [output.sql for output in read_item("t.*", row)]
    ['`t`.`id`', '`t`.`price`']
    """
    tree, tokens = _parsed(text)
    star = _star(tree)
    if star is not None:
        return _expanded(text, star, row)
    _refuse(text, tree, tokens)
    found: dict[int, tuple[int, list[str]]] = {}
    uses: set[tuple[str, str]] = set()
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            uses |= _whole(column.table, row, text)
            continue
        if not is_named(column):
            raise ArgumentError(f"select={text!r} has something else than a name behind a dot", accepted=ACCEPTED)
        names = [_spelled(text, part) for part in column.parts]
        written, used = _resolved(names, row, text)
        uses |= used
        if written is not None:
            found[column.parts[0].meta["start"]] = (len(names), written)
    if any(not isinstance(one.parent, exp.Count | exp.Column) for one in tree.find_all(exp.Star)):
        uses |= {(alias, name) for alias in row.outputs for name in row.columns[alias]}
    # sqlglot drops the arguments that it does not expect in a call: their columns are only in the text.
    uses |= {(alias, name) for alias, names in mentioned([text], row.columns).items() for name in names}
    sql = _rewritten(text, tokens, found)
    if isinstance(tree, exp.Column):
        # The name of the result is the user's spelling, as everywhere in Spark.
        sql = f"{sql} AS {quoted(_spelled(text, tree.parts[-1]))}"
    return [Output(sql, frozenset(uses))]


def _parsed(text: str) -> tuple[exp.Expr, list[Token]]:
    """The expression of an item, and its tokens with positions in ``SELECT item``."""
    tokens = _tokens(text)
    if not tokens:
        raise ArgumentError("select holds an empty text", accepted=ACCEPTED)
    whole = _HEAD + text
    refusal = f"select={text!r} is not an expression over the joined row"
    try:
        tokens = _SPARK.tokenize(whole)
        (statement,) = _SPARK.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, whole)
    except ParseError as error:
        first = error.errors[0]
        column = int(first["col"] or 1) - len(str(first["highlight"] or "")) + 1
        line = int(first["line"] or 1)
        shown = at_position(text, line, column - (len(_HEAD) if line == 1 else 0))
        raise ArgumentError(f"select={text!r}: this is not an expression\n{shown}", accepted=ACCEPTED) from None
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(refusal, accepted=ACCEPTED) from error
    clauses = [] if not isinstance(statement, exp.Select) else [k for k, v in statement.args.items() if v]
    if not isinstance(statement, exp.Select) or set(clauses) != {"expressions"} or len(statement.expressions) != 1:
        raise ArgumentError(refusal, accepted=ACCEPTED, hint="only the columns, without FROM, WHERE or DISTINCT")
    return statement.expressions[0], tokens[1:]


def _tokens(text: str) -> list[Token]:
    try:
        return _SPARK.tokenize(text)
    except TokenError:
        raise ArgumentError(
            f"select={text!r}: a string, a name or a comment begins and does not end", accepted=ACCEPTED
        ) from None


def _spelled(text: str, part: exp.Expr) -> str:
    written = text[part.meta["start"] - len(_HEAD) : part.meta["end"] + 1 - len(_HEAD)]
    return str(part.name) if written.startswith("`") else written


def _refuse(text: str, tree: exp.Expr, tokens: Sequence[Token]) -> None:
    if tree.find(exp.Query) is not None:
        raise ArgumentError(f"select={text!r} holds a subquery", accepted=ACCEPTED, hint="select it from the result")
    # sqlglot takes an arrow outside a call for a path into JSON, and Spark answers with an internal error.
    arrows = sum(token.token_type is TokenType.ARROW for token in tokens)
    if tree.find(exp.JSONExtract) is not None and arrows > sum(1 for _ in tree.find_all(exp.Lambda)):
        raise ArgumentError(
            f"select={text!r} holds a function that no call takes",
            accepted=ACCEPTED,
            hint="x -> x + 1 stands in a call, as in transform(t.items, x -> x + 1)",
        )
    if tree.find(exp.Window) is not None:
        return
    before: TokenType | None = None
    for token, behind in pairwise(tokens):
        called = behind.token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
        if called and token.text.lower() in AGGREGATES and before not in _NO_CALL:
            raise ArgumentError(
                f"select={text!r} holds an aggregate, and is not computed row by row",
                accepted=ACCEPTED,
                hint="aggregate the result, or let dt.aggregate_join compute it without forming the pairs",
            )
        before = token.token_type


# --- names ---------------------------------------------------------------------------------------------------


def _matching(name: str, known: Iterable[str]) -> list[str]:
    names = list(known)
    return [one for one in names if one == name] or [one for one in names if one.casefold() == name.casefold()]


def _resolved(names: list[str], row: Row, text: str) -> tuple[list[str] | None, set[tuple[str, str]]]:
    """How Spark finds a dotted name in the joined row, None for as it stands, and the columns that it uses."""
    (first, *rest), columns = names, row.columns
    aliases, further = _matching(first, columns), _matching(first, row.further)
    if aliases and rest:
        own = _matching(rest[0], columns[aliases[0]])
        if own:
            return _column(aliases[0], own[0], rest[1:], row, text)
    everywhere = [(alias, name) for alias in columns for name in _matching(first, columns[alias])]
    # An input whose rows do not come out hides no column of its name.
    others = bool(further) or any(alias in row.outputs for alias, _ in everywhere)
    if aliases and not rest and (aliases[0] in row.outputs or not others):
        return None, _whole(aliases[0], row, text)
    if further:
        return None, set()
    if row.open and len(everywhere) != 1:
        return None, set(everywhere)
    # The joined row has no columns of inputs whose rows do not come out.
    owners = [one for one in everywhere if one[0] in row.outputs] or everywhere
    if len(owners) > 1:
        spelled = [f"{alias}.{name}" for alias, name in owners]
        raise ArgumentError(
            f"select={text!r} names {first!r}, which is ambiguous: {listing(spelled)}",
            accepted=" or ".join(spelled),
            hint="name it in full",
        )
    if owners:
        return _column(*owners[0], rest, row, text)
    if aliases:
        raise unknown_column(rest[0], aliases[0], columns[aliases[0]], where=f"select={text!r}")
    if rest:
        raise unknown_alias(first, [*columns, *row.further], where=f"select={text!r}")
    every = [f"{alias}.{name}" for alias in columns for name in columns[alias]]
    raise UnknownNameError(
        f"select={text!r} names {first!r}, which no input has",
        accepted=f"one of {listing([*every, *row.further])}",
        hint=closest(first, [*(name for names in columns.values() for name in names), *row.further]),
    )


def _column(
    alias: str, name: str, fields: Sequence[str], row: Row, text: str
) -> tuple[list[str], set[tuple[str, str]]]:
    _check_output(alias, row, text)
    return [quoted(alias), quoted(name), *map(quoted, fields)], {(alias, name)}


def _whole(alias: str, row: Row, text: str) -> set[tuple[str, str]]:
    """All columns of an input."""
    known = _matching(alias, row.columns)
    if not known:
        if row.open or _matching(alias, row.further):
            return set()
        raise unknown_alias(alias, row.columns, where=f"select={text!r}")
    _check_output(known[0], row, text)
    return {(known[0], name) for name in row.columns[known[0]]}


def _check_output(alias: str, row: Row, text: str) -> None:
    if alias not in row.outputs:
        raise ArgumentError(
            f"select={text!r} names the input {alias!r}, whose rows do not come out{row.how}",
            accepted=f"columns of {listing(row.outputs)}" + (f", and {listing(row.further)}" if row.further else ""),
        )


def _rewritten(text: str, tokens: Sequence[Token], found: Mapping[int, tuple[int, list[str]]]) -> str:
    """The user's text with the names that were resolved written in full."""
    parts, end, at = [], 0, 0
    while at < len(tokens):
        token = tokens[at]
        if token.start not in found:
            at += 1
            continue
        count, names = found[token.start]
        start = token.start - len(_HEAD)
        # A name of several parts is parts and dots in turn.
        last = tokens[at + 2 * (count - 1)]
        parts += [text[end:start], ".".join(names)]
        end = last.end + 1 - len(_HEAD)
        at += 2 * (count - 1) + 1
    return "".join([*parts, text[end:]])


# --- stars ---------------------------------------------------------------------------------------------------


def _star(tree: exp.Expr) -> tuple[str | None, exp.Star] | None:
    """A star that is an item of its own, and the alias in front of it."""
    if isinstance(tree, exp.Star):
        return None, tree
    if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star):
        return tree.table, tree.this
    return None


def _expanded(text: str, star: tuple[str | None, exp.Star], row: Row) -> list[Output]:
    """The columns that a star stands for, without those behind EXCEPT."""
    alias, node = star
    if alias is not None and not _matching(alias, row.columns) and (row.open or _matching(alias, row.further)):
        return [Output(text)]  # the fields of a column of the join's own
    if alias is None:
        uses = [(one, name) for one in row.outputs for name in row.columns[one]]
        further = list(row.further)
    else:
        whole = _whole(alias, row, text)
        uses = [(one, name) for one in row.columns for name in row.columns[one] if (one, name) in whole]
        further = []
    left_out: set[tuple[str, str] | str] = set()
    for excepted in node.args.get("except_") or ():
        names = [part.name for part in excepted.parts] if isinstance(excepted, exp.Column) else [excepted.name]
        same = [
            use
            for use in uses
            if use[1].casefold() == names[-1].casefold()
            and (len(names) == 1 or use[0].casefold() == names[0].casefold())
        ]
        others = [name for name in further if len(names) == 1 and name.casefold() == names[0].casefold()]
        if not same and not others and not row.open:
            raise UnknownNameError(
                f"select={text!r} excepts {'.'.join(names)!r}, which is not among its columns",
                accepted=f"one of {listing([f'{one}.{name}' for one, name in uses] + further)}",
                hint=closest(names[-1], [*(name for _, name in uses), *further]),
            )
        left_out.update(same)
        left_out.update(others)
    outputs = [
        Output(f"{quoted(one)}.{quoted(name)}", frozenset([(one, name)]))
        for one, name in uses
        if (one, name) not in left_out
    ]
    return outputs + [Output(quoted(name)) for name in further if name not in left_out]
