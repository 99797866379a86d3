"""The paper's claims as statements that can fail, each judged on our figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from measure import Summary
from reproduce import Claim
from scipy import stats

NEAR = 1.0
"""How many percentage points a printed percentage may be away from ours and still count as reproduced."""


def percent(part: float, whole: float) -> float:
    return 100.0 * (1.0 - part / whole) if whole else 0.0


def fewest_products(where: str, found: Sequence[Summary]) -> Claim:
    """Prefap performs fewer products than every other algorithm."""
    ours, *others = found
    best = min(others, key=lambda summary: summary.products)
    return Claim(
        where,
        "Prefap performs the fewest Cartesian products",
        f"{ours.products:,.0f}; next {best.label} {best.products:,.0f}; results {ours.results:,.0f}",
        all(ours.products < other.products for other in others),
    )


def faster(ours: Summary, other: Summary) -> bool:
    """Whether ours takes less time beyond chance: a paired one-sided t-test at 0.05, run by run.

    Medians alone change places from one whole run to the next.  A single run has nothing but its two times.
    """
    a, b = ours.column("elapsed_ms"), other.column("elapsed_ms")
    if len(a) < 2:
        return bool(a[0] < b[0])
    return bool(stats.ttest_rel(a, b, alternative="less").pvalue < 0.05)


def shortest_elapsed(where: str, found: Sequence[Summary]) -> Claim:
    ours, *others = found
    best = min(others, key=lambda summary: summary.elapsed_ms)
    return Claim(
        where,
        "Prefap takes the least time",
        f"{ours.elapsed_ms:.2f} ms; best other {best.label} {best.elapsed_ms:.2f} ms",
        all(faster(ours, other) for other in others),
    )


def better_balance(where: str, found: Sequence[Summary]) -> list[Claim]:
    """Prefap's load balancing ratios are nearer to 1 than FTJ's, where pairs queue for a free process."""
    ours, ftj = _pair(found)
    return [
        Claim(
            where,
            f"Load balancing ratio ({name}) is closer to 1 than FTJ's",
            f"Prefap {getattr(ours, field):.3f}, FTJ {getattr(ftj, field):.3f} (pairs dealt in turn: "
            f"{getattr(ours, dealt):.3f}, {getattr(ftj, dealt):.3f})",
            getattr(ours, field) < getattr(ftj, field),
        )
        for name, field, dealt in (("in", "ratio_in", "dealt_in"), ("out", "ratio_out", "dealt_out"))
    ]


def reduction(where: str, printed: float, readings: Mapping[str, float]) -> Claim:
    """The printed reduction of products over FTJ."""
    return near(where, f"{printed:.1f} % fewer Cartesian products than FTJ", printed, readings, NEAR)


def near(where: str, claim: str, printed: float, readings: Mapping[str, float], within: float) -> Claim:
    """A printed percentage, judged on the first reading: the text's own parameters.

    The other readings are shown, and how many there are, but pass no verdict: with enough of them one always
    comes close.
    """
    closest = min(readings, key=lambda name: abs(readings[name] - printed))
    first = next(iter(readings))
    text = f"{readings[first]:.1f} % ({first})"
    if closest == first:
        text += f"; the other {len(readings) - 1} readings are further off"
    else:
        text += f"; closest of {len(readings)} readings {readings[closest]:.1f} % ({closest})"
    return Claim(where, claim, text, abs(readings[first] - printed) <= within)


def sweep(where: str, name: str, values: Sequence[int], found: Sequence[Sequence[Summary]]) -> list[Claim]:
    """What sections 4.6 says of every value of a parameter."""
    pairs = [_pair(summaries) for summaries in found]
    fewer = [all(s[0].products < other.products for other in s[1:]) for s in found]
    sooner = [faster(s, f) for s, f in pairs]
    return [
        Claim(
            where,
            f"Prefap performs the fewest products for every {name}",
            "less than FTJ by "
            + ", ".join(f"{percent(s.products, f.products):.1f} %" for s, f in pairs)
            + f" ({name} {', '.join(map(str, values))})",
            all(fewer),
        ),
        Claim(
            where,
            f"Prefap takes less time than FTJ for every {name}",
            ", ".join(f"{s.elapsed_ms:.2f} against {f.elapsed_ms:.2f} ms" for s, f in pairs),
            all(sooner),
        ),
    ]


def falls_with_partitions(where: str, found: Sequence[Sequence[Summary]]) -> list[Claim]:
    ours = [summaries[0] for summaries in found]
    products = [s.products for s in ours]
    claims = [
        Claim(
            where,
            "More partitions mean fewer products",
            ", ".join(f"{value:,.0f}" for value in products),
            all(np.diff(products) < 0),
        )
    ]
    for name, field in (("in", "ratio_in"), ("out", "ratio_out")):
        ratio = [getattr(s, field) for s in ours]
        claims.append(
            Claim(
                where,
                f"More partitions bring the ratio ({name}) closer to 1",
                ", ".join(f"{value:.3f}" for value in ratio),
                ratio[-1] < ratio[0],
            )
        )
    return claims


def grows_with_window(where: str, values: Sequence[int], found: Sequence[Sequence[Summary]]) -> list[Claim]:
    ours = [summaries[0] for summaries in found]
    slope = np.polyfit(np.log(values), np.log([s.products for s in ours]), 1)[0]
    over = [s.products / s.results for s in ours]
    claims = [
        Claim(
            where,
            "Products grow in proportion to the window size",
            f"exponent {slope:.2f} (the number of results grows with the square, too)",
            abs(slope - 1.0) < 0.2,
        ),
        Claim(
            where,
            "Products stay relatively close to the number of results for every window",
            ", ".join(f"{100 * (value - 1):.1f} % above" for value in over),
            max(over) < 1.25,
        ),
    ]
    for name, field in (("in", "ratio_in"), ("out", "ratio_out")):
        ratio = [(getattr(s, field), getattr(f, field)) for s, f in map(_pair, found)]
        claims.append(
            Claim(
                where,
                f"Load balancing ratio ({name}) is better than FTJ's for every window",
                ", ".join(f"{ours:.3f}/{ftj:.3f}" for ours, ftj in ratio),
                all(ours < ftj for ours, ftj in ratio),
            )
        )
    return claims


def ablation(where: str, found: Sequence[Summary], printed: Sequence[int], remark: str = "") -> list[Claim]:
    """The counts themselves, and the order of importance of the two additions."""
    counts = [summary.products for summary in found]
    off = [100 * (ours / paper - 1) for ours, paper in zip(counts, printed, strict=True)]
    full, no_prefilter, no_amalgamation, neither = counts
    rise = [100 * (value / full - 1) for value in counts[1:]]
    said = [100 * (value / printed[0] - 1) for value in printed[1:]]
    return [
        Claim(
            where,
            "Counts " + ", ".join(f"{value:,}" for value in printed),
            "all equal" if counts == list(printed) else "off by " + ", ".join(f"{value:+.2f} %" for value in off),
            counts == list(printed),
        ),
        Claim(
            where,
            "Without prefiltering, amalgamation, both: "
            + ", ".join(f"{value:.1f}" for value in said)
            + " % more products",
            ", ".join(f"{value:.1f}" for value in rise) + f" % more{remark}",
            all(abs(ours - paper) <= NEAR for ours, paper in zip(rise, said, strict=True)),
        ),
        Claim(
            where,
            "Both additions matter, amalgamation more, both together most",
            f"{full:,.0f} < {no_prefilter:,.0f} < {no_amalgamation:,.0f} < {neither:,.0f}{remark}",
            full < no_prefilter < no_amalgamation < neither,
        ),
    ]


def ablation_elapsed(where: str, found: Sequence[Summary]) -> Claim:
    times = [summary.elapsed_ms for summary in found]
    return Claim(
        where,
        "The full version takes the least time",
        ", ".join(f"{value:.2f}" for value in times) + " ms",
        all(faster(found[0], other) for other in found[1:]),
    )


def _pair(found: Sequence[Summary]) -> tuple[Summary, Summary]:
    by_label = {summary.label: summary for summary in found}
    return by_label["Prefap"], by_label["FTJ"]
