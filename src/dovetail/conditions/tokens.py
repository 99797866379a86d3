"""Reading a join condition: SQL text in, tokens with resolved columns out.

sqlglot reads the text, finds its columns and refuses what is no condition on rows.  It never writes any SQL:
each `Item` holds a slice of the user's own text, and only the column references are rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from sqlglot import Dialect, ErrorLevel, Token, TokenType, exp
from sqlglot.errors import ParseError, TokenError

from dovetail.conditions.names import quoted
from dovetail.errors import (
    PredicateError,
    UnknownNameError,
    at_position,
    listing,
    unknown_alias,
    unknown_column,
)

_SPARK = Dialect.get_or_raise("spark")
_DELIMITERS = re.compile(r"'+|\"+|`+|/\*|\{#")
"""What begins a string, a name or a comment; the second of two quotes stands for one within a string."""
ACCEPTED = "a condition over the columns of the inputs, such as A.k = B.k AND A.x < B.y"
"""What an error message says of a join condition that it refuses."""

# Functions of Spark 4.3 that Spark itself takes in no join condition.  sqlglot's classes cover only a part of
# them, hence the names.
_NOT_ROWWISE = {
    "an aggregate": """any any_value approx_count_distinct approx_percentile approx_top_k
        approx_top_k_accumulate approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg
        bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr
        count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
        histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
        kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last
        last_value listagg max max_by mean measure median min min_by mode percentile percentile_approx
        percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
        regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
        theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
        tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
        tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance""",
    "a window function": """counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank
        row_number""",
    "a generator": """explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
        variant_explode variant_explode_outer""",
    "a non-deterministic function": """input_file_block_length input_file_block_start input_file_name
        java_method monotonically_increasing_id rand randn random randstr reflect shuffle spark_partition_id
        try_reflect uniform uuid""",
}
_REFUSED_FUNCTIONS = {name: kind for kind, names in _NOT_ROWWISE.items() for name in names.split()}
AGGREGATES = frozenset(_NOT_ROWWISE["an aggregate"].split())
"""The names of Spark's aggregates."""
_REFUSED_NODES: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Query, "a subquery"),
    (exp.Values, "a subquery"),
    (exp.Window, "a window function"),
    (exp.Star, "a star"),
    (exp.Placeholder, "a parameter"),
    (exp.Parameter, "a parameter"),
)


# Names in front of a parenthesis about which nobody has to ask Spark: its functions that people write in conditions,
# all of them deterministic, and the words and types that a parenthesis may follow.
_NAMES = """abs acos add_months any array array_contains array_max array_min arrays_overlap ascii asin atan atan2 base64
    between bigint bin binary bit_count bround btrim cardinality cast cbrt ceil ceiling char char_length
    character_length coalesce concat concat_ws contains cos crc32 current_date current_timestamp date date_add
    date_diff date_format date_from_unix_date date_sub date_trunc dateadd datediff day dayofmonth dayofweek dayofyear
    decimal decode degrees double e element_at elt encode endswith equal_null exp expm1 extract factorial find_in_set
    flatten float floor from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hour hypot if
    ifnull initcap instr int isnan isnotnull isnull last_day lcase least left len length levenshtein ln localtimestamp
    locate log log10 log1p log2 lower lpad ltrim make_date make_timestamp map md5 minute mod month months_between
    named_struct nanvl negative next_day now nullif nvl nvl2 octet_length overlay pi pmod position positive pow power
    quarter radians regexp regexp_count regexp_extract regexp_instr regexp_like regexp_replace regexp_substr repeat
    replace reverse right rint rlike round rpad rtrim second sha sha1 sha2 sign signum sin size slice smallint
    sort_array soundex split split_part sqrt startswith string struct substr substring substring_index tan tanh
    timestamp timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff tinyint to_date
    to_number to_timestamp to_timestamp_ltz to_timestamp_ntz to_utc_timestamp translate trim trunc try_add
    try_cast try_divide try_multiply try_subtract try_to_number try_to_timestamp typeof ucase unbase64 unhex unix_date
    unix_micros unix_millis unix_seconds unix_timestamp upper varchar weekday weekofyear width_bucket xxhash64 year
    all and as by case collate distinct div else end escape exists false filter from ilike in interval is like not
    null on or over some then true using when where xor"""
_DETERMINISTIC = frozenset(_NAMES.split())


def may_be_random(text: str) -> bool:
    """Whether a condition calls a function that may give another value each time, as far as names can tell.

    Examples
    --------
    >>> [may_be_random(text) for text in ("A.x < (B.y + 1)", "lower(A.s) IN ('f(x)')", "chance(A.x) > 0", "db.abs(1)")]
    [False, False, True, True]
    """
    tokens = _SPARK.tokenize(text)
    for at, (token, following) in enumerate(pairwise(tokens)):
        named = token.token_type is TokenType.IDENTIFIER or token.text.isidentifier()
        if following.token_type is not TokenType.L_PAREN or token.token_type is TokenType.STRING or not named:
            continue
        # A name in backquotes or with a schema may be anybody's.
        qualified = at > 0 and tokens[at - 1].token_type is TokenType.DOT
        if qualified or token.token_type is TokenType.IDENTIFIER or token.text.lower() not in _DETERMINISTIC:
            return True
    return False


