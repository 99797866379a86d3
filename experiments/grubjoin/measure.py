"""Runs under the virtual clock, and the random cases of section 6.1."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.shedding.optimizer.drop_rates import keep_rates, kept_work
from dovetail.families.shedding.optimizer.model import Costs, Floats, Ints, Model, build_model, direction
from dovetail.families.shedding.paper.clock import (
    ROOM,
    SECOND,
    Interval,
    Run,
    VirtualClock,
    VirtualPace,
    as_printed,
    by_room,
)
from dovetail.families.shedding.paper.printed import PrintedHarvestKernel
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.shedding.stream import HarvestKernel, SheddingKernel
from dovetail.families.shedding.stream_drop import DropKernel, drop_models
from dovetail.families.window import state

# A service stores few rows: in fewer slices, merged sooner, pieces are few and runs short.  Results do not change.
state.MANY, state.SLICES = 4, 2

SECONDS, WARM = 40.0, 20.0
GRUB, OURS, DROP = "GrubJoin", "Dovetail", "RandomDrop"
"""As printed, what `window_join(shed=Harvest())` does, and the rival."""
BACKLOG = "GrubJoin, backlog counted"
"""As printed, but rows that wait count as rows that came: what full buffers do to the printed rule."""
ADAPTED, EVEN = "RandomDrop, adapted", "RandomDrop, even"
"""The rival with rates set while it runs, and with the same rate for all streams."""
KAPPAS = (2.0, 2.0, 50.0, 50.0, 50.0)
LAGS = {"aligned": (0.0,) * 5, "not aligned": (0.0, 5.0, 15.0, 10.0, 18.0)}
SUSTAINED = 100.0
"""Rows a second of each of three streams up to which the paper's machine needs no shedding."""
BOOST = 1.2
"""The boost factor of the paper's example."""
WIDTH = 2 * SECOND
"""Slices: the paper's b."""
TICK = 0.25
"""Seconds of rows that a service takes."""
TEN = 10.0
"""Rows that wait for each input: the paper's buffers."""
OVERHEAD = {3: 0.0013, 4: 0.0041, 5: 0.01}
"""Seconds of an adaptation: the paper's 10 ms for five streams (Figure 8), for fewer by its n m^4."""


@dataclass(frozen=True)
class Setting:
    """One run of the join."""

    algorithm: str
    m: int = 3
    rates: float | tuple[tuple[float, float], ...] = 200.0
    kappas: tuple[float, ...] = KAPPAS
    lags: str = "not aligned"
    interval: float = 5.0
    buffer: float | None = None
    """Seconds of rows that wait at most; None for ten rows."""
    overhead: float = 0.0
    seconds: float = SECONDS
    emit: float = 0.0
    """What a match found costs, in comparisons."""
    plan: float = 1.0
    """RandomDrop's plan is for so much of the capacity."""
    boost: float = BOOST
    tick: float = TICK


def _costly(kind: type[SheddingKernel], emit: float) -> type[SheddingKernel]:
    """A kernel whose matches cost something beside the comparisons that find them."""

    class Costly(kind):  # type: ignore[misc, valid-type]
        def restore(self, known, watermark):  # type: ignore[no-untyped-def]
            super().restore(known, watermark)
            self.costs = Costs(0.0, emit)

    return Costly if emit else kind


def with_backlog(z: float, interval: Interval, boost: float) -> float:
    """The paper's rule on all that there was to do: rows that came, and rows that wait."""
    return as_printed(z, replace(interval, arrived=interval.arrived + interval.waiting), boost)


RULES = {GRUB: as_printed, BACKLOG: with_backlog}

Make = Callable[[VirtualPace], SheddingKernel]


def harvesting(algorithm: str, m: int, emit: float, seed: int) -> Make:
    """Window harvesting, as printed or ours."""
    spec = epsilon_join(m)
    slices = Slices.of(spec.hull, WIDTH)
    kind = _costly(PrintedHarvestKernel if algorithm in RULES else HarvestKernel, emit)
    return lambda pace: kind(spec, shed=Harvest(seed=seed), slices=slices, pace=pace)


@cache
def capacity(emit: float = 0.0) -> float:
    """Work a second of the exact three-way join at the rate that needs no shedding yet."""
    inputs = DriftingStreams(KAPPAS[:3], LAGS["aligned"][:3], SUSTAINED).made(WARM + 10.0, seed=1)
    clock = VirtualClock(harvesting(OURS, 3, emit, 0), 1e15, fixed=1.0, tick=TICK)
    return clock.run(inputs, arrival_times(inputs), WARM + 10.0).rate("work", WARM, WARM + 10.0)


