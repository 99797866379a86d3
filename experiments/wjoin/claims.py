"""The paper's claims as statements that can fail, each judged on our figures.

The figures themselves carry no numbers in the text, so what can be judged is what the text says of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from measure import Series
from reproduce import Claim

ORDER_OF_MAGNITUDE = 10.0
ALMOST = 5.0
"""What counts as "almost an order of magnitude"."""
GREATLY = 2.0
"""What counts as "greatly improved", and as a steep increase."""
SLIGHTLY = 0.25
"""Up to which change, as a part of the whole, a service time is "not changed significantly"."""


def outperforms(where: str, claim: str, found: Mapping[object, Mapping[str, Series]], fast: str, slow: str,
                factor: float = 1.0) -> list[Claim]:  # fmt: skip
    """One algorithm takes less time than another in every setting, by a factor; and makes fewer comparisons."""
    ratios = {key: row[slow].mean / row[fast].mean for key, row in found.items()}
    counted = {key: row[slow].comparisons / row[fast].comparisons for key, row in found.items()}
    return [
        Claim(where, claim, "faster by " + _times(ratios), all(value > factor for value in ratios.values())),
        Claim(
            where,
            f"{claim}, in comparisons",
            "fewer by " + _times(counted),
            all(value > factor for value in counted.values()),
        ),
    ]


def maintained(where: str, found: Mapping[int, Mapping[str, Series]], fast: str, slow: str) -> Claim:
    ratios = {key: row[slow].mean / row[fast].mean for key, row in found.items()}
    values = list(ratios.values())
    return Claim(
        where,
        "This relative performance is maintained as the number of streams grows (no ratio below half of the first)",
        _times(ratios),
        min(values) >= values[0] / 2,
    )


def converges(where: str, found: Mapping[int, Mapping[str, Series]], fast: str, slow: str) -> Claim:
    ratios = {key: row[slow].mean / row[fast].mean for key, row in found.items()}
    values = list(ratios.values())
    return Claim(
        where,
        f"{slow} and {fast} converge as the number of streams grows (last ratio below the first and below 1.5)",
        _times(ratios),
        values[-1] < values[0] and values[-1] < 1.5,
    )


def best_and_scales(where: str, found: Mapping[int, Mapping[str, Series]], best: str) -> list[Claim]:
    labels = list(next(iter(found.values())))
    rows = list(found.values())
    growth = {label: rows[-1][label].mean - rows[0][label].mean for label in labels}
    return [
        Claim(
            where,
            f"{best} achieves the best performance",
            "; ".join(
                f"n = {n}: " + ", ".join(f"{label} {row[label].mean:.2f}" for label in labels) + " us"
                for n, row in found.items()
            ),
            all(row[best].mean == min(row[label].mean for label in labels) for row in rows),
        ),
        Claim(
            where,
            f"{best} is more scalable (adds the least time per row from 2 to 6 streams)",
            ", ".join(
                f"{label} +{value:.2f} us (x{rows[-1][label].mean / rows[0][label].mean:.1f})"
                for label, value in growth.items()
            ),
            growth[best] == min(growth.values()),
        ),
    ]


def level(where: str, found: Mapping[int, Mapping[str, Series]], labels: Sequence[str]) -> Claim:
    """No build-up: the second day costs what the first did, in comparisons; the times vary more by themselves."""
    counted, timed = {}, {}
    for n, row in found.items():
        for label in labels:
            for ratios, values in ((counted, row[label].compared), (timed, row[label].service)):
                first, second = np.array_split(values, 2)
                ratios[f"{label}, n = {n}"] = float(second.mean() / first.mean())
    return Claim(
        where,
        f"The plots of {' and '.join(labels)} do not build up (second day at most 1.2 times the first)",
        f"comparisons {_times(counted)}; times {_times(timed)}",
        max(counted.values()) <= 1.2,
    )


def opening_hours(where: str, found: Mapping[str, Series]) -> Claim:
    ratios = {}
    for label, one in found.items():
        day = np.array_split(one.service, 2)[1]
        ratios[label] = float(day.max() / day[: len(day) // 10].min())
    return Claim(
        where,
        f"Service time rises and falls steeply with the opening hours, 2-way ({GREATLY:.0f} times or more in a day)",
        _times(ratios),
        min(ratios.values()) >= GREATLY,
    )


def reacts(where: str, steady: Series, switching: Series) -> list[Claim]:
    ratio = steady.mean / switching.mean
    return [
        Claim(
            where,
            f"{steady.label} is greatly improved by a stream that slows down ({GREATLY:.0f} times or more)",
            f"{steady.mean:.2f} us and {switching.mean:.2f} us: x{ratio:.2f}",
            ratio >= GREATLY,
        ),
        Claim(
            where,
            "It runs most of the time in Mode 1 then",
            f"{100 * switching.idle:.0f} % of the rows find some input empty; {100 * steady.idle:.0f} % before",
            switching.idle > 0.5,
        ),
    ]


def unchanged(where: str, pairs: Sequence[tuple[Series, Series]]) -> Claim:
    changes = {f"{a.label}, {a.order}": b.mean / a.mean for a, b in pairs}
    return Claim(
        where,
        f"{' and '.join(dict.fromkeys(a.label for a, _ in pairs))} are not changed significantly (within 25 %)",
        _times(changes),
        all(abs(value - 1) <= SLIGHTLY for value in changes.values()),
    )


def faster(where: str, claim: str, fast: Series, slow: Series) -> Claim:
    return Claim(
        where,
        claim,
        f"{fast.label} {fast.mean:.2f} us and {fast.comparisons:,.0f} comparisons, "
        f"{slow.label} {slow.mean:.2f} us and {slow.comparisons:,.0f}: x{slow.mean / fast.mean:.2f}",
        fast.mean < slow.mean,
    )


def _times(ratios: Mapping[object, float]) -> str:
    return ", ".join(f"x{value:.2f} ({_named(key)})" for key, value in ratios.items())


def _named(key: object) -> str:
    return f"n = {key}" if isinstance(key, int) else str(key)
