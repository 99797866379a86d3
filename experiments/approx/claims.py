"""The paper's claims as statements that can fail, each judged on our figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from measure import QUALITY, QUANTITY, Outcome
from reproduce import Claim

SEVERAL = 2.0
"""How many times "several times the throughput" must be at least."""

CLEARLY = 2.0
"""How many times lower a divergence must be to be clearly lower."""


def _each(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{label} {value:{form}}" for label, value in values.items())


def clearly_better(where: str, found: Mapping[str, Outcome]) -> Claim:
    js = {label: one.js for label, one in found.items()}
    ratio = min(js[label] for label in QUANTITY if label in js) / max(js[label] for label in QUALITY if label in js)
    return Claim(
        where, "RAJ and RAJHash have a clearly lower divergence at 10 % memory", _each(js, ".5f"), ratio >= CLEARLY
    )


def by_memory(where: str, memory: Sequence[int], found: Mapping[str, Sequence[Outcome]]) -> list[Claim]:
    """Claims about every amount of memory below 100 %."""
    below = [at for at, percent in enumerate(memory) if percent < 100]
    quantity = [label for label in QUANTITY if label in found]
    quality = [label for label in QUALITY if label in found]
    more = [
        min(found[label][at].share for label in quantity) - max(found[label][at].share for label in quality)
        for at in below
    ]
    lower = [
        min(found[label][at].js for label in quantity) - max(found[label][at].js for label in quality) for at in below
    ]
    rising = {
        label: bool(np.all(np.diff([one.share for one in outcomes]) > -1e-9)) for label, outcomes in found.items()
    }
    better = {label: outcomes[0].js > outcomes[-2].js for label, outcomes in found.items()}
    whole = {label: outcomes[-1].share for label, outcomes in found.items()}
    return [
        Claim(where, "ARRPJ, Prob and ProbHash produce more results at every memory below 100 %",
              f"by {min(more):.2f} to {max(more):.2f} points", min(more) > 0),
        Claim(where, "RAJ and RAJHash have a lower divergence at every memory below 100 %",
              f"by {min(lower):.5f} to {max(lower):.5f}", min(lower) > 0),
        Claim(where, "More memory gives more results, for every algorithm",
              ", ".join(label for label, ok in rising.items() if not ok) or "all rise", all(rising.values())),
        Claim(where, "More memory gives a better quality, for every algorithm",
              ", ".join(label for label, ok in better.items() if not ok) or "all improve", all(better.values())),
        Claim(where, "With 100 % memory the result is complete", _each(whole, ".1f"), min(whole.values()) == 100.0),
    ]  # fmt: skip


def over_time(where: str, found: Mapping[str, Outcome]) -> list[Claim]:
    """Claims about the course of a run."""
    js = {label: one.divergences() for label, one in found.items()}
    # The paper compares courses from the moment at which memory is full.
    begin = {label: values[2] for label, values in js.items()}
    grows = {label: js[label][-1] > begin[label] for label in QUANTITY if label in js}
    falls = {label: js[label][-1] < begin[label] for label in QUALITY if label in js}

    def course(labels: Mapping[str, bool]) -> str:
        return ", ".join(f"{label} {begin[label]:.5f} to {js[label][-1]:.5f}" for label in labels)

    return [
        Claim(where, "The divergence of ARRPJ, Prob and ProbHash grows with time", course(grows), all(grows.values())),
        Claim(where, "The divergence of RAJ and RAJHash falls with time", course(falls), all(falls.values())),
    ]


def faster(where: str, rates: Mapping[str, float]) -> list[Claim]:
    """Hash variants against the scans that they replace."""
    claims = []
    for fast, slow in (("ProbHash", "Prob"), ("RAJHash", "RAJ")):
        claims.append(
            Claim(where, f"{fast} has several times the throughput of {slow}",
                  f"{rates[fast]:,.0f} against {rates[slow]:,.0f} rows/s: {rates[fast] / rates[slow]:.1f} x",
                  rates[fast] >= SEVERAL * rates[slow])
        )  # fmt: skip
    return claims
