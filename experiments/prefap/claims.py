"""The paper's claims as statements that can fail, each judged on our figures.

`Found.printed` passes the verdict; `Found.ours` says what it would be with spans that are not rounded.  Where the paper
leaves open what was done, the other possibilities are readings of a claim, and a claim that they decide is undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from measure import Summary
from reproduce import Claim
from scipy import stats

NEAR = 1.0
"""How many percentage points a printed percentage may be away from ours and still count as reproduced."""

LEVEL = 0.05
"""The paper's level of significance."""

IN_TURN = "pairs are dealt to the processes in turn"
BY_SPARK = "Spark gives a free worker the next of p tasks"
ONE_THREAD = "one thread compares compiled numbers"
RATIOS = (("in", "ratio_in", "dealt_in"), ("out", "ratio_out", "dealt_out"))


@dataclass(frozen=True)
class Found:
    """Prefap and its rivals, Prefap first and FTJ second: as printed, and with our spans."""

    printed: Sequence[Summary]
    ours: Sequence[Summary]

    @classmethod
    def of(cls, summaries: Sequence[Summary]) -> Found:
        """From the rivals and then Prefap and FTJ of ours; the others have no spans to round."""
        *printed, prefap, ftj = summaries
        return cls(printed, [prefap, ftj, *printed[2:]])


def percent(part: float, whole: float) -> float:
    return 100.0 * (1.0 - part / whole) if whole else 0.0


def significance(ours: np.ndarray, other: np.ndarray) -> float:
    """The p-value of a paired one-sided t-test that ours is lower, run by run.

    One run shows nothing.  A difference that is the same in every run has no variance to test against: it is there, or
    it is not.
    """
    if len(ours) < 2:
        return 1.0
    if np.ptp(ours - other) == 0.0:
        return 0.0 if ours[0] < other[0] else 1.0
    return float(stats.ttest_rel(ours, other, alternative="less").pvalue)


def lower(ours: Summary, other: Summary, field: str) -> bool:
    """Whether ours is lower beyond chance.  Medians alone change places from one whole run to the next."""
    return significance(ours.column(field), other.column(field)) < LEVEL


def interval(ours: Summary, other: Summary, field: str) -> str:
    """The mean difference of processor time in per cent of the other's mean, with a 95 % interval over the runs."""
    a, b = ours.column(field), other.column(field)
    difference = 100.0 * (a - b) / b.mean()
    middle = float(difference.mean())
    if len(a) < 2:
        return f"{middle:+.1f} %"
    half = float(stats.t.ppf(0.975, len(a) - 1) * difference.std(ddof=1) / np.sqrt(len(a)))
    return f"{middle:+.1f} %, 95 % interval {middle - half:+.1f} to {middle + half:+.1f}"


def middle_interval(ours: Summary, other: Summary, field: str) -> str:
    """The median difference of elapsed time in per cent, run by run, with an interval of at least 95 % for it.

    A neighbour may stop everything for a minute, and a mean would be about that minute.  The interval reaches from one
    ordered difference to another, as far from both ends as chance allows, whatever the distribution.
    """
    difference = np.sort(100.0 * (ours.column(field) / other.column(field) - 1.0))
    runs, middle = len(difference), float(np.median(difference))
    # The place from either end: that fewer differences lie below the median has a chance of less than 2.5 %.
    place = int(stats.binom.ppf(0.025, runs, 0.5))
    if place == 0:
        return f"{middle:+.0f} %"
    low, high = float(difference[place - 1]), float(difference[runs - place])
    return f"{middle:+.0f} %, 95 % interval {low:+.0f} to {high:+.0f}"


def fewest_products(where: str, found: Found) -> Claim:
    """Prefap performs fewer products than every other algorithm."""
    ours, *others = found.printed
    best = min(others, key=lambda summary: summary.products)
    return Claim(
        where,
        "Prefap performs the fewest Cartesian products",
        f"{ours.products:,.0f}; next {best.label} {best.products:,.0f}; results {ours.results:,.0f}",
        _fewest(found.printed),
        test="fewer than each other algorithm, means",
        improved=_fewest(found.ours),
    )


