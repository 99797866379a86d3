"""The user's text with the joins that Dovetail runs replaced; every other character stays.

A join's result is a frame with one column for each input.  In the text it becomes a table with hidden columns, and
behind it each relation again under its own alias, as a lateral subquery of one row.  So names, stars and ambiguities
mean what they meant before, and Spark's optimizer turns all of it into one projection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from dovetail.conditions.names import quoted
from dovetail.errors import in_statement
from dovetail.statements.attributes import Attribute, Offer
from dovetail.statements.calls import JoinCall, JoinInput
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import Block, Scope, Star

# No SQL text holds this character, so whatever is between two of them is ours.
_DELIMITER = "\0"
_OWN_HINTS = frozenset(("DOVETAIL", "BROADCAST", "BROADCASTJOIN", "MAPJOIN"))


def placeholder(name: str) -> str:
    """The name of a frame within a text, until :func:`template` writes it as Spark wants it."""
    return f"{_DELIMITER}{name}{_DELIMITER}"


def placeholders(text: str) -> list[str]:
    """The names of the frames that a text needs."""
    return list(dict.fromkeys(re.findall(f"{_DELIMITER}([^{_DELIMITER}]*){_DELIMITER}", text)))


def template(text: str) -> str:
    """A text with marks as a template for ``spark.sql``, in which braces enclose the names of frames.

    Examples
    --------
    >>> template("SELECT '{}' FROM " + placeholder("f0"))
    "SELECT '{{}}' FROM {f0}"
    """
    if _DELIMITER not in text:
        return text
    escaped = text.replace("{", "{{").replace("}", "}}")
    return re.sub(f"{_DELIMITER}([^{_DELIMITER}]*){_DELIMITER}", r"{\1}", escaped)


class Edits:
    """A text and the parts of it that are to be replaced.

    Examples
    --------
    >>> edits = Edits("SELECT x FROM a, b WHERE a.x < b.x")
    >>> edits.replace(Slice(14, 18), "c")
    >>> edits.replace(Slice(19, 34), "")
    >>> edits.render(Slice(0, 34))
    'SELECT x FROM c '
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: dict[Slice, str] = {}

    def replace(self, at: Slice, new: str) -> None:
        """Put `new` in place of a slice; earlier edits inside that slice are dropped."""
        inside = [one for one in self._edits if at.start <= one.start and one.stop <= at.stop]
        for one in inside:
            del self._edits[one]
        self._edits[at] = new

    def inserted(self, offset: int) -> str:
        """What has been put in front of a character."""
        return self._edits.get(Slice(offset, offset), "")

    def render(self, at: Slice) -> str:
        """A part of the text with all edits in it."""
        pieces, begin = [], at.start
        for edited in sorted(self._edits):
            if edited.start >= begin and edited.stop <= at.stop:
                pieces += [self.text[begin : edited.start], self._edits[edited]]
                begin = edited.stop
        return "".join([*pieces, self.text[begin : at.stop]])


def scoped(query: str, scopes: Sequence[Scope], edits: Edits) -> str:
    """A query that sees the WITH clauses around a SELECT."""
    for scope in reversed(scopes):
        tables = ", ".join(edits.render(table) for table in scope.tables)
        query = f"WITH {'RECURSIVE ' if scope.recursive else ''}{tables} SELECT * FROM ({query})"
    return query


def input_query(
    one: JoinInput, source: str, offer: Offer, columns: Mapping[str, Sequence[str]], *, whole: bool = True
) -> str:
    """The query for an input of a join: its relations, further columns and conditions, from the text `source`.

    `whole` says that the relations in `source` have no more than these columns.
    """
    values = [f"{offer.struct_of(member, columns[member], whole=whole)} AS {quoted(member)}" for member in one.members]
    if not one.nested:
        (member,) = one.members
        names = [f"{quoted(member)}.{quoted(name)}" for name in columns[member]]
        values = [f"{quoted(member)}.*"] if whole else names
    values += [f"{sql} AS {quoted(name)}" for name, sql in one.keys]
    values += [f"{quoted(name)} AS {quoted(_merged(at))}" for at, name in enumerate(offer.merged)]
    where = f" WHERE {' AND '.join(one.conditions)}" if one.conditions else ""
    return f"SELECT {', '.join(values)} FROM {source}{where}"


def _merged(number: int) -> str:
    """The name, within an input, of a column that a full join with USING merges."""
    return f"__merged_{number}"


def hidden_names(number: int, count: int) -> list[str]:
    """Names for the columns of a join's result that no user writes."""
    return [f"__dovetail_{number}_{at}" for at in range(count)]


