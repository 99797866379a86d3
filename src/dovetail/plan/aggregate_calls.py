"""The aggregates of a call: their text, taken apart, and the measures that they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import pyarrow as pa
from sqlglot import Dialect, Token, TokenType
from sqlglot.errors import TokenError

from dovetail.conditions.comparison import KeyType, Kind
from dovetail.conditions.tokens import AGGREGATES, read
from dovetail.errors import ArgumentError, PredicateError, UnknownNameError, closest
from dovetail.families.aggregate.spec import Function, Measure, Output
from dovetail.plan.aggregate_gathered import gathered_call

_SPARK = Dialect.get_or_raise("spark")

_SPELLINGS: dict[str, Function] = {
    "count": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max", "min_by": "min_by",
    "max_by": "max_by", "stddev": "stddev_samp", "std": "stddev_samp", "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop", "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop",
    "count_if": "count_if", "bool_or": "bool_or", "any": "bool_or", "some": "bool_or", "bool_and": "bool_and",
    "every": "bool_and",
}  # fmt: skip
"""Every aggregate that is taken, in Spark's spellings."""

_BY_ORDER: dict[str, Function] = {"first": "min_by", "first_value": "min_by", "last": "max_by", "last_value": "max_by"}
"""``first(x ORDER BY y)`` is ``min_by(x, y)``."""
ACCEPTED = (
    "a mapping from the name of a column to one aggregate over the matched rows, such as "
    "{'n': 'count(*)', 'mean': 'avg(q.price)'}"
)
FUNCTIONS = ", ".join(sorted([*_SPELLINGS, "approx_count_distinct", "median", "percentile", "percentile_approx"]))
_ELSEWHERE = {
    **dict.fromkeys(("nunique", "n_unique", "count_distinct", "countdistinct"), "count(DISTINCT q.x)"),
    **dict.fromkeys(("quantile", "approx_quantile", "quantile_cont"), "percentile(q.x, 0.5)"),
    **dict.fromkeys(("size", "len", "length"), "count(*)"),
}
"""What aggregates of pandas, polars and DuckDB are here."""


_WHOLE = ("tinyint", "smallint", "int", "bigint")
_NUMBERS = (*_WHOLE, "float", "double", "decimal")
_ORDERED: tuple[Function, ...] = ("min", "max", "min_by", "max_by", "bool_or", "bool_and")
"""What needs an order of each of its arguments, min_by and max_by also to decide among equals."""

Resolved: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""Spark SQL, and the columns in it, each with its alias."""


@dataclass(frozen=True)
class Call:
    """An aggregate as the user wrote it: its function, and its arguments in the spelling of Spark SQL."""

    name: str
    text: str
    function: Function | None
    """None for what Spark computes from the pairs."""
    arguments: tuple[str, ...] = ()
    whole: str = ""
    """The whole call as Spark SQL, where it is computed from the pairs."""
    why: str = ""
    """Why it is."""
    uses: frozenset[tuple[str, str]] = frozenset()
    """The columns in it, each with its alias and as Spark SQL."""
    fractions: tuple[float, ...] = ()
    error: float | None = None
    """Of a percentile: where in the order of the values, and the error of one that may be approximate."""

    @property
    def gathered(self) -> bool:
        """Whether it needs all matches of a row in one place."""
        return self.function in ("count_distinct", "percentile")

    @property
    def sql(self) -> str:
        """The call as Spark SQL over the matched input."""
        return self.whole or f"{self.function}({', '.join(self.arguments) or '*'})"


@dataclass(frozen=True)
class Argument:
    """What Spark says of an argument: its type, how kernels order it, and the Arrow type it travels in."""

    sql: str
    kind: str
    """Spark's name of the type."""
    arrow: pa.DataType
    key: KeyType | None = None
    """None for a type that kernels do not order, or that does not travel as it is."""


@dataclass(frozen=True)
class TypedCall:
    """A call with the types of its arguments and of its result."""

    call: Call
    arguments: tuple[Argument, ...]
    kind: str
    arrow: pa.DataType
    json: str = ""
    """The type of the result as Spark writes it in JSON."""
    nullable: bool = True
    """False where the result is never NULL, as a count is not."""