@dataclass(frozen=True)
class Exact:
    """What a run of the exact join tells: its work a second, and the join in numbers, once for each join order."""

    work: float
    models: tuple[Model, ...]


@cache
def exact(m: int, rate: float, kappas: tuple[float, ...], lags: str, emit: float = 0.0) -> Exact:
    """The exact join with the join orders that it learns as any other run does."""
    spec, seconds = epsilon_join(m), WARM + 8.0
    inputs = DriftingStreams(kappas[:m], LAGS[lags][:m], rate).made(seconds, seed=1)
    make, made = harvesting(OURS, m, emit, 0), []

    def kept(pace: VirtualPace) -> SheddingKernel:
        made[:] = [make(pace)]
        return made[0]

    done = VirtualClock(kept, 1e15, fixed=1.0, tick=1.0, buffer=1e9).run(inputs, arrival_times(inputs), seconds)
    slices = Slices.of(spec.hull, WIDTH)
    models = drop_models(spec, slices, made[0].control, Costs(0.0, emit))
    return Exact(done.rate("work", WARM, seconds), tuple(models))


@dataclass
class StaticDrop(DropKernel):
    """RandomDrop as the paper has it: rates and join orders are chosen beforehand."""

    plan: tuple[Floats, Ints] = field(default_factory=lambda: (np.ones(0), np.ones((0, 0), dtype=np.int64)))

    def _configure(self, z: float) -> None:
        self.control.keep, orders = self.plan
        self._reorder(orders)

    def _another_order(self, turn: int) -> Ints | None:
        return None


def static_plan(known: Exact, z: float, *, even: bool = False) -> tuple[Floats, Ints]:
    """Drop rates and join orders for a part of the full work: the optimum, or the same rate for all streams."""
    keep, orders = keep_rates(known.models, z)
    if not even:
        return keep, orders
    full = np.ones(keep.size)
    budget = z * float(np.min([kept_work(model, full) for model in known.models], axis=0).sum())
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = np.min([kept_work(model, middle * full) for model in known.models], axis=0).sum() <= budget
        low, high = (middle, high) if fits else (low, middle)
    best = np.argmin([kept_work(model, low * full) for model in known.models], axis=0)
    return low * full, np.array([known.models[at].orders[i] for i, at in enumerate(best)])


def best_product(known: Exact, z: float, steps: int = 24) -> float:
    """The most output, as a part of the exact join's, that any drop rates on a grid leave within z of the full work."""
    m = known.models[0].rates.size
    budget = z * float(np.min([kept_work(model, np.ones(m)) for model in known.models], axis=0).sum())
    grid = np.geomspace(0.01, 1.0, steps)
    best = 0.0
    for flat in np.ndindex(*(steps,) * m):
        keep = grid[list(flat)]
        if keep.prod() > best:
            work = float(np.min([kept_work(model, keep) for model in known.models], axis=0).sum())
            best = float(keep.prod()) if work <= budget else best
    return best


def dropping(setting: Setting, seed: int) -> tuple[Make, float | None]:
    """RandomDrop with rates for the streams of a setting, and the throttle that these call for."""
    assert isinstance(setting.rates, float)
    spec = epsilon_join(setting.m)
    slices = Slices.of(spec.hull, WIDTH)
    if setting.algorithm == ADAPTED:
        kind = _costly(DropKernel, setting.emit)
        return lambda pace: kind(spec, shed=RandomDrop(seed=seed), slices=slices, pace=pace), None
    known = exact(setting.m, setting.rates, setting.kappas, setting.lags, setting.emit)
    z = min(1.0, setting.plan * ROOM * capacity(setting.emit) / known.work)
    plan = static_plan(known, z, even=setting.algorithm == EVEN)
    fixed = _costly(StaticDrop, setting.emit)
    return lambda pace: fixed(spec, shed=RandomDrop(seed=seed), slices=slices, pace=pace, plan=plan), z


def run(setting: Setting, seed: int) -> Run:
    """One run from a seed."""
    m = setting.m
    inputs = DriftingStreams(setting.kappas[:m], LAGS[setting.lags][:m], setting.rates).made(setting.seconds, seed)
    most = setting.rates if isinstance(setting.rates, float) else max(rate for _, rate in setting.rates)
    fixed: float | None = None
    if setting.algorithm in (OURS, *RULES):
        make = harvesting(setting.algorithm, m, setting.emit, seed)
    else:
        make, fixed = dropping(setting, seed)
    clock = VirtualClock(
        make, capacity(setting.emit), interval=setting.interval,
        buffer=TEN if setting.buffer is None else setting.buffer * most, tick=setting.tick, overhead=setting.overhead,
        fixed=fixed, boost=setting.boost, rule=RULES.get(setting.algorithm, by_room),
    )  # fmt: skip
    return clock.run(inputs, arrival_times(inputs), setting.seconds)