def holders(call: JoinCall, names: Sequence[str], offer: Offer) -> dict[Attribute, tuple[str, ...]]:
    """Where the columns of the relations are in a join's result, whose columns are called `names`."""
    places: dict[Attribute, tuple[str, ...]] = {}
    for one, name in zip(call.outputs, names, strict=False):
        for attribute in (*offer.visible, *offer.hidden):
            if attribute.alias in one.members:
                inner = (attribute.alias, attribute.name) if one.nested else (attribute.name,)
                places[attribute] = (name, *inner)
    earlier = [name for name in offer.merged if name not in call.coalesced]
    for number, merged in enumerate(earlier):
        places[Attribute(merged, None)] = (names[0], _merged(number))
    return places


def _value(call: JoinCall, base: str, offer: Offer, places: Mapping[Attribute, tuple[str, ...]], one: Attribute) -> str:
    """A column of the relations as SQL over a join's result."""
    if one.alias is not None or one.name not in call.coalesced:
        return ".".join(map(quoted, (base, *places[one])))
    both = [
        next(key for key in offer.hidden if key.alias in side.members and key.name.casefold() == one.name.casefold())
        for side in call.inputs
    ]
    return f"coalesce({', '.join('.'.join(map(quoted, (base, *places[key]))) for key in both)})"


def from_clause(call: JoinCall, number: int, offer: Offer, further: Sequence[str]) -> str:
    """What FROM holds instead of a join: its result, and each relation and further column under its old name."""
    base = f"__dovetail_{number}"
    names = hidden_names(number, len(call.outputs) + len(further))
    places = holders(call, names, offer)
    parts = [f"{placeholder(base)} AS {quoted(base)}"]
    for alias, attributes in groupby(offer.visible, key=lambda attribute: attribute.alias):
        fields = ", ".join(
            f"{_value(call, base, offer, places, attribute)} AS {quoted(attribute.name)}" for attribute in attributes
        )
        parts.append(f"JOIN LATERAL (SELECT {fields}) AS {quoted(alias or f'{base}_merged')}")
    if further:
        rest = names[len(call.outputs) :]
        fields = ", ".join(f"{quoted(base)}.{quoted(a)} AS {quoted(b)}" for a, b in zip(rest, further, strict=True))
        parts.append(f"JOIN LATERAL (SELECT {fields}) AS {quoted(f'{base}_more')}")
    return " ".join(parts)


def concealed(call: JoinCall, number: int, offer: Offer, further: Sequence[str]) -> list[str]:
    """The columns of a join's result as SQL; ``*`` does not mean them."""
    base = f"__dovetail_{number}"
    names = [quoted(name) for name in hidden_names(number, len(call.outputs) + len(further))]
    aliases = dict.fromkeys(attribute.alias for attribute in offer.hidden if attribute.alias is not None)
    return names + [f"{quoted(base)}.{quoted(alias)}" for alias in aliases]


def edit_block(
    edits: Edits, block: Block, moved: frozenset[Slice], own_columns: Sequence[str], offers: Sequence[Offer]
) -> None:
    """The rest of a SELECT whose FROM has changed: WHERE, the clauses of the dialect, stars and hints."""
    if block.extras.slice is not None:
        edits.replace(block.extras.slice, "")
    if block.where is not None and moved:
        left = [f"({edits.render(conjunct)})" for conjunct in block.conjuncts if conjunct not in moved]
        edits.replace(block.where, f"WHERE {' AND '.join(left)}" if left else "")
    names = ", ".join(own_columns)
    for star in block.stars:
        if star.alias is not None:
            _edit_qualified_star(edits, star, offers)
        elif star.excepted is None:
            edits.replace(Slice(star.offset, star.offset + 1), f"* EXCEPT ({names})")
        else:
            edits.replace(Slice(star.excepted, star.excepted), f"{names}, ")
    if block.hint is not None and set(block.hints) <= _OWN_HINTS:
        edits.replace(block.hint, "")


def _edit_qualified_star(edits: Edits, star: Star, offers: Sequence[Offer]) -> None:
    """``c.*`` also means the columns of c that USING hides, and they come first."""
    for attribute in (attribute for offer in offers for attribute in offer.hidden):
        if attribute.alias is None or star.alias is None or attribute.alias.casefold() != star.alias.casefold():
            continue
        if star.excepted is not None:
            raise in_statement(
                edits.text, star.offset, f"{star.alias}.* EXCEPT, where USING hides a column of {star.alias}",
                accepted="the columns by name",
            )  # fmt: skip
        before = edits.inserted(star.offset)
        column = f"{quoted(attribute.alias)}.{quoted(attribute.name)}, "
        edits.replace(Slice(star.offset, star.offset), before + column)
