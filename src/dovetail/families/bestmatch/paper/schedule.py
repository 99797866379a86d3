"""In which order pairs of pages are joined, with few buffers and few accesses (section 3.3.2).

Both windows are on disk in pages, in epsilon-grid order.  A page of R can match one run of consecutive pages of S.
One buffer holds the current page of R, the others pages of S.

gallop
    column by column; the least recently used page of S is replaced.
crabstep
    gallop until a page of S has to be loaded and every buffer holds one that is still needed.  Then those stay loaded
    and the pages of R step past them; after that the run continues where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

Event = tuple[Literal["load R", "load S", "join"], int, int]
Spans = Sequence[tuple[int, int]]
"""For each page of R, the first page of S that it can match and the first after it that it cannot."""


def gallop(spans: Spans, buffers: int) -> Iterator[Event]:
    """Accesses and joins, column by column.

    Examples
    --------
    >>> for kind, column, page in gallop([(0, 1), (0, 2)], 2):
    ...     print(kind, column, page)
    load R 0 -1
    load S -1 0
    join 0 0
    load R 1 -1
    join 1 0
    load S -1 1
    join 1 1
    """
    held: list[int] = []
    for column, (begin, end) in enumerate(spans):
        if begin == end:
            continue
        yield "load R", column, -1
        for page in range(begin, end):
            if page in held:
                held.remove(page)
            else:
                if len(held) == buffers - 1:
                    held.pop(0)
                yield "load S", -1, page
            held.append(page)
            yield "join", column, page


def crabstep(spans: Spans, buffers: int) -> Iterator[Event]:
    """Accesses and joins, galloping while it lasts and stepping sideways where it would thrash."""
    # The remaining pages of each column; an end never moves.
    begins = [begin for begin, _ in spans]
    ends = [end for _, end in spans]
    held: list[int] = []
    column = 0
    while column < len(spans):
        if begins[column] == ends[column]:
            column += 1
            continue
        yield "load R", column, -1
        while begins[column] < ends[column]:
            page = begins[column]
            if page not in held:
                if len(held) == buffers - 1 and not _dropped(held, begins, ends, column):
                    break
                yield "load S", -1, page
                held.append(page)
            yield "join", column, page
            begins[column] += 1
        if begins[column] == ends[column]:
            column += 1
            continue
        for other in range(column + 1, len(spans)):
            wanted = [page for page in sorted(held) if begins[other] <= page < ends[other]]
            if wanted:
                yield "load R", other, -1
                for page in wanted:
                    yield "join", other, page
                begins[other] = wanted[-1] + 1
        held.clear()


def _dropped(held: list[int], begins: list[int], ends: list[int], column: int) -> bool:
    """Drop a page that no column needs any more, if there is one."""
    for page in sorted(held):
        if not any(begins[other] <= page < ends[other] for other in range(column, len(begins))):
            held.remove(page)
            return True
    return False


def accesses(events: Iterator[Event]) -> int:
    """How many pages a schedule loads.

    Examples
    --------
    >>> band = [(max(0, page - 2), min(7, page + 3)) for page in range(7)]  # the paper's figures 7 and 8
    >>> accesses(gallop(band, 4)), accesses(crabstep(band, 4))
    (30, 21)
    """
    return sum(kind != "join" for kind, _, _ in events)
