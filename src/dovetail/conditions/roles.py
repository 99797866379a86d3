"""What each input is to a join of several: ``how={"A": "keep", "C": "optional"}``, input by input.

The *core* of a join is its required and kept inputs.  Every other input, *extra* here, is judged by itself against a
match of the core: does a row of it complete that match?  :mod:`dovetail.reference.assemble` has the definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dovetail.conditions.components import components
from dovetail.conditions.forms import Band, Equality, Inequality, Predicate, Term
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import readable
from dovetail.errors import ArgumentError, choice, unknown_alias

Role = Literal["required", "keep", "optional", "present", "absent"]

ROLES: tuple[Role, ...] = ("required", "keep", "optional", "present", "absent")
"""What an input may be: a row in every result; that, and its other rows alone; a row or NULL; any row; no row."""


@dataclass(frozen=True)
class Roles:
    """What each input of a join is to it, in the order of the inputs.

    Examples
    --------
    >>> roles = Roles.of({"B": "keep", "C": "optional"}, ["A", "B", "C"])
    >>> roles.core, roles.extras, roles.kept, roles.emitted
    ((0, 1), (2,), (1,), (0, 1, 2))
    """

    roles: tuple[Role, ...]

    @staticmethod
    def of(given: Mapping[str, Role], aliases: Sequence[str]) -> Roles:
        """The roles that a user names; inputs without a name are required."""
        for alias, role in given.items():
            if alias not in aliases:
                raise unknown_alias(str(alias), aliases, where="how=")
            if role not in ROLES:
                raise choice(f"how[{alias!r}]", role, ROLES)
        roles = Roles(tuple(given.get(alias, "required") for alias in aliases))
        if not roles.core:
            raise ArgumentError(
                f"how={dict(given)!r} leaves no input that must have a row",
                accepted="at least one input that is 'required' or 'keep'",
            )
        return roles

    def _sides(self, *wanted: Role) -> tuple[int, ...]:
        return tuple(side for side, role in enumerate(self.roles) if role in wanted)

    @property
    def core(self) -> tuple[int, ...]:
        """Inputs whose rows make the matches that the other inputs complete."""
        return self._sides("required", "keep")

    @property
    def extras(self) -> tuple[int, ...]:
        """Inputs that are judged by themselves against each match of the core."""
        return self._sides("optional", "present", "absent")

    @property
    def kept(self) -> tuple[int, ...]:
        """Inputs of which every row comes out."""
        return self._sides("keep")

    @property
    def optional(self) -> tuple[int, ...]:
        """Inputs that are NULL where no row completes a match."""
        return self._sides("optional")

    @property
    def emitted(self) -> tuple[int, ...]:
        """Inputs that have a column in the result."""
        return self._sides("required", "keep", "optional")

    @property
    def filtering(self) -> bool:
        """Whether a match of the core comes out only if some inputs have, or lack, a row that completes it."""
        return bool(self._sides("present", "absent"))

    @property
    def outer(self) -> bool:
        """Whether an input may be NULL in the result."""
        return bool(self._sides("keep", "optional")) and len(self.emitted) > 1

    @property
    def word(self) -> How | None:
        """The plain ``how`` that means the same, if there is one."""
        if set(self.roles) == {"required"}:
            return "inner"
        return _WORDS.get(self.roles)

    def text(self, aliases: Sequence[str]) -> str:
        """The mapping as a user would write it, without what is required anyway."""
        named = (f"{a!r}: {r!r}" for a, r in zip(aliases, self.roles, strict=True) if r != "required")
        return "{" + ", ".join(named) + "}"


_WORDS: dict[tuple[Role, ...], How] = {
    ("keep", "required"): "left", ("keep", "optional"): "left", ("required", "keep"): "right",
    ("optional", "keep"): "right", ("keep", "keep"): "full", ("required", "present"): "semi",
}  # fmt: skip
"""An absent input has none: ``anti`` also gives the rows that fail a condition on the left input alone."""


def implied(predicate: Predicate, aliases: Sequence[str], roles: Roles) -> Predicate:
    """The condition with the equalities between core inputs, and core and extra ones, that it implies.

    Equality is transitive: ``A.k = B.k AND B.k = C.k`` says ``A.k = C.k``, also where B has no row.  What ties two
    extra inputs to each other and not to the core has no meaning where one of them is missing, and is refused.

    Examples
    --------
    >>> from dovetail.conditions.predicates import parse
    >>> on = parse("A.k = B.k AND B.k = C.k", {alias: ["k"] for alias in "ABC"})
    >>> [equality.sql for equality in implied(on, "ABC", Roles.of({"B": "optional"}, "ABC")).equalities]
    ['`A`.`k` = `B`.`k`', '`B`.`k` = `C`.`k`', '`A`.`k` = `C`.`k`']
    """
    extras = {aliases[side] for side in roles.extras}
    if not extras:
        return predicate
    compared: list[Inequality | Band] = [*predicate.inequalities, *predicate.bands]
    for c in compared:
        if {c.left.alias, c.right.alias} <= extras:
            raise _between_extras(readable(c.sql), c.left.alias, c.right.alias)
    equal = components((e.left, e.right) for e in predicate.equalities if not e.null_safe)
    for e in predicate.equalities:
        part = {e.left, e.right} if e.null_safe else next(part for part in equal if e.left in part)
        if all(term.alias in extras for term in part):
            raise _between_extras(readable(e.sql), e.left.alias, e.right.alias)
    told = [e for e in predicate.equalities if not {e.left.alias, e.right.alias} <= extras]
    order = list(aliases).index
    for part in equal:
        terms = sorted(part, key=lambda term: (order(term.alias), term.sql))
        told += _implied([term for term in terms if term.alias not in extras], terms, told)
    return replace(predicate, equalities=tuple(told))


def _implied(core: list[Term], terms: list[Term], told: list[Equality]) -> list[Equality]:
    """What equal terms say of each other beyond what is told: core ones tied through extra ones, and extra ones."""
    ties = [(e.left, e.right) for e in told]
    apart = components([*((term,) for term in core), *(tie for tie in ties if set(tie) <= set(core))])
    found = [
        Equality(one, other)
        for at, part in enumerate(apart)
        for one in core
        for other in core
        if one in part and one.alias != other.alias and any(other in later for later in apart[at + 1 :])
    ]
    tied = {term for tie in ties if set(tie) & set(core) for term in tie}
    return found + [Equality(core[0], term) for term in terms if term not in core and term not in tied]


def _between_extras(what: str, one: str, other: str) -> ArgumentError:
    return ArgumentError(
        f"the condition {what} is between {one!r} and {other!r}, each of which may be missing",
        accepted="conditions in which one of two inputs is required or kept",
        hint=f"tie {one!r} and {other!r} to a required or kept input instead, or join one of them afterwards",
    )