class Item(NamedTuple):
    """A token, or a complete column reference, with the text that Spark will see."""

    kind: TokenType
    sql: str
    alias: str | None
    spaced: bool


def read(text: str, columns: Mapping[str, Sequence[str]]) -> list[Item]:
    """Read the text of a condition over these columns, given by alias.

    Raises
    ------
    PredicateError
        If the text is no condition on rows, or a name in it is ambiguous.
    UnknownNameError
        If the text names an alias or a column that does not exist.

    Examples
    --------
    >>> [item.sql for item in read("a.K < 1 + lo", {"A": ["k"], "B": ["lo"]})]
    ['`A`.`k`', '<', '1', '+', '`B`.`lo`']
    """
    try:
        tokens = _SPARK.tokenize(text)
    except TokenError:
        raise _unfinished(text) from None
    if not tokens:
        raise PredicateError("on is empty", accepted=ACCEPTED)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise _refusal(text, token.start, "ends one statement and starts another", "a semicolon")
    try:
        (tree,) = _SPARK.parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        raise PredicateError("on is nested too deeply to read", accepted=ACCEPTED) from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # sqlglot counts on the right number of arguments in a few functions, such as map().
        given = f"on={text!r} holds a function call that cannot be read"
        raise PredicateError(given, accepted=ACCEPTED, hint="look at the number of arguments") from error
    if tree is None:
        raise PredicateError(f"on={text!r} is not a condition", accepted=ACCEPTED)
    _refuse(text, tokens, tree)

    # Where each column reference starts: how many of its parts there are, and who it is.
    found: dict[int, tuple[int, tuple[str, str, int]]] = {}
    for column in tree.find_all(exp.Column):
        if not is_named(column):
            raise PredicateError(f"on={text!r} has something else than a name behind a dot", accepted=ACCEPTED)
        names = [_name(text, part) for part in column.parts]
        found[column.parts[0].meta["start"]] = (len(names), _resolve(names, columns))
    # sqlglot drops the arguments that it does not expect in a call: their columns are only in the text.
    variables = {name.name.lower() for node in tree.find_all(exp.Lambda) for name in node.expressions}
    for at, names in _qualified(tokens, [*columns]):
        if tokens[at].start not in found and names[0].lower() not in variables:
            found[tokens[at].start] = (len(names), _resolve(names, columns))
    return list(_spelled(text, tokens, found))


