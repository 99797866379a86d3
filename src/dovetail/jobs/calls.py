"""The ``kind:`` form of a join: YAML to the arguments of a join function.

The functions' own signatures say which keys there are, so a job file takes every argument that Python takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import dovetail.api as api
from dovetail.conditions import criteria
from dovetail.errors import DovetailError, closest
from dovetail.families.window.graph import after, path
from dovetail.jobs.marks import Node
from dovetail.jobs.section import Section, as_text

KINDS: dict[str, str] = {
    "theta": "theta_join",
    "window": "window_join",
    "asof": "asof_join",
    "bestmatch": "bestmatch_join",
    "approx": "approx_join",
}
_CRITERIA: dict[str, Callable[..., criteria.Criterion]] = {
    "closest": criteria.closest,
    "least": criteria.least,
    "most": criteria.most,
    "overlap": criteria.overlap,
    "youngest": criteria.youngest,
}
_SHEDDING = {"harvest": "Harvest", "random_drop": "RandomDrop"}
_PARTITIONINGS = {"prefap": "Prefap", "ftj": "FTJ", "cfs": "CFS", "obt": "OBT", "rbm": "RBM"}


def function_of(kind: str) -> Callable[..., Any]:
    """The function behind a kind."""
    found: Callable[..., Any] = getattr(api, KINDS[kind])
    return found


def join_keys(kind: str) -> tuple[str, ...]:
    """The keys that a kind of join takes: the keyword arguments of its function.

    Examples
    --------
    >>> join_keys("asof")[:3]
    ('time', 'by', 'direction')
    """
    return tuple(_keywords(kind))


def _keywords(kind: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function_of(kind)).parameters
    return {name: one for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY}


def call_arguments(kind: str, section: Section, aliases: Sequence[str]) -> dict[str, object]:
    """The keyword arguments that a section of the file gives."""
    found: dict[str, object] = {}
    for key, parameter in _keywords(kind).items():
        if key not in section:
            if parameter.default is inspect.Parameter.empty:
                raise section.at(key, f"a {kind} join lacks the key {key!r}", hint=f"add {key}: ... under join")
            continue
        node = section.content[key]
        if kind == "bestmatch" and key == "on":
            found[key] = _criteria(node)
        elif kind == "window" and key == "within":
            found[key] = _within(node, aliases)
        elif kind == "theta" and key == "algorithm":
            found[key] = _algorithm(node)
        elif key == "shed":
            found[key] = _shedding(node)
        else:
            found[key] = node.plain()
    return found


def _criteria(node: Node) -> list[criteria.Criterion]:
    accepted = "a list such as [{closest: t, within: 10 minutes}, {least: R.cost + S.cost}]"
    if not isinstance(node.content, list) or not node.content:
        raise node.error(f"join.on is {node.shown()}", accepted=accepted)
    return [_criterion(item) for item in node.content]


def _criterion(node: Node) -> criteria.Criterion:
    accepted = "one of " + ", ".join(f"{{{name}: ...}}" for name in _CRITERIA)
    if not isinstance(node.content, dict):
        raise node.error(f"a criterion is {node.shown()}", accepted=accepted)
    names = [name for name in node.content if name in _CRITERIA]
    if len(names) != 1:
        given = next(iter(node.content), "")
        raise node.error(f"a criterion has the key {given!r}", accepted=accepted, hint=closest(given, _CRITERIA))
    (name,) = names
    make = _CRITERIA[name]
    section = Section(
        node, name, (name, *(key for key in ("other", "within") if key in inspect.signature(make).parameters))
    )
    further = {key: value.plain() for key, value in section.content.items() if key != name}
    made: criteria.Criterion = _made(node, lambda: make(as_text(section.content[name], name), **further))
    return made


def _made(node: Node, make: Callable[[], Any]) -> Any:
    """What `make` gives; what it refuses is an error of this line."""
    try:
        return make()
    except DovetailError as error:
        raise node.error(error.given, accepted=error.accepted, hint=error.hint) from None


def _within(node: Node, aliases: Sequence[str]) -> object:
    if not isinstance(node.content, dict):
        return node.plain()
    if "path" in node.content:
        section = Section(node, "join.within", ("path", "lengths", "both_ways"))
        lengths: Any = section.need("lengths", "[5 seconds, 10 seconds]").plain()
        route, both = section.needed_text("path", "A -> B -> C"), section.flag("both_ways")
        return _made(node, lambda: path(route, lengths, both_ways=both))
    return dict(_pair(node, key, value, aliases) for key, value in node.content.items())


def _pair(node: Node, key: str, value: Node, aliases: Sequence[str]) -> tuple[tuple[str, str], object]:
    pair = tuple(key.replace(",", " ").split())
    if len(pair) != 2 or not set(pair) <= set(aliases):
        raise node.key_error(
            key,
            f"join.within has a window for {key!r}",
            accepted=f"two of the inputs {', '.join(aliases)}, such as 'A, B'",
        )
    if isinstance(value.content, dict):
        section = Section(value, f"join.within.{key}", ("after",))
        length: Any = section.need("after", "10 seconds").plain()
        return (pair[0], pair[1]), after(length)
    plain = value.plain()
    return (pair[0], pair[1]), tuple(plain) if isinstance(plain, list) else plain


def _algorithm(node: Node) -> object:
    """``prefap``, or ``{name: prefap, p: 10, prefilter: false}``."""
    import dovetail

    if not isinstance(node.content, dict):
        return node.plain()
    given = node.content.get("name")
    name = given.plain() if given is not None else None
    if not isinstance(name, str) or name not in _PARTITIONINGS:
        raise node.error(
            f"join.algorithm is {node.shown()}",
            accepted=f"auto, {', '.join(_PARTITIONINGS)}, or one of the latter with options: {{name: prefap, p: 10}}",
        )
    make = getattr(dovetail, _PARTITIONINGS[name])
    section = Section(node, "join.algorithm", ("name", *inspect.signature(make).parameters))
    options: dict[str, Any] = {key: value.plain() for key, value in section.content.items() if key != "name"}
    return _made(node, lambda: make(**options))


def _shedding(node: Node) -> object:
    """``harvest``, or ``{harvest: {option: value}}``."""
    import dovetail

    named = node.content
    options: Node | None = None
    if isinstance(named, dict) and len(named) == 1:
        ((name, options),) = named.items()
    else:
        name = named if isinstance(named, str) else ""
    if name not in _SHEDDING:
        raise node.error(
            f"join.shed is {node.shown()}", accepted="harvest or random_drop, or {harvest: {option: value}}"
        )
    further = options.plain() if options is not None else None
    make = getattr(dovetail, _SHEDDING[name])
    try:
        return _made(node, lambda: make(**(further if isinstance(further, dict) else {})))
    except TypeError as error:
        raise node.error(f"join.shed: {error}", accepted=", ".join(inspect.signature(make).parameters)) from None
