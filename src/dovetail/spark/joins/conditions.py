"""A condition given as Columns: its SQL text, which Spark has confirmed to mean the same.

There is no public way from a Column to SQL.  What there is: the name that Spark gives a column without an alias, and
the text of the Column itself.  Both lose something (the quotes of strings, the type of a number, whose column it is),
so they only suggest texts, and Spark tells whether one of them is the Column: ``DataFrame.sameSemantics`` compares the
analysed plans.  A Column of which no suggestion is the same is refused.  All of this is analysis; no job runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dovetail.conditions.names import quoted
from dovetail.errors import PredicateError, listing
from dovetail.spark.frames import Side

ACCEPTED = "SQL text such as 'a.x <= b.y', a Column such as F.col('a.x') <= F.col('b.y'), or a list of these"
_MOST_SUGGESTIONS = 32
_WORD = r"[^\W\d]\w*"
_BARE = re.compile(rf"(?<![\w.`'])({_WORD})(?![\w(`'])")
_FRACTION = re.compile(r"(?<![\w.'])(\d+\.\d+(?:E-?\d+)?)(?![\w.'])")
_WORDS = """and or not in is null true false case when then else end cast as like ilike rlike escape between interval
    date timestamp timestamp_ntz year month day hour minute second to int integer bigint smallint tinyint double float
    boolean string binary decimal div try_cast"""
_KEYWORDS = frozenset(_WORDS.split())


def condition_text(on: object, frames: Mapping[str, DataFrame]) -> str:
    """The text of a condition: a text, a Column, or a list of both that all have to be true.

    Raises
    ------
    PredicateError
        If it is something else, or a Column whose text cannot be told.
    """
    if isinstance(on, str):
        return on
    if isinstance(on, Column):
        return column_text(on, frames)
    if not isinstance(on, list | tuple) or not on:
        raise PredicateError(f"on={on!r} is not a condition", accepted=ACCEPTED)
    texts = []
    for one in on:
        if not isinstance(one, str | Column):
            raise PredicateError(f"on holds {one!r}, which is not a condition", accepted=ACCEPTED)
        texts.append(condition_text(one, frames))
    # The line break ends a comment.
    return (
        texts[0] if len(texts) == 1 else " AND ".join(f"({text}\n)" if "--" in text else f"({text})" for text in texts)
    )


def column_text(column: Column, frames: Mapping[str, DataFrame], argument: str = "on") -> str:
    """The text of a Column over the inputs; `argument` is the one that holds it, for messages.

    Raises
    ------
    PredicateError
        If Spark cannot resolve the Column, or its text cannot be told.
    """
    written = re.sub(r"^Column<'(.*)'>$", r"\1", str(column), flags=re.DOTALL)
    structs = _crossed([Side.of(alias, frame).frame for alias, frame in frames.items()])
    name, _ = _name(structs, column)
    if name is not None:
        # The aliases are columns here, and Spark names their fields a.x.
        found = _confirmed(structs, column, _respelled([_fields_quoted(name, frames), written], frames))
    else:
        # The Column may be one of a frame, frame["x"], which knows only columns of its own.
        aliased = _crossed([frame.alias(alias) for alias, frame in frames.items()])
        name, complaint = _name(aliased, column)
        if name is None:
            raise PredicateError(
                f"{argument} is the Column {written[:200]}, which Spark cannot resolve over "
                f"the inputs {listing(frames)}",
                accepted=ACCEPTED,
                hint=f"F.col('a.x') is the column x of the input 'a'. Spark says: {complaint}",
            )
        found = _confirmed(aliased, column, (text for one in (name, written) for text in _qualified(one, frames)))
    if found is None:
        raise PredicateError(
            f"{argument} is the Column {written[:200]}, which has no SQL text that means the same",
            accepted=ACCEPTED,
            hint="write that part as SQL text: on=\"a.x <= b.y AND a.kind = 'bid'\", or "
            "on=[F.col('a.x') <= F.col('b.y'), \"a.kind = 'bid'\"]; register a UDF to name it in a text",
        )
    return found


def spark_name(column: Column, frames: Mapping[str, DataFrame]) -> str:
    """The name that Spark gives a Column of some frames."""
    name, _ = _name(_crossed([frame.alias(alias) for alias, frame in frames.items()]), column)
    return name or str(column)


def _crossed(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.crossJoin(right), frames)


def _name(joined: DataFrame, column: Column) -> tuple[str | None, str]:
    """The name that Spark gives a Column; where it cannot resolve the Column, its complaint."""
    try:
        return joined.select(column).columns[0], ""
    except PySparkException as error:
        return None, next((line for line in str(error).splitlines() if line.strip()), "")


def _confirmed(joined: DataFrame, column: Column, suggestions: Iterator[str]) -> str | None:
    """The first suggestion that Spark resolves to what the Column is."""
    meant = joined.select(column.alias("on"))
    for text in suggestions:
        try:
            if meant.sameSemantics(joined.select(F.expr(text).alias("on"))):
                return text
        except PySparkException:
            continue  # no SQL, or names that do not exist
    return None


def _respelled(texts: Sequence[str], frames: Mapping[str, DataFrame]) -> Iterator[str]:
    """Each text as it is, with numbers as doubles, and with words that name nothing as strings."""
    names = {name.casefold() for frame in frames.values() for name in frame.columns} | {*map(str.casefold, frames)}
    known = names | _KEYWORDS

    def as_string(match: re.Match[str]) -> str:
        return match[1] if match[1].casefold() in known else f"'{match[1]}'"

    def as_doubles(text: str) -> str:
        return _FRACTION.sub(r"\1D", text)

    def as_strings(text: str) -> str:
        return _BARE.sub(as_string, text)

    spellings: tuple[Callable[[str], str], ...] = (
        str, as_doubles, as_strings, lambda text: as_doubles(as_strings(text)),
    )  # fmt: skip
    yield from dict.fromkeys(spelling(text) for text in texts for spelling in spellings)


def _fields_quoted(text: str, frames: Mapping[str, DataFrame]) -> str:
    """With the names in backquotes that need them; Spark leaves those out."""
    for alias, frame in frames.items():
        for name in frame.columns:
            if not re.fullmatch(_WORD, name):
                text = text.replace(f"{alias}.{name}", f"{quoted(alias)}.{quoted(name)}")
    return text


def _qualified(text: str, frames: Mapping[str, DataFrame]) -> Iterator[str]:
    """With an input in front of every column: all ways where several inputs have a column of that name."""
    owners: dict[str, list[str]] = {}
    for alias, frame in frames.items():
        for name in frame.columns:
            owners.setdefault(name.casefold(), []).append(f"{quoted(alias)}.{quoted(name)}")
    places = [match for match in _BARE.finditer(text) if match[1].casefold() in owners]
    choices = [owners[match[1].casefold()] for match in places]
    if prod(map(len, choices)) > _MOST_SUGGESTIONS:
        return
    ways = sorted(product(*choices), key=lambda names: -len({name.split("`")[1] for name in names}))
    for names in ways:
        parts, end = [], 0
        for match, name in zip(places, names, strict=True):
            parts += [text[end : match.start()], name]
            end = match.end()
        yield from _respelled(["".join([*parts, text[end:]])], frames)
