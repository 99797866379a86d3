"""Which things hang together: the connected components of a graph given by its edges."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

_Node = TypeVar("_Node", bound=Hashable)


def components(edges: Iterable[Iterable[_Node]]) -> list[set[_Node]]:
    """The sets of nodes that edges connect, each edge a group of nodes, in the order of their first edge.

    Examples
    --------
    >>> [sorted(part) for part in components([("A", "B"), ("C", "D"), ("B", "E")])]
    [['A', 'B', 'E'], ['C', 'D']]
    """
    parts: list[set[_Node]] = []
    for edge in edges:
        joined = set(edge)
        touching = [part for part in parts if part & joined]
        at = parts.index(touching[0]) if touching else len(parts)
        for part in touching:
            joined |= part
        parts = [*parts[:at], joined, *(part for part in parts[at:] if part not in touching)]
    return parts