def read_calls(agg: object, columns: Mapping[str, Sequence[str]], *, by: str) -> list[Call]:
    """The aggregates of ``agg=``, or an error that says which of them cannot be read."""
    if not isinstance(agg, Mapping) or not agg:
        raise ArgumentError(f"agg={agg!r}", accepted=ACCEPTED)
    calls: list[Call] = []
    folded: dict[str, str] = {by.casefold(): by}
    for name, text in agg.items():
        if not isinstance(name, str) or not name or not isinstance(text, str):
            hint = "give the aggregate as SQL text" if isinstance(name, str) and name else None
            raise ArgumentError(f"agg holds {name!r}: {text!r}", accepted=ACCEPTED, hint=hint)
        if name.casefold() in folded:
            other = folded[name.casefold()]
            what = f"the input {other!r}, which is a column of the result" if other == by else repr(other)
            raise ArgumentError(f"agg names {name!r} beside {what}", accepted="names that differ in more than case")
        folded[name.casefold()] = name
        calls.append(_call(name, text, columns, by))
    return calls


def _call(name: str, text: str, columns: Mapping[str, Sequence[str]], by: str) -> Call:
    accepted = "one call such as avg(q.price), of " + FUNCTIONS
    try:
        tokens = _SPARK.tokenize(text)
    except TokenError:
        raise ArgumentError(f"agg[{name!r}]={text!r} ends in the middle of a text", accepted=accepted) from None
    opening = len(tokens) > 2 and tokens[1].token_type is TokenType.L_PAREN
    if not opening or _closing(tokens) != len(tokens) - 1:
        hint = None
        if opening and any(token.text.upper() in ("FILTER", "OVER") for token in tokens):
            hint = "in place of FILTER (WHERE c): sum(CASE WHEN c THEN q.x END)"
        elif opening:
            hint = "compute with the results afterwards: .withColumn('range', F.col('hi') - F.col('lo'))"
        raise ArgumentError(f"agg[{name!r}]={text!r} is not one aggregate", accepted=accepted, hint=hint)
    word = tokens[0].text.lower()
    ordered = next((at for at, token in enumerate(tokens) if token.token_type is TokenType.ORDER_BY), None)
    if word in (*_BY_ORDER, "any_value"):
        return _by_order(name, text, word, tokens, ordered, columns, by)
    pieces = _arguments(text, tokens[2:-1])
    function = _SPELLINGS.get(word)
    distinct = bool(pieces) and pieces[0].split()[0].upper() in ("DISTINCT", "ALL")
    found = gathered_call(word, pieces)
    if found is not None:
        sql, uses = _resolved(name, found.argument, columns)
        if all(alias != by for alias, _ in uses):
            whole, _ = _nested(name, text, columns)
            return Call(name, text, found.function, (sql,), whole, "", uses, found.fractions, found.error)
    if function is None or distinct:
        return _from_pairs(name, text, tokens, columns, distinct=distinct)
    if function == "count" and pieces == ["*"]:
        return Call(name, text, function)
    if function == "count" and len(pieces) > 1 and all(pieces):
        # Rows where none of them is NULL.
        pieces = [f"CASE WHEN {' AND '.join(f'({piece}) IS NOT NULL' for piece in pieces)} THEN TRUE END"]
    wanted = 2 if function in ("min_by", "max_by") else 1
    if len(pieces) != wanted or not all(pieces):
        raise ArgumentError(f"agg[{name!r}]={text!r} has {len(pieces)} argument(s)", accepted=f"{wanted} for {word}")
    return _over(name, text, function, pieces, columns, by)


def _over(
    name: str, text: str, function: Function, pieces: Sequence[str], columns: Mapping[str, Sequence[str]], by: str
) -> Call:
    """A function of the matched rows; one that computes with columns of both inputs needs the pairs."""
    found = [_resolved(name, piece, columns) for piece in pieces]
    sqls, uses = tuple(sql for sql, _ in found), frozenset[tuple[str, str]]().union(*(used for _, used in found))
    if any(alias == by for alias, _ in uses):
        why = f"{text} computes with columns of both inputs"
        return Call(name, text, None, whole=f"{function}({', '.join(sqls)})", why=why, uses=uses)
    return Call(name, text, function, sqls, uses=uses)