def _fewest(found: Sequence[Summary]) -> bool:
    return all(found[0].products < other.products for other in found[1:])


def shortest_elapsed(where: str, found: Found, spread: Sequence[Summary]) -> Claim:
    """Judged where the paper measured: several processes, and comparisons that cost what the paper's cost."""
    ours, *others = spread
    best = min(others, key=lambda summary: summary.work_ms)
    alone = min(found.printed[1:], key=lambda summary: summary.elapsed_ms)
    return Claim(
        where,
        "Prefap takes the least time",
        f"four workers: {ours.work_ms:.0f} ms; best other {best.label} {best.work_ms:.0f} ms "
        f"({interval(ours, best, 'work_ms')}; on the wall {middle_interval(ours, best, 'elapsed_ms')}); "
        f"one thread: {found.printed[0].elapsed_ms:.2f} ms; best other {alone.label} {alone.elapsed_ms:.2f} ms",
        all(lower(ours, other, "work_ms") for other in others),
        test=f"less processor time than each other algorithm, paired one-sided t-tests over {len(ours.samples)} runs, "
        f"p < {LEVEL}",
        readings={ONE_THREAD: all(lower(found.printed[0], other, "elapsed_ms") for other in found.printed[1:])},
    )


def better_balance(where: str, found: Found, spread: Sequence[Summary]) -> list[Claim]:
    """Prefap's load balancing ratios are nearer to 1 than FTJ's, where pairs queue for a free process."""
    ours, ftj = found.printed[:2]
    return [
        Claim(
            where,
            f"Load balancing ratio ({name}) is closer to 1 than FTJ's",
            f"Prefap {getattr(ours, field):.3f}, FTJ {getattr(ftj, field):.3f}; pairs dealt in turn "
            f"{getattr(ours, dealt):.3f}, {getattr(ftj, dealt):.3f}; four workers "
            f"{getattr(spread[0], field):.3f}, {getattr(spread[1], field):.3f}",
            getattr(ours, field) < getattr(ftj, field),
            test=f"lower mean, each pair to the process with the fewest products; workers: t-test, p < {LEVEL}",
            readings={
                IN_TURN: getattr(ours, dealt) < getattr(ftj, dealt),
                BY_SPARK: lower(spread[0], spread[1], field),
            },
            improved=getattr(found.ours[0], field) < getattr(found.ours[1], field),
        )
        for name, field, dealt in RATIOS
    ]


def reduction(where: str, printed: float, readings: Mapping[str, float], ours: float) -> Claim:
    """The printed reduction of products over FTJ."""
    return near(where, f"{printed:.1f} % fewer Cartesian products than FTJ", printed, readings, NEAR, ours)


def near(where: str, claim: str, printed: float, readings: Mapping[str, float], within: float, ours: float) -> Claim:
    """A printed percentage, judged on the first reading: the text's own parameters.

    The others contradict the text, and with enough of them one tends to come close.  They cannot make a claim hold, and
    take nothing from one that holds; where one comes close, the claim is undecided.
    """
    first, *others = readings
    closest = min(readings, key=lambda name: abs(readings[name] - printed))
    text = f"{readings[first]:.1f} % ({first})"
    if closest == first:
        text += f"; the other {len(others)} readings are further off"
    else:
        text += f"; closest of {len(readings)} readings {readings[closest]:.1f} % ({closest})"
    held = abs(readings[first] - printed) <= within
    return Claim(
        where,
        claim,
        text,
        held,
        test=f"within {within:g} points of the printed number, p = 10, w = 1000",
        readings={} if held else {name: abs(readings[name] - printed) <= within for name in others},
        improved=abs(ours - printed) <= within,
    )


