"""The ``kind:`` form of a join: YAML to the arguments of a join function.

The functions' own signatures say which keys there are, so a job file takes every argument that Python takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.api.joins import JOINS
from dovetail.conditions import criteria
from dovetail.errors import closest
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.theta.spec import CFS, FTJ, OBT, RBM, Prefap
from dovetail.families.window.graph import after, path
from dovetail.jobs.fields import as_flag, as_text, lacks, made, section_content
from dovetail.jobs.positions import Node

_CRITERIA: dict[str, Callable[..., criteria.Criterion]] = {
    "closest": criteria.closest,
    "least": criteria.least,
    "most": criteria.most,
    "overlap": criteria.overlap,
    "youngest": criteria.youngest,
}
_SHEDDING: dict[str, Callable[..., object]] = {"harvest": Harvest, "random_drop": RandomDrop}
_PARTITIONINGS: dict[str, Callable[..., object]] = {"prefap": Prefap, "ftj": FTJ, "cfs": CFS, "obt": OBT, "rbm": RBM}


def join_keys(kind: str) -> tuple[str, ...]:
    """The keys that a kind of join takes: the keyword arguments of its function.

    Examples
    --------
    >>> join_keys("asof")[:3]
    ('time', 'by', 'direction')
    """
    return tuple(_keywords(kind))


def _keywords(kind: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(JOINS[kind]).parameters
    # What is selected is a key of every join, an SQL statement's too.
    return {
        name: one for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY and name != "select"
    }


def call_arguments(kind: str, node: Node, aliases: Sequence[str]) -> dict[str, Any]:
    """The keyword arguments that the section of a join gives."""
    content = node.content if isinstance(node.content, dict) else {}
    arguments: dict[str, Any] = {}
    for key, parameter in _keywords(kind).items():
        if key in content:
            arguments[key] = _argument(kind, key, content[key], aliases)
        elif parameter.default is inspect.Parameter.empty:
            raise node.key_error(key, f"a {kind} join lacks the key {key!r}", hint=f"add {key}: ... under join")
    return arguments


def _argument(kind: str, key: str, node: Node, aliases: Sequence[str]) -> object:
    if kind == "bestmatch" and key == "on":
        return _criteria(node)
    if (kind in ("window", "aggregate") and key == "within") or (kind == "nearest" and key == "window"):
        return _within(node, aliases)
    if kind == "theta" and key == "algorithm":
        return _algorithm(node)
    return _shedding(node) if key == "shed" else node.plain()


def _criteria(node: Node) -> list[criteria.Criterion]:
    accepted = "a list such as [{closest: t, within: 10 minutes}, {least: R.cost + S.cost}]"
    if not isinstance(node.content, list) or not node.content:
        raise node.error(f"{node.name} is {node.shown()}", accepted=accepted)
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
    section_content(node, (name, *(key for key in ("other", "within") if key in inspect.signature(make).parameters)))
    compared = as_text(node.content[name])
    options = {key: value.plain() for key, value in node.content.items() if key != name}
    criterion: criteria.Criterion = made(node, lambda: make(compared, **options))
    return criterion


def _within(node: Node, aliases: Sequence[str]) -> object:
    if not isinstance(node.content, dict):
        return node.plain()
    if "path" not in node.content:
        return dict(_pair(node, key, value, aliases) for key, value in node.content.items())
    content = section_content(node, ("path", "lengths", "both_ways"))
    for key, example in (("lengths", "[5 seconds, 10 seconds]"), ("path", "A -> B -> C")):
        if key not in content:
            raise lacks(node, key, example)
    route = as_text(content["path"])
    lengths: Any = content["lengths"].plain()
    both_ways = as_flag(content["both_ways"]) if "both_ways" in content else False
    return made(node, lambda: path(route, lengths, both_ways=both_ways))


def _pair(node: Node, key: str, value: Node, aliases: Sequence[str]) -> tuple[tuple[str, str], object]:
    pair = tuple(key.replace(",", " ").split())
    if len(pair) != 2 or not set(pair) <= set(aliases):
        accepted = f"two of the inputs {', '.join(aliases)}, such as 'A, B'"
        raise node.key_error(key, f"{node.name} has a window for {key!r}", accepted=accepted)
    if isinstance(value.content, dict):
        content = section_content(value, ("after",))
        if "after" not in content:
            raise lacks(value, "after", "10 seconds")
        length: Any = content["after"].plain()
        return (pair[0], pair[1]), after(length)
    plain = value.plain()
    return (pair[0], pair[1]), tuple(plain) if isinstance(plain, list) else plain


def _algorithm(node: Node) -> object:
    """``prefap``, or ``{name: prefap, p: 10, prefilter: false}``."""
    if not isinstance(node.content, dict):
        return node.plain()
    given = node.content.get("name")
    name = given.plain() if given is not None else None
    if not isinstance(name, str) or name not in _PARTITIONINGS:
        accepted = f"auto, {', '.join(_PARTITIONINGS)}, or one of the latter with options: {{name: prefap, p: 10}}"
        raise node.error(f"{node.name} is {node.shown()}", accepted=accepted)
    make = _PARTITIONINGS[name]
    content = section_content(node, ("name", *inspect.signature(make).parameters))
    options: dict[str, Any] = {key: value.plain() for key, value in content.items() if key != "name"}
    return made(node, lambda: make(**options))


def _shedding(node: Node) -> object:
    """``harvest``, or ``{harvest: {option: value}}``."""
    given: Any = node.plain()
    name, options = next(iter(given.items())) if isinstance(given, dict) and len(given) == 1 else (given, None)
    if not isinstance(name, str) or name not in _SHEDDING:
        accepted = "harvest or random_drop, or {harvest: {option: value}}"
        raise node.error(f"{node.name} is {node.shown()}", accepted=accepted)
    make = _SHEDDING[name]
    try:
        return made(node, lambda: make(**(options if isinstance(options, dict) else {})))
    except TypeError as error:
        raise node.error(f"{node.name}: {error}", accepted=", ".join(inspect.signature(make).parameters)) from None