def _by_order(
    name: str, text: str, word: str, tokens: list[Token], ordered: int | None, columns: Mapping[str, Sequence[str]],
    by: str,
) -> Call:  # fmt: skip
    """``first(x ORDER BY y)``: without an order, Spark would take any row."""
    accepted = "first(q.price ORDER BY q.ts), or last(q.price ORDER BY q.ts)"
    if ordered is None or word not in _BY_ORDER:
        raise ArgumentError(f"agg[{name!r}]={text!r} does not say which row is meant", accepted=accepted)
    pieces = [text[tokens[2].start : tokens[ordered].start].strip(), text[tokens[ordered].end + 1 : tokens[-1].start]]
    if len(_arguments(text, tokens[2:-1])) > 1 or tokens[-2].token_type in (TokenType.ASC, TokenType.DESC):
        raise ArgumentError(f"agg[{name!r}]={text!r}", accepted=f"{accepted}, by one value")
    return _over(name, text, _BY_ORDER[word], [piece.strip() for piece in pieces], columns, by)


def _from_pairs(
    name: str, text: str, tokens: list[Token], columns: Mapping[str, Sequence[str]], *, distinct: bool
) -> Call:
    """A call that only the pairs can answer: an aggregate of Spark, or a function of one."""
    words = [
        token.text.lower()
        for token, following in pairwise(tokens)
        if following.token_type is TokenType.L_PAREN and token.text.lower() in AGGREGATES
    ]
    if not words:
        word = tokens[0].text.lower()
        raise ArgumentError(
            f"agg[{name!r}]={text!r}: {word} is not taken",
            accepted="one call such as avg(q.price), of " + FUNCTIONS + ", or of another aggregate of Spark",
            hint=_ELSEWHERE.get(word) or closest(word, sorted(AGGREGATES)),
        )
    why = f"{text} is over distinct values" if distinct else f"{words[0]} needs the matches themselves"
    whole, uses = _nested(name, text, columns)
    return Call(name, text, None, whole=whole, why=why, uses=uses)


def _nested(name: str, text: str, columns: Mapping[str, Sequence[str]]) -> Resolved:
    """A call with its columns spelled out; it may hold an aggregate anywhere, which :func:`_resolved` would refuse."""
    tokens = _SPARK.tokenize(text)
    called = len(tokens) > 2 and tokens[1].token_type is TokenType.L_PAREN and _closing(tokens) == len(tokens) - 1
    if not called or not any(token.text.lower() in AGGREGATES for token in tokens):
        return _resolved(name, text, columns)
    pieces: list[str] = []
    uses: frozenset[tuple[str, str]] = frozenset()
    for piece in _arguments(text, tokens[2:-1]):
        head, _, rest = piece.partition(" ")
        first = head if head.upper() in ("DISTINCT", "ALL") else ""
        inner = rest.strip() if first else piece
        sql, used = ("*", uses) if inner == "*" else _nested(name, inner, columns)
        pieces.append(f"{first} {sql}".strip())
        uses |= used
    return f"{tokens[0].text}({', '.join(pieces)})", uses


