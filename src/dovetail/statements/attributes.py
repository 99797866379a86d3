"""The columns that a part of FROM offers: their order, their relations, and those that USING and NATURAL hide.

Spark merges the columns of USING into one, puts it in front, and hides the others: ``*`` leaves them out and a bare
name does not mean them, but ``c.id`` and ``c.*`` still do.  What replaces a join in the text has to offer the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dovetail.conditions.join_kind import JoinKind
from dovetail.conditions.names import bare, quoted
from dovetail.errors import StatementError
from dovetail.statements.syntax.grammar import Slice
from dovetail.statements.syntax.statement import Block, Join


@dataclass(frozen=True)
class Attribute:
    """A column of FROM."""

    name: str
    alias: str | None
    """The relation that it belongs to; None for the merged column of a full join."""


@dataclass(frozen=True)
class Offer:
    """What ``*`` expands to, in order, and what only a qualified name reaches."""

    visible: tuple[Attribute, ...]
    hidden: tuple[Attribute, ...] = ()

    @property
    def merged(self) -> tuple[str, ...]:
        """Names of columns that belong to no relation."""
        return tuple(attribute.name for attribute in self.visible if attribute.alias is None)

    def hidden_of(self, alias: str) -> tuple[str, ...]:
        """The hidden columns of a relation."""
        return tuple(attribute.name for attribute in self.hidden if attribute.alias == alias)

    def struct_of(self, alias: str, columns: Sequence[str], *, whole: bool = True) -> str:
        """SQL for these columns of a relation as one value; `whole` says that they are all that it has."""
        if whole and not self.hidden_of(alias):
            return f"struct({quoted(alias)}.*)"
        return f"struct({', '.join(f'{quoted(alias)}.{quoted(name)} AS {quoted(name)}' for name in columns)})"


def offered(
    block: Block,
    within: Slice,
    columns: Mapping[str, Sequence[str]],
    *,
    case_sensitive: bool = False,
    natural_ignores_case: bool = True,
) -> Offer:
    """What the relations of a part of FROM offer; `case_sensitive` as the session is.

    `natural_ignores_case` says whether NATURAL follows the session there: not every version of Spark does.

    Raises
    ------
    StatementError
        If columns are merged in a way that cannot be written in another form.

    Examples
    --------
    >>> from dovetail.statements.syntax.statement import read_statement
    >>> text = "SELECT * FROM a JOIN c USING (id) JOIN b ON a.x < b.y"
    >>> (block,) = read_statement(text).blocks
    >>> offer = offered(block, block.slice, {"a": ["x", "id"], "c": ["id", "z"], "b": ["y"]})
    >>> [f"{one.alias}.{one.name}" for one in offer.visible], [f"{one.alias}.{one.name}" for one in offer.hidden]
    (['a.id', 'a.x', 'c.z', 'b.y'], ['c.id'])
    """
    inside = [
        relation
        for relation in block.relations
        if within.start <= relation.slice.start and relation.slice.stop <= within.stop
    ]
    joins = {join.relation.alias: join for join in block.joins}
    offer = Offer(_attributes(inside[0].alias, columns))
    for relation in inside[1:]:
        join = joins[relation.alias]
        exact = case_sensitive or (join.natural and not natural_ignores_case)
        offer = _joined(offer, join, columns, str if exact else str.casefold)
    _refuse_confusion(offer, columns)
    return offer


def _attributes(alias: str, columns: Mapping[str, Sequence[str]]) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, alias) for name in columns[alias])


def _joined(left: Offer, join: Join, columns: Mapping[str, Sequence[str]], fold: Callable[[str], str]) -> Offer:
    """What two sides of a join offer together."""
    kind = JoinKind.of(join.how)
    right = _attributes(join.relation.alias, columns)
    if not join.merges:
        return Offer(left.visible + right, left.hidden) if kind.pairs else left
    names = join.using
    if join.natural:
        on_right = {fold(attribute.name) for attribute in right}
        names = tuple(attribute.name for attribute in left.visible if fold(attribute.name) in on_right)
    left_keys = [_named(left.visible, name, fold) for name in names]
    right_keys = [_named(right, name, fold) for name in names]
    left_rest = tuple(attribute for attribute in left.visible if attribute not in left_keys)
    right_rest = tuple(attribute for attribute in right if attribute not in right_keys)
    if not kind.pairs:
        return Offer((*left_keys, *left_rest), left.hidden)
    if join.how == "full":
        merged = tuple(Attribute(key.name, None) for key in left_keys)
        hidden = (*left_keys, *right_keys)
    elif join.how == "right":
        merged, hidden = tuple(right_keys), tuple(left_keys)
    else:
        merged, hidden = tuple(left_keys), tuple(right_keys)
    # What has no relation cannot be reached by a qualified name.
    reachable = tuple(attribute for attribute in hidden if attribute.alias is not None)
    return Offer((*merged, *left_rest, *right_rest), (*left.hidden, *reachable))


def _named(attributes: Sequence[Attribute], name: str, fold: Callable[[str], str]) -> Attribute:
    found = [attribute for attribute in attributes if fold(attribute.name) == fold(name)]
    if len(found) != 1:
        raise StatementError(
            f"USING names the column {bare(name)}, which {len(found)} columns of one side are called",
            accepted="a column that each side has once",
        )
    return found[0]


def _refuse_confusion(offer: Offer, columns: Mapping[str, Sequence[str]]) -> None:
    """Hidden columns become fields of a column that has the name of their relation: nothing else may be called so."""
    names = {name.casefold() for given in columns.values() for name in given}
    for attribute in offer.hidden:
        if attribute.alias is not None and attribute.alias.casefold() in names:
            raise StatementError(
                f"USING hides a column of {attribute.alias}, and a column is called {attribute.alias}, too",
                accepted="an alias that is not the name of a column",
            )