def _qualified(tokens: list[Token], aliases: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The token numbers at which an alias, a dot and a name follow each other."""
    for at in range(len(tokens) - 2):
        first, dot, second = tokens[at : at + 3]
        after_dot = at > 0 and tokens[at - 1].token_type is TokenType.DOT
        literal = first.token_type in (TokenType.STRING, TokenType.RAW_STRING)
        if dot.token_type is TokenType.DOT and not after_dot and not literal and _matching(first.text, aliases):
            yield at, [first.text, second.text]


def is_named(column: exp.Column) -> bool:
    """Whether a column is written as names: sqlglot also takes ``A.(k - 1)`` for one, whose end has no place."""
    return all("start" in part.meta for part in column.parts)


def _name(text: str, part: exp.Expr) -> str:
    # Unquoted, the text is the name: sqlglot would read `1L` after a dot as the number 1 and a type.
    written = text[part.meta["start"] : part.meta["end"] + 1]
    return str(part.name) if written.startswith("`") else written


def _spelled(text: str, tokens: list[Token], found: Mapping[int, tuple[int, tuple[str, str, int]]]) -> Iterator[Item]:
    end, at, after_dot = 0, 0, False
    while at < len(tokens):
        first = last = tokens[at]
        kind, alias, sql = first.token_type, None, text[first.start : first.end + 1]
        if first.start in found:
            count, (alias, column, used) = found[first.start]
            fields = tokens[at : at + 2 * count - 1 : 2]
            last = fields[-1]
            names = [quoted(alias), quoted(column), *(text[t.start : t.end + 1] for t in fields[used:])]
            kind, sql = TokenType.COLUMN, ".".join(names)
        elif after_dot and kind is not TokenType.NUMBER:
            kind = TokenType.VAR  # the field of a struct, even where it is called `end` or `and`
        yield Item(kind, sql, alias, first.start > end)
        end, after_dot = last.end + 1, kind is TokenType.DOT
        # Not one by one: sqlglot turns 1L into the three tokens 1 :: BIGINT over the same two characters.
        while at < len(tokens) and tokens[at].start < end:
            at += 1


def _refuse(text: str, tokens: list[Token], tree: exp.Expr) -> None:
    for node, kind in _REFUSED_NODES:
        if tree.find(node) is not None:
            raise PredicateError(f"on holds {kind}, and so is not a condition on rows", accepted=ACCEPTED)
    before = TokenType.DOT, TokenType.LIKE, TokenType.ILIKE  # a method of a struct, LIKE ANY (...)
    for at, token in enumerate(tokens[:-1]):
        name = token.text.lower()
        called = tokens[at + 1].token_type is TokenType.L_PAREN and token.token_type is not TokenType.STRING
        if called and name in _REFUSED_FUNCTIONS and (at == 0 or tokens[at - 1].token_type not in before):
            raise _refusal(text, token.start, "makes this no condition on rows", _REFUSED_FUNCTIONS[name])


def _resolve(names: list[str], columns: Mapping[str, Sequence[str]]) -> tuple[str, str, int]:
    """The input and the column that a dotted name means, and how many of its parts say so."""
    aliases = _matching(names[0], columns)
    if len(names) > 1 and aliases:
        if len(aliases) > 1:
            raise _ambiguous(names[0], f"inputs differ only in case: {listing(aliases)}", aliases)
        own = _matching(names[1], columns[aliases[0]])
        if len(own) > 1:
            spelled = [f"{aliases[0]}.{column}" for column in own]
            raise _ambiguous(".".join(names[:2]), f"columns differ only in case: {listing(spelled)}", spelled)
        if own:
            return aliases[0], own[0], 2
    # As in Spark, what is no qualified column can still be a column and the fields in it.
    owners = [(alias, column) for alias in columns for column in _matching(names[0], columns[alias])]
    if len(owners) == 1:
        return *owners[0], 1
    if owners:
        spelled = [f"{alias}.{column}" for alias, column in owners]
        raise _ambiguous(names[0], f"more than one column has this name: {listing(spelled)}", spelled)
    if aliases and len(names) > 1:
        raise unknown_column(names[1], aliases[0], columns[aliases[0]], where="on")
    if aliases:
        raise PredicateError(
            f"on uses the input {aliases[0]!r} as if it were a column",
            accepted=f"a column of it: {listing(f'{aliases[0]}.{column}' for column in columns[aliases[0]])}",
        )
    if len(names) > 1:
        raise unknown_alias(names[0], columns, where="on")
    every = listing(f"{alias}.{column}" for alias in columns for column in columns[alias])
    raise UnknownNameError(f"on names the column {names[0]!r}, which no input has", accepted=f"one of {every}")


def _matching(name: str, known: Mapping[str, Sequence[str]] | Sequence[str]) -> list[str]:
    """The names that Spark takes for `name`: an exact one wins over those that differ in case."""
    exact = [candidate for candidate in known if candidate == name]
    return exact or [candidate for candidate in known if candidate.lower() == name.lower()]


# --- wording ---------------------------------------------------------------------------------------------


def _ambiguous(name: str, why: str, spelled: Sequence[str]) -> PredicateError:
    return PredicateError(
        f"on names {name!r}, which is ambiguous: {why}", accepted=" or ".join(spelled), hint="name it in full"
    )


def _located(text: str, offset: int) -> tuple[int, str]:
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    return line, at_position(text, line, column)


def _refusal(text: str, offset: int, why: str, what: str) -> PredicateError:
    line, shown = _located(text, offset)
    return PredicateError(f"on, line {line}: {what} {why}\n{shown}", accepted=ACCEPTED)


def _syntax_error(text: str, error: ParseError) -> PredicateError:
    first = error.errors[0]
    line, highlight = int(first["line"] or 1), str(first["highlight"] or "")
    # sqlglot counts to the last character of the token.
    shown = at_position(text, line, int(first["col"] or 1) - len(highlight) + 1)
    starts = not str(first["start_context"] or "").strip()
    hint = "write only the condition, without SELECT, WHERE or ON" if starts else None
    return PredicateError(f"on, line {line}: this is not a condition\n{shown}", accepted=ACCEPTED, hint=hint)


def _unfinished(text: str) -> PredicateError:
    """For text that ends inside a string, a name or a comment: the caret shows where that begins."""
    return _refusal(text, unfinished_at(text, _SPARK), "begins here and does not end", "a string, a name or a comment")


def unfinished_at(text: str, dialect: Dialect) -> int:
    """Where a string, a name or a comment begins that does not end, in text that cannot be cut into tokens.

    Examples
    --------
    >>> unfinished_at("A.x < 'a' AND A.y < 'b", _SPARK)
    20
    """
    # Only where one can begin: to cut every beginning of a long text into tokens takes minutes.
    for found in reversed(list(_DELIMITERS.finditer(text))):
        try:
            dialect.tokenize(text[: found.start()])
        except TokenError:
            continue
        return found.start()
    return 0
