"""The paper's claims as statements that can fail: on processor time, on page accesses and on pairs compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matwin import Run
from reproduce import Claim

SIGNIFICANT = 2.0
"""How many times better something "significantly" better is at least."""
SAME = 1.5
"""Within which factor something is "not affected"."""

LOOPS, PLAIN, STANDARD, GRID = "nested loops", "MatWin/Standard", "MatWin/Standard/EGO", "MatWin/Grid/EGO"
OURS = {LOOPS: "nested loops, improved", STANDARD: "MatWin/Standard/EGO, improved"}
MATWIN = (PLAIN, STANDARD, GRID)
COSTS: dict[str, Callable[[Run], float]] = {
    "time": lambda run: run.seconds,
    "page accesses": lambda run: run.accesses,
    "pairs compared": lambda run: run.comparisons,
}
Found = Mapping[tuple[str, str], Run]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _judged(
    where: str, claim: str, test: str, found: Found, judge: Callable[[Callable[[str, str], float]], tuple[str, bool]],
    costs: Sequence[str] = tuple(COSTS), *, with_ours: bool = True,
) -> list[Claim]:  # fmt: skip
    """One claim for each cost: of the printed algorithms, and what it would be with ours."""
    made = []
    for name in costs:
        cost = COSTS[name]
        figures, holds = judge(lambda variant, at, cost=cost: cost(found[variant, at]))
        improved = None
        if with_ours:
            improved = judge(lambda variant, at, cost=cost: cost(found[OURS.get(variant, variant), at]))[1]
        made.append(Claim(where, f"{claim}: {name}", figures, holds, test, {}, improved))
    return made


def by_size(where: str, found: Found, last: str) -> list[Claim]:
    def better(of):
        worst = max(of(name, last) for name in MATWIN)
        return f"{_shown(of(LOOPS, last))} against at most {_shown(worst)}", of(LOOPS, last) >= SIGNIFICANT * worst

    def ordered(of):
        return f"{_shown(of(PLAIN, last))} without, {_shown(of(STANDARD, last))} with", of(STANDARD, last) < of(
            PLAIN, last
        )

    def grid(of):
        return f"Grid {_shown(of(GRID, last))}, Standard {_shown(of(STANDARD, last))}", of(GRID, last) < of(
            STANDARD, last
        )

    rows = f"with {last} rows"
    return [
        *_judged(where, "All variants of MatWin perform significantly better than nested loops",
                 f"{SIGNIFICANT:.0f} times or more {rows}", found, better, ("time", "pairs compared")),
        *_judged(where, "The epsilon-grid order increases the efficiency further", f"less {rows}", found, ordered,
                 ("time", "pairs compared"), with_ours=False),
        *_judged(where, "Grid materialisation performs slightly better than standard", f"less {rows}", found, grid,
                 ("time",)),
    ]  # fmt: skip


def by_dimensions(where: str, found: Found, labels: Sequence[str]) -> list[Claim]:
    few, many = labels[0], labels[-1]

    def better(of):
        return f"Grid {_shown(of(GRID, few))}, Standard {_shown(of(STANDARD, few))}", of(GRID, few) < of(STANDARD, few)

    def worse(of):
        return f"Grid {_shown(of(GRID, many))}, Standard {_shown(of(STANDARD, many))}", of(GRID, many) > of(
            STANDARD, many
        )

    def level(of):
        values = [of(STANDARD, at) for at in labels]
        return ", ".join(_shown(value) for value in values), max(values) <= SAME * min(values)

    def overall(of):
        ratios = [of(LOOPS, at) / of(STANDARD, at) for at in labels]
        return ", ".join(f"x{ratio:.3g}" for ratio in ratios), min(ratios) > 1

    on_page = {name: found[name, many].rows_on_pages / found[name, many].pages for name in (STANDARD, GRID)}
    costs = ("time", "page accesses")
    return [
        *_judged(where, "Grid materialisation performs better with few dimensions",
                 f"less with {few}", found, better, ("time",)),
        *_judged(where, "With more dimensions it performs worse", f"more with {many}", found, worse, costs),
        *_judged(where, "The standard materialisation is not affected by the number of dimensions",
                 f"all within a factor of {SAME}", found, level, costs),
        *_judged(where, "MatWin/Standard/EGO outperforms nested loops overall",
                 "less with every number", found, overall, ("time", "pairs compared")),
        Claim("section 3.3.3", "Pages of the grid may be populated sparsely",
              f"{on_page[GRID]:.1f} rows on a page, Standard {on_page[STANDARD]:.1f}",
              on_page[GRID] < on_page[STANDARD] / 2,
              f"with {many} dimensions less than half as full as those of Standard"),
    ]  # fmt: skip


def everywhere(where: str, found: Found, labels: Sequence[str], axes: int) -> list[Claim]:
    """Section 4: the observations of Figures 11 and 12 hold for other distributions and distances."""
    tests: dict[str, Callable[[Callable[[str], float]], bool]] = {
        "MatWin performs significantly better than nested loops": lambda of: (
            of(LOOPS) >= SIGNIFICANT * max(of(name) for name in MATWIN)
        ),
        "the epsilon-grid order increases the efficiency": lambda of: of(STANDARD) < of(PLAIN),
        "Grid performs better with 2 dimensions": lambda of: of(GRID) < of(STANDARD),
    }
    if axes > 2:
        tests = {f"Grid performs worse with {axes} dimensions": lambda of: of(GRID) > of(STANDARD)}
    made = []
    for what, test in tests.items():
        # Page accesses in two dimensions depend on the size of a page: see `by_page`.
        for name in ("time", "page accesses") if axes > 2 else ("time",):
            fails = [at for at in labels if not test(_costs(found, at, COSTS[name]))]
            said = f"{len(labels) - len(fails)} of {len(labels)}" + (f"; not {'; '.join(fails)}" if fails else "")
            made.append(Claim(where, f"With other distributions and distances, {what}: {name}", said, not fails,
                              f"in all {len(labels)} settings"))  # fmt: skip
    return made


def _costs(found: Found, at: str, cost: Callable[[Run], float]) -> Callable[[str], float]:
    return lambda variant: cost(found[variant, at])


def by_page(where: str, found: Found, pages: Mapping[str, int]) -> list[Claim]:
    """The claims of Figure 11 in page accesses, which depend on how many rows a page holds."""

    def judged(claim: str, worse: Callable[[str], float], better: Callable[[str], float], factor: float) -> Claim:
        ratios = {at: worse(at) / better(at) for at in pages}
        holds = {f"pages hold {at} rows": ratio > factor for at, ratio in ratios.items()}
        said = ", ".join(f"x{ratio:.2f} ({at} rows)" for at, ratio in ratios.items())
        first = next(iter(holds.values()))
        return Claim(where, f"{claim}: page accesses, 1000 rows", said, first, f"more than {factor:g} times", holds)

    def of(name: str) -> Callable[[str], float]:
        return lambda at: found[name, at].accesses

    def loops(at: str) -> float:
        n = pages[at]
        return 3 * n + n * n + n**3

    return [
        judged("MatWin/Standard/EGO performs significantly better than nested loops", loops, of(STANDARD), SIGNIFICANT),
        judged("The epsilon-grid order increases the efficiency", of(PLAIN), of(STANDARD), 1.0),
        judged("Grid materialisation performs better than standard", of(STANDARD), of(GRID), 1.0),
    ]


Propagated = Mapping[str, tuple[np.ndarray, np.ndarray, Run]]


def _halves(found: Propagated) -> dict[str, float]:
    return {label: float(np.interp(0.5, at, share)) for label, (at, share, _) in found.items()}


def by_distribution(where: str, found: Propagated) -> list[Claim]:
    halves = _halves(found)
    normal, uniform = found["normal"][2], found["uniform"][2]
    return [
        Claim(where, "Results are propagated continuously, whatever the distribution",
              ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in halves.items()),
              all(0.3 <= share <= 0.7 for share in halves.values()), "30 to 70 % of them at half the page accesses"),
        Claim(where, "Normal values take longer, because the result has more pairs",
              f"{normal.accesses:,} and {uniform.accesses:,} accesses, {normal.comparisons:,} and "
              f"{uniform.comparisons:,} pairs compared, {normal.results:,} and {uniform.results:,} results",
              normal.accesses > uniform.accesses and normal.results > uniform.results,
              "more accesses and more results than uniform ones"),
    ]  # fmt: skip


def by_precision(where: str, found: Propagated) -> list[Claim]:
    halves = _halves(found)
    fine = list(halves.values())[1:]
    steps = len(found["1 decimal"][2].propagated)
    return [
        Claim(where, "Two to five decimals of y1 do not influence the continuous propagation",
              ", ".join(f"{100 * share:.0f} %" for share in fine), all(0.35 <= share <= 0.65 for share in fine),
              "35 to 65 % at half the page accesses"),
        Claim(where, "With one decimal, the precision of the maximum distance, results come out in steps",
              f"{steps} times, {len(found['5 decimals'][2].propagated)} with five decimals", steps <= 12,
              "12 times or fewer"),
    ]  # fmt: skip


def example(where: str, printed: Mapping[str, int], counted: Mapping[str, int]) -> Claim:
    said = f"{counted['crabstep']} and {counted['gallop']}"
    claim = "Crabstep needs 21 disk accesses where gallop needs 30"
    return Claim(where, claim, said, dict(printed) == dict(counted), "the same numbers")
