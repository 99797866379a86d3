"""The paper's claims as statements that can fail, each judged on the printed algorithms, other readings, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from measure import KNOWN, OURS, QUALITY, QUANTITY, SETUPS, Outcome, Speed
from reproduce import Claim

SIGNIFICANT = 2.0
"""How many times larger, lower or faster something "significantly" larger, lower or faster is at least."""

SAME_POINTS = 2.0
"""How many points two percentages that are "the same" differ at most."""

NOISE = 1e-4
"""A rise of the divergence by less is none."""

_NAMES = {"": "", KNOWN: "chances are known beforehand", OURS: ""}


def judged(
    where: str, claim: str, test: str, judge: Callable[[Callable[[str], str]], tuple[str, bool]],
    readings: Mapping[str, bool] | None = None,
) -> Claim:  # fmt: skip
    """Judge a claim: `judge` gets a function that says which run stands for a name of the paper."""
    figures, holds = judge(lambda label: label)
    _, known = judge(lambda label: label + KNOWN if label + KNOWN in SETUPS else label)
    _, improved = judge(lambda label: label + OURS if label + OURS in SETUPS else label)
    return Claim(where, claim, figures, holds, test, {_NAMES[KNOWN]: known, **(readings or {})}, improved)


def _each(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{label} {value:{form}}" for label, value in values.items())


def histograms(where: str, found: Mapping[str, Outcome]) -> list[Claim]:
    """Claims about the normalised histograms at 10 % memory."""

    def gap(label: str) -> float:
        one = found[label]
        shares = one.counts.sum(axis=0) / one.counts.sum()
        return 100 * float(np.abs(shares - one.complete / one.complete.sum()).max())

    def frequent(label: str) -> float:
        one = found[label]
        order = np.argsort(-one.complete)[: max(1, one.complete.size // 10)]
        return 100 * float(one.counts.sum(axis=0)[order].sum() / one.counts.sum())

    def favour(run):
        complete = next(iter(found.values())).complete
        exact = 100 * float(np.sort(complete)[-max(1, complete.size // 10) :].sum() / complete.sum())
        values = {label: frequent(run(label)) for label in QUANTITY}
        return f"Exact {exact:.1f} %, " + _each(values, ".1f"), min(values.values()) > exact

    def identical(run):
        values = {label: gap(run(label)) for label in QUALITY}
        return "largest difference " + _each(values, ".2f") + " points", max(values.values()) <= 1

    def lower(run):
        js = {label: found[run(label)].js for label in (*QUANTITY, *QUALITY)}
        ratio = min(js[label] for label in QUANTITY) / max(js[label] for label in QUALITY)
        return _each(js, ".5f"), ratio >= SIGNIFICANT

    return [
        judged(where, "ARRPJ, Prob and ProbHash favour the frequent join values",
               "the most frequent tenth of the values has a larger share of the results than in Exact", favour),
        judged(where, "The histograms of RAJ and RAJHash are almost identical to Exact",
               "no bar differs by more than 1 point", identical),
        judged(where, "RAJ and RAJHash have a higher quality at 10 % memory",
               f"every divergence is at most 1/{SIGNIFICANT:.0f} of the others'", lower),
    ]  # fmt: skip


def by_memory(where: str, memory: Sequence[int], found: Mapping[str, Sequence[Outcome]]) -> list[Claim]:
    """Claims about the amount of memory."""
    below = [at for at, percent in enumerate(memory) if percent < 100]

    def more(run):
        gaps = [
            min(found[run(label)][at].share for label in QUANTITY)
            - max(found[run(label)][at].share for label in QUALITY)
            for at in below
        ]
        return f"by {min(gaps):.2f} to {max(gaps):.2f} points", min(gaps) > 0

    def lower(run):
        gaps = [
            min(found[run(label)][at].js for label in QUANTITY) - max(found[run(label)][at].js for label in QUALITY)
            for at in below
        ]
        return f"by {min(gaps):.5f} to {max(gaps):.5f}", min(gaps) > 0

    def rising(run):
        shares = {label: [one.share for one in found[run(label)]] for label in (*QUANTITY, *QUALITY)}
        fallen = [label for label, values in shares.items() if np.diff(values).min() < 0]
        return ", ".join(fallen) or "all rise", not fallen

    def better(run):
        js = {label: [one.js for one in found[run(label)]] for label in (*QUANTITY, *QUALITY)}
        worse = {label: float(np.diff(values).max()) for label, values in js.items() if np.diff(values).max() > NOISE}
        return "rises: " + _each(worse, ".5f") if worse else "none rises", not worse

    def whole(run):
        shares = {label: found[run(label)][-1].share for label in (*QUANTITY, *QUALITY)}
        return _each(shares, ".1f"), min(shares.values()) == 100.0

    return [
        judged(where, "ARRPJ, Prob and ProbHash produce more results", "they do at every memory below 100 %", more),
        judged(where, "RAJ and RAJHash have a lower divergence", "they do at every memory below 100 %", lower),
        judged(where, "More memory gives more results, for every algorithm", "no step falls", rising),
        judged(where, "More memory gives a better quality, for every algorithm", f"no step rises by {NOISE}", better),
        judged(where, "With 100 % memory the result is complete", "100 %", whole),
    ]  # fmt: skip


def over_time(where: str, found: Mapping[str, Outcome], *, rises_first: bool) -> list[Claim]:
    """Claims about the course of a run, from the first row on; memory is full after a tenth of the rows."""
    full, last, half = len(next(iter(found.values())).counts) // 10, -1, 49

    def js(run, labels, **how):
        return {label: found[run(label)].divergences(**how) for label in labels}

    def course(values):
        return ", ".join(
            f"{label} {v[0]:.5f}, {v[full]:.5f}, {v[half]:.5f}, {v[last]:.5f}" for label, v in values.items()
        )

    def grows(run, begin=0, **how):
        values = js(run, QUANTITY, **how)
        return course(values), all(v[last] > v[begin] for v in values.values())

    def falls(run, begin=0, **how):
        values = js(run, QUALITY, **how)
        return course(values), all(v[last] < v[begin] for v in values.values())

    def rises_then_falls(run, **how):
        values = js(run, QUALITY, **how)
        tops = {label: int(np.argmax(v)) for label, v in values.items()}
        said = ", ".join(f"{label} {v[0]:.5f}, top {max(v):.5f} after {1 + tops[label]} %, {v[last]:.5f}"
                         for label, v in values.items())  # fmt: skip
        return said, all(tops[label] > 0 and v[last] < max(v) for label, v in values.items())

    def higher(run):
        quantity, quality = js(run, QUANTITY), js(run, QUALITY)
        ratio = min(
            min(v[at] for v in quantity.values()) / max(1e-12, *(v[at] for v in quality.values()))
            for at in range(half, full * 10)
        )
        return f"at least {ratio:.1f} times", ratio >= SIGNIFICANT

    so_far, after = "the join of the rows so far is the truth", "the course begins when memory is full"

    def others(test):
        printed = {so_far: test(lambda label: label, so_far=True)[1]}
        if test is not rises_then_falls:
            printed[after] = test(lambda label: label, begin=full)[1]
        return printed

    sampling = (
        judged(where, "The divergence of RAJ and RAJHash first increases, then decreases",
               "its top is neither at the first measurement, after 1 % of the rows, nor at the end",
               rises_then_falls, others(rises_then_falls))
        if rises_first else
        judged(where, "The divergence of RAJ and RAJHash decreases with time",
               "lower at the end than after 1 % of the rows; figures after 1, 11, 50, 100 %", falls, others(falls))
    )  # fmt: skip
    return [
        judged(where, "The divergence of ARRPJ, Prob and ProbHash increases with time",
               "higher at the end than after 1 % of the rows; figures after 1, 11, 50, 100 %", grows, others(grows)),
        sampling,
        judged(where, "The divergence of ARRPJ, Prob and ProbHash is significantly higher than that of RAJ and RAJHash",
               f"{SIGNIFICANT:.0f} times or more throughout the second half", higher),
    ]  # fmt: skip


def fewer_results(where: str, found: Mapping[str, Outcome]) -> Claim:
    def fewer(run):
        shares = {label: found[run(label)].share for label in ("Prob", "ARRPJ", "ProbHash", "RAJHash")}
        return _each(shares, ".2f") + " %", all(value < shares["Prob"] for value in list(shares.values())[1:])

    return judged(where, "ARRPJ, ProbHash and RAJHash produce a lesser percentage of the results than Prob (5.1.2)",
                  "each does at 10 % memory", fewer)  # fmt: skip


def faster(where: str, speeds: Mapping[str, Speed], found: Mapping[str, Outcome]) -> list[Claim]:
    """Claims about speed; the first counts, the others measure processor time."""

    def ratio(pairs, of):
        def judge(run):
            values = {f"{a} / {b}": of(speeds[run(a)]) / of(speeds[run(b)]) for a, b in pairs}
            return _each(values, ".1f"), min(values.values()) >= SIGNIFICANT

        return judge

    def fastest(run):
        seconds = {label: speeds[run(label)].seconds for label in (*QUANTITY, *QUALITY)}
        return _each(seconds, ".2f") + " s", max(seconds[label] for label in QUALITY) <= min(
            seconds[label] for label in QUANTITY
        )

    def every_aspect(run):
        old, new = found[run("Prob")], found[run("ProbHash")]
        slow, fast = speeds[run("Prob")].seconds, speeds[run("ProbHash")].seconds
        said = f"{old.share:.2f} to {new.share:.2f} %, {old.js:.5f} to {new.js:.5f}, {slow:.2f} to {fast:.2f} s"
        return said, new.share >= 0.99 * old.share and new.js <= 1.01 * old.js and fast < slow

    times = f"{SIGNIFICANT:.0f} times or more"
    return [
        judged(where, "Partitions reduce the rows that have to be looked through (4.4, 4.6)", f"{times}, counted",
               ratio([("Prob", "ProbHash"), ("RAJ", "RAJHash")], lambda speed: speed.comparisons)),
        judged(where, "ProbHash has a significantly better throughput than Prob", f"{times}, results a second",
               ratio([("ProbHash", "Prob")], lambda speed: speed.throughput)),
        judged(where, "RAJHash has a significantly better throughput than RAJ", f"{times}, results a second",
               ratio([("RAJHash", "RAJ")], lambda speed: speed.throughput)),
        judged(where, "The throughput of ARRPJ is significantly better than that of RAJ and Prob",
               f"{times}, results a second",
               ratio([("ARRPJ", "RAJ"), ("ARRPJ", "Prob")], lambda speed: speed.throughput)),
        judged(where, "So is that of ProbHash than RAJ's, and that of RAJHash than Prob's",
               f"{times}, results a second",
               ratio([("ProbHash", "RAJ"), ("RAJHash", "Prob")], lambda speed: speed.throughput)),
        judged(where, "RAJ and RAJHash are the fastest (6.1)", "both take less time than each of the others", fastest),
        judged(where, "ProbHash improves on Prob in every aspect (6.1)",
               "results and divergence no worse by 1 %, and less time", every_aspect),
    ]  # fmt: skip


def not_sacrificed(where: str, js: Mapping[str, float], shares: Mapping[str, float]) -> Claim:
    """5.1.2 and 6.1: partitions cost neither quantity nor quality; means over seeds."""

    def kept(run):
        pairs = [("Prob", "ProbHash"), ("RAJ", "RAJHash")]
        said = ", ".join(
            f"{b} {shares[run(b)]:.2f} of {shares[run(a)]:.2f} %, {js[run(b)]:.5f} of {js[run(a)]:.5f}"
            for a, b in pairs
        )
        return said, all(
            shares[run(b)] >= shares[run(a)] - SAME_POINTS and js[run(b)] < SIGNIFICANT * js[run(a)] for a, b in pairs
        )

    return judged(where, "Partitions do not sacrifice quantity or quality (5.1.2, 6.1)",
                  f"within {SAME_POINTS:.0f} points of the results, less than {SIGNIFICANT:.0f} times the divergence",
                  kept)  # fmt: skip
