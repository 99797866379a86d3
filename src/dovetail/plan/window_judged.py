"""Conditions of a window join that only Spark can evaluate: after the join, or before it is known what has no match."""

from __future__ import annotations

from dovetail.conditions.forms import Rest
from dovetail.conditions.join_kind import How
from dovetail.conditions.names import bare
from dovetail.conditions.roles import Role, Roles
from dovetail.errors import ArgumentError
from dovetail.families.window.judged import IS_MATCH
from dovetail.families.window.spec import Options

Verdicts = tuple[tuple[int, tuple[str, ...]], ...]
"""Conditions on the matches of the core (``IS_MATCH``) and, by extra input, on the rows that complete them."""

_ROLES: dict[How, tuple[Role, Role]] = {
    "left": ("keep", "required"), "right": ("required", "keep"), "full": ("keep", "keep"),
    "semi": ("required", "present"), "anti": ("required", "absent"),
}  # fmt: skip


def as_roles(options: Options) -> Roles:
    """What each input is to the join, also where a word says it."""
    return options.how if isinstance(options.how, Roles) else Roles(_ROLES[options.how])


def judged(
    inputs: tuple[str, ...], conditions: tuple[Rest, ...], options: Options, *, streaming: bool
) -> tuple[tuple[str, ...], Verdicts]:
    """Conditions that Spark evaluates on results, and those that it evaluates on candidates.

    Results can be judged where each has the rows that a condition is about, and no other row hangs on the verdict.
    """
    rests = tuple(rest.sql for rest in conditions)
    if options.inner or not rests:
        return rests, ()
    roles = as_roles(options)
    core = {inputs[side] for side in roles.core}
    if options.roles is not None and not roles.kept and all(rest.aliases <= core for rest in conditions):
        return rests, ()
    how = roles.text(inputs) if options.roles is not None else repr(options.how)
    if streaming and (options.roles is None or not roles.extras):
        return (), ((IS_MATCH, rests),)
    if streaming:
        raise ArgumentError(
            f"how={how} with the condition {bare(rests[0])}, which only Spark can evaluate, on streams",
            accepted="such a condition on streams that are all required or kept, or two streams with a plain how",
            hint="static inputs take any condition",
        )
    if options.algorithm != "auto":
        raise ArgumentError(
            f"algorithm={options.algorithm!r} with how={how} and the condition {bare(rests[0])}",
            accepted="algorithm='auto' where only Spark can evaluate a condition",
        )
    found: dict[int, list[str]] = {}
    for rest in conditions:
        extras = [side for side in roles.extras if inputs[side] in rest.aliases]
        if len(extras) > 1:
            raise ArgumentError(
                f"the condition {bare(rest.sql)} is about {inputs[extras[0]]!r} and {inputs[extras[1]]!r}, "
                "each of which may be missing",
                accepted="conditions about at most one input that may be missing",
            )
        # A semi or anti join has one condition, which says what a match is, also where it names no column.
        alone = options.roles is None and roles.extras
        side = extras[0] if extras else roles.extras[0] if alone else IS_MATCH
        found.setdefault(side, []).append(rest.sql)
    return (), tuple((side, tuple(texts)) for side, texts in sorted(found.items()))