@dataclass(frozen=True)
class Runs:
    """Runs of settings, remembered in a file: a series of hours can be broken off and taken up."""

    file: Path
    count: int
    tick: Callable[[], None]

    def output(self, setting: Setting) -> float:
        """Results a second after the warm-up, the mean of some runs."""
        return self._mean(setting, "results")

    def lost(self, setting: Setting) -> float:
        """The part of the rows that found their buffer full."""
        return self._mean(setting, "lost")

    def adaptations(self, setting: Setting) -> list[list[float]]:
        """For each adaptation of one run: when, beta, the throttle that it set, rows that waited."""
        return [list(map(float, step)) for step in self._figures(setting, 0)["adapted"]]

    def course(self, setting: Setting, seed: int = 0) -> list[float]:
        """The throttle of one run, second by second."""
        return [float(z) for z in self._figures(setting, seed)["throttle"]]

    def _mean(self, setting: Setting, name: str) -> float:
        return float(np.mean([self._figures(setting, seed)[name] for seed in range(self.count)]))

    def _figures(self, setting: Setting, seed: int) -> dict[str, Any]:
        known = json.loads(self.file.read_text()) if self.file.exists() else {}
        key = f"{setting} {seed}"
        if key not in known:
            done = run(setting, seed)
            known[key] = {
                "results": done.rate("results", WARM, setting.seconds),
                "lost": done.total("lost", WARM) / max(done.total("arrived", WARM), 1.0),
                "throttle": [done.throttle(float(at)) for at in np.arange(1.0, setting.seconds)],
                "busy": done.total("work", WARM) / capacity(setting.emit) / (setting.seconds - WARM),
                "adapted": [
                    [step.at, step.interval.taken / max(step.interval.arrived, 1), step.after, step.interval.waiting]
                    for step in done.adapted
                ],
            }
            self.file.write_text(json.dumps(known))
        self.tick()
        found: dict[str, Any] = known[key]
        return found


def random_case(random: np.random.Generator, m: int, n: int, *, correlated: bool) -> Model:
    """Rates from 100 to 500, random selectivities, w = 10: section 6.1.  Its correlations are not given."""
    rates = random.uniform(100, 500, m)
    selectivity = random.uniform(0, 0.01, (m, m))
    orders = np.array([[side for side in np.argsort(selectivity[i]) if side != i] for i in range(m)])
    rows = np.tile(rates[None, :, None] * 10.0 / n, (m, 1, n))
    scores = np.ones((m, m, n))
    if correlated:
        middle, width = random.uniform(0, n, (m, m, 1)), random.uniform(0.05 * n, 0.5 * n, (m, m, 1))
        scores = np.exp(-0.5 * ((np.arange(n) + 0.5 - middle) / width) ** 2)
    fanouts = np.array([[selectivity[i, side] * rates[side] * 10.0 for side in orders[i]] for i in range(m)])
    return build_model(rates, orders, rows, scores, fanouts)


def milliseconds(call: Callable[[], object], times: int = 20) -> float:
    """The least time of a call."""
    call()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return 1000 * min(found)


def enumerated(model: Model, z: float) -> float:
    """The best output by trying every setting of a three-way join, as the paper's brute force does."""
    return float(_every(z * model.cost(model.full), model))


@njit
def _every(budget, model):
    n = model.sizes[0, 0]
    cost, out = np.zeros((3, n * n + 1)), np.zeros((3, n * n + 1))
    counts = np.zeros(2, dtype=np.int64)
    for i in range(3):
        for a in range(1, n + 1):
            for b in range(1, n + 1):
                counts[0], counts[1] = a, b
                c, o = direction(i, counts, model)
                cost[i, (a - 1) * n + b], out[i, (a - 1) * n + b] = c, o
    best = 0.0
    for x in range(n * n + 1):
        for y in range(n * n + 1):
            c, o = cost[0, x] + cost[1, y], out[0, x] + out[1, y]
            if c > budget:
                continue
            for w in range(n * n + 1):
                if c + cost[2, w] <= budget and o + out[2, w] > best:
                    best = o + out[2, w]
    return best
