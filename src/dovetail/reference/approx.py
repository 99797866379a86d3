"""The approximate join, arrival by arrival: what each policy keeps, in the plainest form.

The complete join is :func:`dovetail.reference.theta_join`.  This module says which of its rows come out within a limit.
Nothing here is incremental: whenever a row arrives, the whole memory is looked at again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

Draw = Callable[[int, int], float]
Positions = tuple[int, ...]
"""A result by the positions of its rows in their inputs."""


@dataclass(frozen=True)
class Held:
    """A row in memory: its input, its position among the rows of that input, the row, and its random draw."""

    side: int
    number: int
    row: Any
    draw: float


def approx_join(
    arrivals: Iterable[tuple[int, Any]],
    *,
    sides: int = 2,
    matches: Callable[..., bool],
    policy: str,
    memory: int,
    draw: Draw,
    stratum: Callable[[Any], int] = lambda row: 0,
    bucket: Callable[[Any], int] = lambda row: 0,
    allocation: str = "fixed",
) -> list[tuple[Positions, float]]:
    """The results, in the order in which they come out: the positions of their rows, and their weight.

    Parameters
    ----------
    arrivals : iterable of (int, row)
        The input and the row, in the order of arrival.
    sides : int
        How many inputs there are.
    matches : callable
        Takes one row of each input.
    policy, allocation : str
        As in :func:`dovetail.approx_join`.
    memory : int
        Rows that may be held, all inputs together.
    draw : callable
        The random number of a row, by its input and its position in it.
    stratum, bucket : callable
        Which stratum (RAJHash) and which queue (Prob, ProbHash, ARRPJ) a row belongs to.

    Returns
    -------
    list of (tuple of int, float)
        Positions of the rows in their inputs, and the weight.

    Examples
    --------
    >>> approx_join([(0, 7), (1, 7), (1, 8), (0, 8)], matches=lambda a, b: a == b, policy="exact", memory=4,
    ...             draw=lambda side, number: 0.5)
    [((0, 0), 1.0), ((1, 1), 1.0)]
    """
    memories: list[list[Held]] = [[] for _ in range(sides)]
    seen = [0] * sides
    seen_of: list[Counter[int]] = [Counter() for _ in range(sides)]
    arrived: list[Counter[int]] = [Counter() for _ in range(sides)]
    results: Counter[int] = Counter()
    out: list[tuple[Positions, float]] = []
    for side, row in arrivals:
        new = Held(side, seen[side], row, draw(side, seen[side]))
        for rows in product(*[[new] if at == side else memories[at] for at in range(sides)]):
            if matches(*[held.row for held in rows]):
                weight = 1.0
                for other in range(sides):
                    if other != side:
                        h = stratum(row)
                        kept = sum(stratum(held.row) == h for held in memories[other])
                        weight *= seen_of[other][h] / kept
                out.append((tuple(held.number for held in rows), weight))
                results[bucket(row)] += 1
        seen[side] += 1
        seen_of[side][stratum(row)] += 1
        arrived[side][bucket(row)] += 1
        if policy in ("raj", "raj_hash", "exact"):
            memories[side].append(new)
            for at in range(sides):
                memories[at] = _sampled(memories[at], parts(memory, seen)[at], stratum)
        elif policy == "arrpj":
            _by_rate(memories, new, memory, results, bucket)
        else:
            _by_priority(memories, new, memory, seen, arrived, bucket, allocation)
        assert sum(len(held) for held in memories) <= memory
    return out


def parts(memory: int, seen: Sequence[int]) -> list[int]:
    """How many rows each input may hold: equal shares, and what an input does not need goes to the others.

    Examples
    --------
    >>> parts(10, [100, 100]), parts(10, [100, 2]), parts(10, [3, 4])
    ([5, 5], [8, 8], [10, 10])
    """
    if sum(seen) <= memory:
        return [memory] * len(seen)
    level = max(at for at in range(memory + 1) if sum(min(count, at) for count in seen) <= memory)
    return [level] * len(seen)


def _sampled(held: list[Held], limit: int, stratum: Callable[[Any], int]) -> list[Held]:
    """Of every stratum the two rows with the least draws, then those with the least draws, up to the limit."""
    ranked: list[tuple[int, float, Held]] = []
    counts: Counter[int] = Counter()
    for candidate in sorted(held, key=lambda row: row.draw):
        h = stratum(candidate.row)
        ranked.append((min(counts[h], 2), candidate.draw, candidate))
        counts[h] += 1
    return [candidate for *_, candidate in sorted(ranked, key=lambda one: one[:2])][:limit]


def _by_priority(
    memories: list[list[Held]],
    new: Held,
    memory: int,
    seen: list[int],
    arrived: list[Counter[int]],
    bucket: Callable[[Any], int],
    allocation: str,
) -> None:
    """Keep the rows whose value the other input has brought most often."""
    side, other = new.side, 1 - new.side

    def priority(held: Held) -> float:
        return arrived[1 - held.side][bucket(held.row)] / max(seen[1 - held.side], 1)

    def worst(rows: list[Held]) -> Held:
        return min(rows, key=lambda held: (priority(held), held.side != side, bucket(held.row), -held.number))

    if allocation == "fixed":
        for at in (side, other):
            while len(memories[at]) > parts(memory, seen)[at]:
                memories[at].remove(worst(memories[at]))
        full, rivals = len(memories[side]) >= parts(memory, seen)[side], memories[side]
    else:
        full, rivals = len(memories[0]) + len(memories[1]) >= memory, memories[0] + memories[1]
    if not full:
        memories[side].append(new)
    elif seen[other] == 0:
        largest = max(memories[side], key=lambda held: held.draw, default=new)
        if new.draw < largest.draw:
            memories[side].remove(largest)
            memories[side].append(new)
    elif rivals and priority(worst(rivals)) < priority(new):
        out = worst(rivals)
        memories[out.side].remove(out)
        memories[side].append(new)


def _by_rate(
    memories: list[list[Held]], new: Held, memory: int, results: Counter[int], bucket: Callable[[Any], int]
) -> None:
    """When memory is full, discard a twentieth of it: the rows of the queues with the fewest results for each row."""
    if sum(len(rows) for rows in memories) + 1 > memory:
        queues: dict[tuple[int, int], list[Held]] = {}
        for rows in memories:
            for held in rows:
                queues.setdefault((held.side, bucket(held.row)), []).append(held)
        wanted = max(1, memory // 20)
        ordered = sorted(queues, key=lambda queue: (results[queue[1]] / len(queues[queue]), queue))
        for side, rows in ((queue[0], queues[queue]) for queue in ordered):
            for held in sorted(rows, key=lambda held: -held.number)[:wanted]:
                memories[side].remove(held)
                wanted -= 1
    memories[new.side].append(new)


def mean_square_error(complete: Mapping[Any, float], sample: Mapping[Any, float]) -> float:
    """The paper's Equation 1: squared differences of the normalised frequencies of join values, added up.

    Examples
    --------
    >>> mean_square_error({"a": 50, "b": 50}, {"a": 3, "b": 1})
    0.125
    """
    p, q = _normalised(complete), _normalised(sample)
    return sum((p.get(v, 0.0) - q.get(v, 0.0)) ** 2 for v in {*p, *q})


def divergence(complete: Mapping[Any, float], sample: Mapping[Any, float]) -> float:
    """The paper's Equation 3: the Jensen-Shannon divergence, in nats, between 0 and ln 2.

    Examples
    --------
    >>> divergence({"a": 1}, {"a": 5}), round(divergence({"a": 1}, {"b": 1}), 4)
    (0.0, 0.6931)
    """
    p, q = _normalised(complete), _normalised(sample)
    total = 0.0
    for v in {*p, *q}:
        a, b = p.get(v, 0.0), q.get(v, 0.0)
        total += sum(x * math.log(2 * x / (a + b)) for x in (a, b) if x > 0) / 2
    return total


def _normalised(counts: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(counts.values())
    return {value: count / total for value, count in counts.items()} if total else {}