def _closing(tokens: list[Token]) -> int:
    """The position of the parenthesis that closes the first one."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.R_PAREN:
            return at
    return -1


def _arguments(text: str, tokens: list[Token]) -> list[str]:
    """The texts between the commas that are in no further parenthesis or bracket."""
    opening = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
    closing = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
    if not tokens:
        return []
    depth, begin, pieces = 0, tokens[0].start, []
    for token in tokens:
        depth += (token.token_type in opening) - (token.token_type in closing)
        if token.token_type is TokenType.COMMA and depth == 0:
            pieces.append(text[begin : token.start].strip())
            begin = token.end + 1
    return [*pieces, text[begin : tokens[-1].end + 1].strip()]


def _resolved(name: str, piece: str, columns: Mapping[str, Sequence[str]]) -> Resolved:
    """An argument with its columns spelled out, and those columns."""
    try:
        items = read(piece, columns)
    except (PredicateError, UnknownNameError) as error:
        given = error.given.removeprefix("on")
        raise type(error)(f"agg[{name!r}]{given}", accepted=error.accepted, hint=error.hint) from None
    sql = "".join(f"{' ' if item.spaced else ''}{item.sql}" for item in items).strip()
    return sql, frozenset((item.alias, item.sql) for item in items if item.alias)


@dataclass
class Made:
    """The argument columns, measures and outputs of some calls; what two of them need exists once."""

    columns: dict[str, tuple[pa.DataType, Kind | None]] = field(default_factory=dict)
    """Expressions over the matched input, with the Arrow type and the order of each."""
    measures: list[Measure] = field(default_factory=lambda: [Measure("rows")])
    outputs: list[Output] = field(default_factory=list)

    def add(self, typed: TypedCall) -> None:
        """The output of one more call, and what it needs."""
        measure = self._measure(typed)
        if measure not in self.measures:
            self.measures.append(measure)
        call = typed.call
        assert call.function is not None
        self.outputs.append(Output(call.name, call.function, (self.measures.index(measure),), typed.arrow, call.text))

    def _measure(self, typed: TypedCall) -> Measure:
        function, arguments = typed.call.function, typed.arguments
        if not arguments:
            return Measure("rows")
        sql = arguments[0].sql
        if function == "count":
            return Measure("count", (self._column(f"CASE WHEN ({sql}) IS NOT NULL THEN TRUE END", pa.bool_()),))
        if function == "count_if":
            return Measure("count", (self._column(f"CASE WHEN ({sql}) THEN TRUE END", pa.bool_()),))
        if function in ("sum", "avg"):
            return self._sum(typed)
        if function == "count_distinct":
            return Measure("distinct", (self._ordered(typed, arguments[0]),))
        if function == "percentile":
            return self._percentile(typed)
        if function in _ORDERED:
            places = tuple(self._ordered(typed, argument) for argument in arguments)
            return Measure("best", places, largest=function in ("max", "max_by", "bool_or"))
        return Measure("moments", (self._column(f"CAST(({sql}) AS DOUBLE)", pa.float64()),))

    def _sum(self, typed: TypedCall) -> Measure:
        argument = typed.arguments[0]
        sql = argument.sql
        if argument.kind in ("tinyint", "smallint", "int"):
            return Measure("whole", (self._column(f"CAST(({sql}) AS INT)", pa.int32()),), limbs=1)
        if argument.kind == "bigint":
            return Measure("whole", (self._column(f"({sql})", pa.int64()),), limbs=2)
        if pa.types.is_decimal(argument.arrow) and pa.types.is_decimal(typed.arrow):
            limbs = 2 if argument.arrow.precision <= 18 else 4
            return Measure("whole", (self._column(f"({sql})", argument.arrow),), limbs=limbs)
        return Measure("float", (self._column(f"CAST(({sql}) AS DOUBLE)", pa.float64()),))

    def _percentile(self, typed: TypedCall) -> Measure:
        call, argument = typed.call, typed.arguments[0]
        if call.error is None and argument.kind.startswith("decimal"):
            place = self._column(f"CAST(({argument.sql}) AS DOUBLE)", pa.float64(), "float64")
        else:
            place = self._ordered(typed, argument)
        return Measure("quantile", (place,), fractions=call.fractions, error=call.error)

    def _ordered(self, typed: TypedCall, argument: Argument) -> int:
        assert argument.key is not None, f"{typed.call.text} comes from the pairs"
        return self._column(f"({argument.sql})", argument.arrow, argument.key.kind)

    def _column(self, sql: str, kind: pa.DataType, order: Kind | None = None) -> int:
        known = self.columns.get(sql)
        self.columns[sql] = (kind, order if known is None else known[1] or order)
        return list(self.columns).index(sql)


def from_pairs_by_type(typed: TypedCall) -> Call:
    """The call itself, or from the pairs if kernels do not take the type of an argument."""
    call = typed.call
    untaken = next((argument for argument in typed.arguments if not _is_taken(typed, argument)), None)
    if untaken is None:
        return call
    return replace(call, function=None, whole=call.sql, why=f"{call.text} is over a value of type {untaken.kind}")


def _is_taken(typed: TypedCall, argument: Argument) -> bool:
    """Whether a kernel computes the call over an argument of this type."""
    function, key = typed.call.function, argument.key
    if function == "count_distinct":
        return key is not None and "collate" not in argument.kind
    if function == "percentile" and typed.call.error is None:
        return argument.kind.startswith(_NUMBERS) and typed.kind in ("double", "array<double>")
    if function == "percentile":
        kind = typed.arrow.value_type if pa.types.is_list(typed.arrow) else typed.arrow
        return key is not None and key.kind != "rank" and kind == argument.arrow
    if function in ("sum", "avg"):
        # Of intervals both are intervals; everything else that Spark adds is a number, or read as a double.
        decimals = pa.types.is_decimal(argument.arrow) and pa.types.is_decimal(typed.arrow)
        return argument.kind in _WHOLE or decimals or typed.kind == "double"
    return function not in _ORDERED or key is not None


def kinds_of(made: Made) -> tuple[Kind | None, ...]:
    """How each argument column is ordered."""
    return tuple(order for _, order in made.columns.values())