def sweep(where: str, name: str, values: Sequence[int], found: Sequence[Found]) -> list[Claim]:
    """What section 4.6 says of every value of a parameter."""
    pairs = [each.printed[:2] for each in found]
    return [
        Claim(
            where,
            f"Prefap performs the fewest products for every {name}",
            "less than FTJ by "
            + ", ".join(f"{percent(s.products, f.products):.1f} %" for s, f in pairs)
            + f" ({name} {', '.join(map(str, values))})",
            all(_fewest(each.printed) for each in found),
            test="fewer than each other algorithm, means, at each value",
            improved=all(_fewest(each.ours) for each in found),
        ),
        Claim(
            where,
            f"Prefap takes less time than FTJ for every {name}",
            ", ".join(f"{s.elapsed_ms:.2f} against {f.elapsed_ms:.2f} ms" for s, f in pairs) + ", one thread",
            all(lower(s, f, "elapsed_ms") for s, f in pairs),
            test=f"less processor time of one thread, paired one-sided t-test, p < {LEVEL}, at each value",
        ),
    ]


def falls_with_partitions(where: str, found: Sequence[Found]) -> list[Claim]:
    printed, ours = [each.printed[0] for each in found], [each.ours[0] for each in found]
    claims = [
        Claim(
            where,
            "More partitions mean fewer products",
            ", ".join(f"{s.products:,.0f}" for s in printed),
            _falls(printed),
            test="fewer at each step",
            improved=_falls(ours),
        )
    ]
    for name, field, dealt in RATIOS:
        claims.append(
            Claim(
                where,
                f"More partitions bring the ratio ({name}) closer to 1",
                ", ".join(f"{getattr(s, field):.3f}" for s in printed)
                + "; dealt in turn "
                + ", ".join(f"{getattr(s, dealt):.3f}" for s in printed),
                getattr(printed[-1], field) < getattr(printed[0], field),
                test="lower with the most partitions than with the fewest, means",
                readings={IN_TURN: getattr(printed[-1], dealt) < getattr(printed[0], dealt)},
                improved=getattr(ours[-1], field) < getattr(ours[0], field),
            )
        )
    return claims


def _falls(found: Sequence[Summary]) -> bool:
    return bool(all(np.diff([s.products for s in found]) < 0))


def grows_with_window(where: str, values: Sequence[int], found: Sequence[Found]) -> list[Claim]:
    printed, ours = [each.printed[0] for each in found], [each.ours[0] for each in found]
    claims = [
        Claim(
            where,
            "Products grow in proportion to the window size",
            f"exponent {_exponent(values, printed):.2f} (the number of results grows with the square, too)",
            abs(_exponent(values, printed) - 1.0) < 0.2,
            test="exponent of a power law between 0.8 and 1.2",
            improved=abs(_exponent(values, ours) - 1.0) < 0.2,
        ),
        Claim(
            where,
            "Products stay relatively close to the number of results for every window",
            ", ".join(f"{100 * (s.products / s.results - 1):.1f} % above" for s in printed),
            max(s.products / s.results for s in printed) < 1.25,
            test="at most 25 % above at each value",
            improved=max(s.products / s.results for s in ours) < 1.25,
        ),
    ]
    for name, field, dealt in RATIOS:
        claims.append(
            Claim(
                where,
                f"Load balancing ratio ({name}) is better than FTJ's for every window",
                ", ".join(f"{getattr(s, field):.3f}/{getattr(f, field):.3f}" for s, f in _pairs(found, "printed"))
                + "; dealt in turn "
                + ", ".join(f"{getattr(s, dealt):.3f}/{getattr(f, dealt):.3f}" for s, f in _pairs(found, "printed")),
                all(getattr(s, field) < getattr(f, field) for s, f in _pairs(found, "printed")),
                test="lower mean at each value",
                readings={IN_TURN: all(getattr(s, dealt) < getattr(f, dealt) for s, f in _pairs(found, "printed"))},
                improved=all(getattr(s, field) < getattr(f, field) for s, f in _pairs(found, "ours")),
            )
        )
    return claims


