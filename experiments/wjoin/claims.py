"""The paper's claims as statements that can fail, each judged on our figures.

The figures themselves carry no numbers in the text, so what can be judged is what the text says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from measure import FLAT, Series
from reproduce import Claim

ORDER_OF_MAGNITUDE = 10.0
ALMOST = 5.0
"""What counts as "almost an order of magnitude"."""
GREATLY = 2.0
"""What counts as "greatly improved", and as a steep increase."""
SLIGHTLY = 0.25
"""Up to which change, as a part of the whole, a service time is "not changed significantly"."""


READ_FLAT = "the nested loop is the flat one of section 3.1"


def _flat(label: str, row: Mapping[str, Series]) -> str:
    """The same without intermediate results, where there is such a one."""
    return label + FLAT if label + FLAT in row else label


def _ratios(
    found: Mapping[object, Mapping[str, Series]], fast: str, slow: str, of: Callable[[Series], float], *, flat: bool
) -> dict[object, float]:
    """How many times more the slow one takes of something, in every setting."""
    chosen = _flat if flat else lambda label, row: label
    return {key: of(row[chosen(slow, row)]) / of(row[chosen(fast, row)]) for key, row in found.items()}


def _compared(
    where: str,
    claim: str,
    test: str,
    found: Mapping[object, Mapping[str, Series]],
    fast: str,
    slow: str,
    judge: Callable[[list[float]], bool],
    *,
    counted: bool,
) -> Claim:
    """A claim on the ratios of two algorithms, in time or in comparisons, with both readings of the nested loop."""
    of = (lambda series: series.comparisons) if counted else (lambda series: series.mean)
    printed, flat = (_ratios(found, fast, slow, of, flat=flat) for flat in (False, True))
    said = f"{_times(printed)}; flat {_times(flat)}" if flat != printed else _times(printed)
    return Claim(where, f"{claim}, in comparisons" if counted else claim, said, judge(list(printed.values())), test,
                 {READ_FLAT: judge(list(flat.values()))} if flat != printed else {})  # fmt: skip


def outperforms(where: str, claim: str, found: Mapping[object, Mapping[str, Series]], fast: str, slow: str,
                factor: float = 1.0) -> list[Claim]:  # fmt: skip
    """One algorithm takes less time than another in every setting, by a factor; and makes fewer comparisons."""
    test = f"more than {factor:g} times everywhere"
    return [
        _compared(where, claim, test, found, fast, slow, lambda values: min(values) > factor, counted=counted)
        for counted in (False, True)
    ]


def maintained(where: str, found: Mapping[int, Mapping[str, Series]], fast: str, slow: str) -> list[Claim]:
    return [
        _compared(where, "This relative performance is maintained as the number of streams grows",
                  "no ratio below half of the first", found, fast, slow,
                  lambda values: min(values) >= values[0] / 2, counted=counted)
        for counted in (False, True)
    ]  # fmt: skip


def converges(where: str, found: Mapping[int, Mapping[str, Series]], fast: str, slow: str) -> list[Claim]:
    return [
        _compared(where, f"{slow} and {fast} converge as the number of streams grows",
                  "the last ratio is below the first and below 1.5", found, fast, slow,
                  lambda values: values[-1] < values[0] and values[-1] < 1.5, counted=counted)
        for counted in (False, True)
    ]  # fmt: skip


def best_and_scales(where: str, found: Mapping[int, Mapping[str, Series]], best: str) -> list[Claim]:
    labels = list(next(iter(found.values())))
    rows = list(found.values())
    growth = {label: rows[-1][label].mean - rows[0][label].mean for label in labels}
    said = "; ".join(
        f"n = {n}: " + ", ".join(f"{label} {row[label].mean:.2f}" for label in labels) + " us"
        for n, row in found.items()
    )
    grown = ", ".join(
        f"{label} +{value:.2f} us (x{rows[-1][label].mean / rows[0][label].mean:.1f})"
        for label, value in growth.items()
    )
    return [
        Claim(where, f"{best} achieves the best performance", said,
              all(row[best].mean == min(row[label].mean for label in labels) for row in rows),
              "the least time everywhere"),
        Claim(where, f"{best} is more scalable", grown, growth[best] == min(growth.values()),
              "adds the least time per row from 2 to 6 streams"),
    ]  # fmt: skip


def level(where: str, found: Mapping[int, Mapping[str, Series]], labels: Sequence[str]) -> Claim:
    """No build-up: the second day costs what the first did, in comparisons; the times vary more by themselves."""
    counted, timed = {}, {}
    for n, row in found.items():
        for label in dict.fromkeys(name for one in labels for name in (one, _flat(one, row))):
            for ratios, values in ((counted, row[label].compared), (timed, row[label].service)):
                first, second = np.array_split(values, 2)
                ratios[f"{label}, n = {n}"] = float(second.mean() / first.mean())
    return Claim(
        where,
        f"The plots of {' and '.join(labels)} do not build up",
        f"comparisons {_times(counted)}; times {_times(timed)}",
        max(counted.values()) <= 1.2,
        "the second day takes at most 1.2 times the comparisons of the first",
    )


def opening_hours(where: str, found: Mapping[str, Series]) -> Claim:
    ratios = {}
    for label, one in found.items():
        day = np.array_split(one.service, 2)[1]
        ratios[label] = float(day.max() / day[: len(day) // 10].min())
    return Claim(
        where,
        "Service time rises and falls steeply with the opening hours, 2-way",
        _times(ratios),
        min(ratios.values()) >= GREATLY,
        f"{GREATLY:.0f} times or more in a day",
    )


def reacts(where: str, steady: Series, switching: Series) -> list[Claim]:
    ratio = steady.mean / switching.mean
    return [
        Claim(where, f"{steady.label} is greatly improved by a stream that slows down",
              f"{steady.mean:.2f} us and {switching.mean:.2f} us: x{ratio:.2f}", ratio >= GREATLY,
              f"{GREATLY:.0f} times or more"),
        Claim(where, "It runs most of the time in Mode 1 then",
              f"{100 * switching.idle:.0f} % of the rows find some input empty; {100 * steady.idle:.0f} % before",
              switching.idle > 0.5, "more than half of the rows find some input empty"),
    ]  # fmt: skip


def unchanged(where: str, pairs: Sequence[tuple[Series, Series]]) -> Claim:
    """Pairs of a series before and after; the flat nested loop is the other reading of the pipelined one."""
    changes = {f"{a.label}, {a.order}": b.mean / a.mean for a, b in pairs}

    def judge(labels: Sequence[str]) -> bool:
        chosen = [b.mean / a.mean for a, b in pairs if a.label in labels]
        return all(abs(value - 1) <= SLIGHTLY for value in chosen)

    return Claim(
        where,
        "NLW-join and HW-join are not changed significantly",
        _times(changes),
        judge(("NLW-join", "HW-join")),
        f"within {SLIGHTLY:.0%} of the time before",
        {READ_FLAT: judge((f"NLW-join{FLAT}", "HW-join"))},
    )


def faster(where: str, claim: str, fast: Series, slow: Series, *other: Series, reading: str = READ_FLAT) -> list[Claim]:
    """Less time, and fewer comparisons; `other` has the same two in another reading of the paper."""
    judged = []
    for counted in (False, True):
        of = (lambda series: series.comparisons) if counted else (lambda series: series.mean)
        named = {one.label: of(one) for one in (fast, slow, *other)}
        said = ", ".join(
            f"{label} {value:,.0f}" if counted else f"{label} {value:.2f} us" for label, value in named.items()
        )
        judged.append(
            Claim(where, f"{claim}, in comparisons" if counted else claim, said, of(fast) < of(slow),
                  "fewer comparisons" if counted else "less time",
                  {reading: of(other[0]) < of(other[1])} if other else {})
        )  # fmt: skip
    return judged


def _times(ratios: Mapping[object, float]) -> str:
    return ", ".join(f"x{value:.2f} ({_named(key)})" for key, value in ratios.items())


def _named(key: object) -> str:
    return f"n = {key}" if isinstance(key, int) else str(key)
