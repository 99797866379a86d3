"""The paper's claims as statements that can fail, each judged on our figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from measure import BRISK
from reproduce import Claim

Curves = Mapping[str, Sequence[float]]


def optimal(found: Mapping[str, Curves], at: Sequence[float]) -> list[Claim]:
    made = []
    for label in ("BestDeltaOutputPerDeltaCost", "delta, refined"):
        for name, curves in found.items():
            least = min(curves[label])
            high = min(value for z, value in zip(at, curves[label], strict=True) if z > 0.4)
            ours = f"{least:.4f} at least, {high:.4f} above 0.4"
            made.append(
                Claim(
                    "7",
                    f"{label} within 0.98 of the optimum, optimal (0.995) for z > 0.4; {name}",
                    ours,
                    least >= 0.98 and high >= 0.995,
                )
            )
    for name, curves in found.items():
        means = {label: sum(curve) / len(curve) for label, curve in curves.items()}
        best = max((label for label in means if "refined" not in label), key=lambda label: means[label])
        ours = ", ".join(f"{label} {value:.3f}" for label, value in means.items())
        made.append(Claim("7", f"BestDeltaOutputPerDeltaCost is superior to the other two; {name}", ours,
                          best == "BestDeltaOutputPerDeltaCost"))  # fmt: skip
    return made


def fast(curves: Curves, at: Sequence[int]) -> list[Claim]:
    five = curves["greedy, m = 5"][list(at).index(20)]
    orders = [slow / quick for slow, quick in zip(curves["every setting, m = 3"], curves["greedy, m = 3"], strict=True)]
    return [
        Claim("8", "Greedy sets m = 5, n = 20 within 10 ms (here: 2 ms)", f"{five:.2f} ms", five < 2.0),
        Claim("8", "Trying every setting takes orders of magnitude longer (100 times at n = 20)",
              ", ".join(f"x{ratio:.0f} (n = {n})" for n, ratio in zip(at, orders, strict=True)), orders[-1] > 100),
    ]  # fmt: skip


def slower_with_z(grows: Mapping[str, float]) -> Claim:
    return Claim("9", "Greedy takes longer as z grows", ", ".join(f"x{v:.1f} ({k})" for k, v in grows.items()),
                 min(grows.values()) > 1)  # fmt: skip


def best_of_both(curves: Curves) -> Claim:
    worst = {name: max(curve) for name, curve in curves.items()}
    return Claim("10", "Double-sided gets the best of both: its worst case is below that of either",
                 ", ".join(f"{name} {value:.4f} ms" for name, value in worst.items()),
                 worst["double-sided"] < min(worst["greedy"], worst["reverse"]))  # fmt: skip


def gain(curves: Curves, lags: str, ours: str = "GrubJoin") -> list[float]:
    pairs = zip(curves[f"{ours}, {lags}"], curves[f"RandomDrop, {lags}"], strict=True)
    return [100 * (one / other - 1) for one, other in pairs]


def ahead_of_dropping(curves: Curves, rates: Sequence[float]) -> list[Claim]:
    made = []
    for lags, least in (("aligned", 65), ("not aligned", 150)):
        gains = gain(curves, lags)
        ours = ", ".join(f"{value:+.0f} % ({rate:g}/s)" for rate, value in zip(rates, gains, strict=True))
        made.append(Claim("11", f"Up to {least} % more output than RandomDrop, {lags}", ours, max(gains) >= least))
        made.append(Claim("11", f"The same where nothing needs shedding (within 5 %), {lags}", f"{gains[0]:+.1f} %",
                          abs(gains[0]) <= 5))  # fmt: skip
        made.append(Claim("11", f"More prominent for higher rates, {lags}", ours, gains[-1] > gains[1]))
    return made


def with_correlation(curves: Curves, kappas: Sequence[float], nothing: Mapping[str, float]) -> list[Claim]:
    gains = [100 * (a / b - 1) for a, b in zip(curves["GrubJoin"], curves["RandomDrop"], strict=True)]
    ours = ", ".join(f"{value:+.0f} % (kappa {kappa:g})" for kappa, value in zip(kappas, gains, strict=True))
    apart = 100 * (nothing["GrubJoin"] / nothing["RandomDrop"] - 1)
    made = [
        Claim("12", f"{least:+d} % at kappa 3 = {kappa}", f"{gains[list(kappas).index(float(kappa))]:+.0f} %",
              gains[list(kappas).index(float(kappa))] >= least)
        for kappa, least in ((25, 250), (50, 150), (75, 25))
    ]  # fmt: skip
    return [
        *made,
        Claim("12", "The gain falls with the correlation", ours, gains[1] > gains[-1]),
        Claim("12", "Equal without any correlation (within 10 %)", f"{apart:+.0f} % with all streams random",
              abs(apart) <= 10),
    ]  # fmt: skip


def grows_with_streams(curves: Curves) -> list[Claim]:
    made = []
    for lags in ("aligned", "not aligned"):
        gains = gain(curves, lags)
        ours = ", ".join(f"{value:+.0f} % (m = {m})" for m, value in zip((3, 4, 5), gains, strict=True))
        made.append(
            Claim("13", f"The gain grows with the number of streams, {lags}", ours, gains[0] < gains[1] < gains[2])
        )
    usual, brisk = gain(curves, "not aligned")[2], gain(curves, "not aligned", BRISK)[2]
    made.append(Claim("13", "Up to 700 % at five streams, not aligned",
                      f"{usual:+.0f} %, and {brisk:+.0f} % where it adapts every second, not every five",
                      max(usual, brisk) >= 700))  # fmt: skip
    return made


def best_interval(curves: Curves, at: Sequence[float]) -> Claim:
    best = {name: at[max(range(len(at)), key=lambda x, c=curve: c[x])] for name, curve in curves.items()}
    return Claim("14", "The best interval is 0.5 s for m = 3, 1 s for m = 4 and 3 s for m = 5: it grows with m",
                 ", ".join(f"{value:g} s ({name})" for name, value in best.items()),
                 best["m = 3"] < best["m = 5"] and list(best.values()) == sorted(best.values()))  # fmt: skip


def buffers_help(curves: Curves, at: Sequence[float]) -> Claim:
    curve = curves["200 rows/s"]
    cuts = [100 * (1 - value / curve[0]) if curve[0] > 0 else 0.0 for value in curve]
    return Claim("15", "Buffers of 1 s cut the rows lost by about 30 %, of 2 s by about 50 %, at 200 rows/s",
                 ", ".join(f"{cut:.0f} % ({x:g} s)" for x, cut in zip(at, cuts, strict=True)),
                 cuts[2] >= 25 and cuts[3] >= 45)  # fmt: skip