def _exponent(values: Sequence[int], found: Sequence[Summary]) -> float:
    return float(np.polyfit(np.log(values), np.log([s.products for s in found]), 1)[0])


def _pairs(found: Sequence[Found], name: str) -> list[tuple[Summary, Summary]]:
    return [(getattr(each, name)[0], getattr(each, name)[1]) for each in found]


# --- the ablation ------------------------------------------------------------------------------------------


def ablation(
    where: str,
    counts: Sequence[int],
    printed: Sequence[int],
    *,
    how: str,
    readings: Mapping[str, Sequence[int]],
    ours: Sequence[int],
    identified: bool = False,
) -> list[Claim]:
    """The counts themselves, and the order of importance of the two additions.

    Parameters
    ----------
    where, counts, printed
        The table, our counts and the paper's: the full version first, then without prefiltering, amalgamation, both.
    how
        What our counts were made with.
    readings
        The counts under other readings.
    ours
        The counts with spans that are not rounded.
    identified
        All four counts come out to the last digit: that is what the authors ran, and no reading takes from it what is
        said of these very counts.
    """
    said = _rises(printed)

    def like(made: Sequence[int]) -> bool:
        return all(abs(a - b) <= NEAR for a, b in zip(_rises(made), said, strict=True))

    off = [100 * (a / b - 1) for a, b in zip(counts, printed, strict=True)]
    of_the_table = {} if identified else readings
    return [
        Claim(
            where,
            "Counts " + ", ".join(f"{value:,}" for value in printed),
            "all equal" if list(counts) == list(printed) else "off by " + ", ".join(f"{v:+.2f} %" for v in off),
            list(counts) == list(printed),
            test=f"all four equal ({how})",
            readings={name: list(made) == list(printed) for name, made in of_the_table.items()},
            improved=list(ours) == list(printed),
        ),
        Claim(
            where,
            f"Without prefiltering, amalgamation, both: {_listed(said)} % more products",
            "; ".join(f"{_listed(_rises(made))} % ({name})" for name, made in {how: counts, **of_the_table}.items()),
            like(counts),
            test=f"each within {NEAR:g} point",
            readings={name: like(made) for name, made in of_the_table.items()},
            improved=like(ours),
        ),
        Claim(
            where,
            "Both additions matter, amalgamation more, both together most",
            "; ".join(
                f"{', '.join(f'{n:,}' for n in made)} ({name})" for name, made in {how: counts, **readings}.items()
            ),
            _ordered(counts),
            test="full < without prefiltering < without amalgamation < without both",
            readings={name: _ordered(made) for name, made in readings.items()},
            improved=_ordered(ours),
        ),
    ]


def _rises(counts: Sequence[int]) -> list[float]:
    return [100 * (value / counts[0] - 1) for value in counts[1:]]


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _ordered(counts: Sequence[int]) -> bool:
    return bool(all(np.diff(counts) > 0))


def ablation_elapsed(where: str, found: Sequence[Summary], spread: Sequence[Summary]) -> Claim:
    """As in `shortest_elapsed`: four workers pass the verdict, one thread is a reading."""
    return Claim(
        where,
        "The full version takes the least time",
        f"four workers: {', '.join(f'{each.work_ms:.0f}' for each in spread)} ms; "
        f"one thread: {', '.join(f'{each.elapsed_ms:.2f}' for each in found)} ms",
        all(lower(spread[0], other, "work_ms") for other in spread[1:]),
        test="less processor time than each other version, "
        f"paired one-sided t-tests over {len(spread[0].samples)} runs, "
        f"p < {LEVEL}",
        readings={ONE_THREAD: all(lower(found[0], other, "elapsed_ms") for other in found[1:])},
    )
