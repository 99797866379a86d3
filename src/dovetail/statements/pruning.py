"""The columns of each relation that a statement uses: the others need not travel through a join that Dovetail runs.

Spark cannot prune columns through a Python stage, so it happens before.  A column stays if its name occurs anywhere in
the statement, bare or behind its relation, if a star may mean it, or if the call of a join names it.  What cannot be
told from names alone is not pruned at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.conditions.mentions import mentioned, texts_of
from dovetail.statements.calls import Facts, JoinCall
from dovetail.statements.syntax.statement import Block, Statement

_UNNAMED = ("pivot", "unpivot", "identifier")
"""Words of clauses that mean columns which they do not name: PIVOT groups by all others."""


def used_columns(
    statement: Statement, block: Block, calls: Sequence[JoinCall], facts: Facts
) -> dict[str, tuple[str, ...]] | None:
    """For each relation the columns that stay, in their order; None where nothing can be left out.

    Examples
    --------
    >>> from dovetail.statements.decide import decide
    >>> from dovetail.statements.syntax.statement import read_statement
    >>> statement = read_statement("SELECT a.id, b.* FROM a, b WHERE a.x < b.y")
    >>> facts = Facts({"a": ["id", "x", "y", "z"], "b": ["y", "z"]})
    >>> block = statement.blocks[0]
    >>> used_columns(statement, block, decide(block, statement.text, facts).calls, facts)
    {'a': ('id', 'x'), 'b': ('y', 'z')}
    """
    if block.stars_elsewhere or any(word in statement.words for word in _UNNAMED):
        return None
    if any(star.alias is None for star in block.stars) or any(join.natural for join in block.joins):
        return None
    named = mentioned([_outside(statement.text, block)], facts.columns, stars=False)
    for call in calls:
        texts = list(texts_of(call.options))
        for one in call.inputs:
            texts += [*one.conditions, *(sql for _, sql in one.keys)]
        for alias, names in mentioned(texts, facts.columns).items():
            named[alias] |= names
    deciding = _deciding(calls)
    kept: dict[str, tuple[str, ...]] = {}
    for alias, own in facts.columns.items():
        # Rows that agree up to the last column that is used are alike in the result, whichever of them is taken.
        last = max((at for at, name in enumerate(own) if name in named[alias]), default=0)
        needed = [name for at, name in enumerate(own) if name in named[alias] or (alias in deciding and at <= last)]
        kept[alias] = tuple(needed or own[:1])
    return None if all(len(kept[alias]) == len(own) for alias, own in facts.columns.items()) else kept


def _outside(text: str, block: Block) -> str:
    """A statement without what cannot mean columns of a SELECT: subqueries of its FROM, and the WITH in front of it."""
    apart = [relation.slice for relation in block.relations if relation.separate]
    apart += [table for scope in block.scopes for table in scope.tables]
    for one in apart:
        if not one.start <= block.slice.start < block.slice.stop <= one.stop:
            text = text[: one.start] + " " * (one.stop - one.start) + text[one.stop :]
    return text


def _deciding(calls: Sequence[JoinCall]) -> frozenset[str]:
    """Relations whose columns, from left to right, decide between rows that are equally good."""
    found: set[str] = set()
    for call in calls:
        if call.family == "asof" or (call.family == "nearest" and call.options.get("ties") == "first"):
            found.update(alias for one in call.inputs[1:] for alias in one.members)
    return frozenset(found)


def pruned_facts(facts: Facts, kept: Mapping[str, Sequence[str]]) -> Facts:
    """What is known of relations that have only some of their columns."""

    def left(names: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {alias: tuple(name for name in some if name in kept[alias]) for alias, some in names.items()}

    return Facts(left(facts.columns), facts.streams, left(facts.watermarked), left(facts.timestamps))
