"""RAJ, RAJHash, Prob and ProbHash as the paper prints them, arrival by arrival, with lists.

The two mends are those of Algorithms 1 and 2: a reservoir of |R| rows holds |R|, and a row whose sub-reservoir is empty
replaces the rho-th row of the whole reservoir, which as printed would be a division by zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dovetail.reference.approx import Draw


@dataclass(frozen=True)
class Kept:
    """A row in memory: its position in its input, the row, and why it may have to leave: the least goes first."""

    number: int
    row: Any
    leaves: tuple[float, int] = (0.0, 0)


Memories = list[dict[int, list[Kept]]]
"""For each input its sub-reservoirs or queues."""


def printed_join(
    arrivals: Iterable[tuple[int, Any]],
    *,
    matches: Callable[[Any, Any], bool],
    policy: str,
    memory: int,
    draw: Draw,
    part: Callable[[Any], int] = lambda row: 0,
    value: Callable[[Any], Any] = lambda row: row,
    allocation: str = "fixed",
    discard: int = 1,
    ties: str = "random",
) -> list[tuple[int, int]]:
    """The results, in the order in which they come out: the positions of both rows in their inputs.

    Parameters
    ----------
    arrivals : iterable of (int, row)
        The input and the row, in the order of arrival.
    matches : callable
        Takes a row of each input.
    policy, allocation, discard, ties
        As in :func:`dovetail.approx_join`.
    memory : int
        Rows that may be held, both inputs together.
    draw : callable
        The random number of a row, by its input and its position in it: a whole number for reservoirs.
    part : callable
        Which sub-reservoir or queue a row belongs to.
    value : callable
        What counts as one join value where arrivals are counted.

    Returns
    -------
    list of (int, int)
        Positions of the rows in their inputs.

    Examples
    --------
    Of two rows that the first input holds, the newest is the one that the only row of the second input meets.

    >>> printed_join([(0, 7), (0, 7), (0, 7), (1, 7)], matches=lambda a, b: a == b, policy="prob_printed", memory=4,
    ...              draw=lambda side, number: number, ties="oldest")
    [(1, 0), (2, 0)]
    """
    memories: Memories = [{}, {}]
    seen = [0, 0]
    arrived: list[Counter[Any]] = [Counter(), Counter()]
    out: list[tuple[int, int]] = []
    for at, (side, row) in enumerate(arrivals):
        number = seen[side]
        for other in _all(memories[1 - side]):
            pair = ((number, row), (other.number, other.row))
            (a, left), (b, right) = pair if side == 0 else pair[::-1]
            if matches(left, right):
                out.append((a, b))
        seen[side] += 1
        arrived[side][value(row)] += 1
        if policy in ("raj_printed", "raj_hash_printed"):
            _sample(memories[side], Kept(number, row), part(row), seen[side], memory // 2, draw(side, number),
                    in_parts=policy == "raj_hash_printed")  # fmt: skip
            continue
        chance = arrived[1 - side][value(row)] / max(seen[1 - side], 1)
        last = at if ties == "oldest" else int(draw(side, number))
        shared = policy == "prob_hash_printed" or allocation == "variable"
        rivals = [0, 1] if shared else [side]
        if sum(len(_all(memories[s])) for s in rivals) >= (memory if shared else memory // 2):
            for _ in range(discard):
                _discard([memories[s] for s in rivals])
        memories[side].setdefault(part(row), []).append(Kept(number, row, (chance, last)))
        assert sum(len(_all(held)) for held in memories) <= memory
    return out


def _all(parts: dict[int, list[Kept]]) -> list[Kept]:
    return [kept for at in sorted(parts) for kept in parts[at]]


def _sample(
    reservoir: dict[int, list[Kept]], new: Kept, h: int, n: int, size: int, draw: float, *, in_parts: bool
) -> None:
    """Algorithm 2, and Algorithm 1 if the reservoir has no parts; `n` rows have come to it, the new one included."""
    mine = reservoir.setdefault(h, [])
    rho = 1 + int(draw) % n
    if n <= size:
        mine.append(new)
    elif rho <= size and mine:
        mine[rho % len(mine) if in_parts else rho - 1] = new
    elif rho <= size:
        leaves = _all(reservoir)[rho - 1]
        home = next(rows for rows in reservoir.values() if leaves in rows)
        home[home.index(leaves)] = home[-1]
        home.pop()
        mine.append(new)


def _discard(rivals: list[dict[int, list[Kept]]]) -> None:
    """Discard the row with the least priority; `leaves` also decides between equal ones."""
    queues = [queue for parts in rivals for queue in parts.values() if queue]
    if queues:
        first = min(queues, key=lambda queue: min(kept.leaves for kept in queue))
        first.remove(min(first, key=lambda kept: kept.leaves))
