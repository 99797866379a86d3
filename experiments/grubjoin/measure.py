"""Runs under the virtual clock, and the random cases of section 6.1."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from dovetail.columns.numba_cache import njit
from dovetail.families.shedding.optimizer.drop_rates import keep_rates
from dovetail.families.shedding.optimizer.model import NESTED, Floats, Ints, Model, build_model, direction
from dovetail.families.shedding.paper.clock import ROOM, SECOND, Run, VirtualClock, VirtualPace
from dovetail.families.shedding.paper.workload import DriftingStreams, arrival_times, epsilon_join, maker
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import Harvest, RandomDrop
from dovetail.families.shedding.stream import SheddingKernel
from dovetail.families.shedding.stream_drop import DropKernel, drop_models
from dovetail.families.window import state

# A service of a tenth of a second stores few rows: merging them sooner keeps the pieces few and the runs short.
state.MANY = 3

SECONDS, WARM = 60.0, 20.0
GRUB, DROP, BRISK = "GrubJoin", "RandomDrop", "GrubJoin, every second"
KAPPAS = (2.0, 2.0, 50.0, 50.0, 50.0)
LAGS = {"aligned": (0.0,) * 5, "not aligned": (0.0, 5.0, 15.0, 10.0, 18.0)}
SUSTAINED = 100.0
"""Rows a second of each of three streams up to which the paper's machine needs no shedding."""
BOOST = 1.2
"""The boost factor of the paper's example.  Windows that rows were lost from make the join look cheaper than it is."""
WIDTH = 2 * SECOND
"""Slices: the paper's b."""
TICK = 0.05
"""Seconds between services while the join keeps up."""
OVERHEAD = {3: 0.005, 4: 0.03, 5: 0.1}
"""Seconds of an adaptation on the virtual machine, which makes about a hundredth of this one's comparisons a second."""


@dataclass(frozen=True)
class Setting:
    """One run of the join."""

    algorithm: str
    m: int = 3
    rates: float | tuple[tuple[float, float], ...] = 200.0
    kappas: tuple[float, ...] = KAPPAS
    lags: str = "not aligned"
    interval: float = 5.0
    buffer: float = 0.5
    """Seconds of rows that wait at most."""
    overhead: float = 0.0
    seconds: float = SECONDS


@cache
def capacity() -> float:
    """Comparisons a second of the exact three-way join at the rate that needs no shedding yet."""
    inputs = DriftingStreams(KAPPAS[:3], LAGS["aligned"][:3], SUSTAINED).made(40.0, seed=1)
    clock = VirtualClock(maker(epsilon_join(3), Harvest()), 1e15, fixed=1.0, tick=TICK)
    return clock.run(inputs, arrival_times(inputs), 40.0).rate("work", WARM, 40.0)


@dataclass(frozen=True)
class Exact:
    """What a run of the exact join tells: its work a second, and the join in numbers, once for each join order."""

    work: float
    models: tuple[Model, ...]


@cache
def exact(m: int, rate: float, kappas: tuple[float, ...], lags: str) -> Exact:
    """The exact join with the join orders that it learns as any other run does."""
    spec, seconds = epsilon_join(m), WARM + 8.0
    inputs = DriftingStreams(kappas[:m], LAGS[lags][:m], rate).made(seconds, seed=1)
    make, made = maker(spec, Harvest()), []

    def kept(pace: VirtualPace) -> SheddingKernel:
        made[:] = [make(pace)]
        return made[0]

    done = VirtualClock(kept, 1e15, fixed=1.0, tick=1.0, buffer=1e9).run(inputs, arrival_times(inputs), seconds)
    slices = Slices.of(spec.hull, WIDTH)
    return Exact(done.rate("work", WARM, seconds), tuple(drop_models(spec, slices, made[0].control, NESTED)))


@dataclass
class StaticDrop(DropKernel):
    """RandomDrop as the paper has it: rates and join orders are chosen beforehand."""

    plan: tuple[Floats, Ints] = field(default_factory=lambda: (np.ones(0), np.ones((0, 0), dtype=np.int64)))

    def _configure(self, z: float) -> None:
        self.control.keep, orders = self.plan
        self._reorder(orders)

    def _another_order(self, turn: int) -> Ints | None:
        return None


def dropping(setting: Setting, seed: int) -> tuple[Callable[[VirtualPace], SheddingKernel], float]:
    """RandomDrop with rates for the streams of a setting, and the throttle that these call for."""
    assert isinstance(setting.rates, float)
    known = exact(setting.m, setting.rates, setting.kappas, setting.lags)
    z = min(1.0, ROOM * capacity() / known.work)
    plan = keep_rates(known.models, z)
    spec = epsilon_join(setting.m)
    slices = Slices.of(spec.hull, WIDTH)
    return lambda pace: StaticDrop(spec, shed=RandomDrop(seed=seed), slices=slices, pace=pace, plan=plan), z


def run(setting: Setting, seed: int) -> Run:
    """One run from a seed."""
    m = setting.m
    inputs = DriftingStreams(setting.kappas[:m], LAGS[setting.lags][:m], setting.rates).made(setting.seconds, seed)
    most = setting.rates if isinstance(setting.rates, float) else max(rate for _, rate in setting.rates)
    make, fixed = maker(epsilon_join(m), Harvest(seed=seed)), None
    if setting.algorithm == DROP:
        make, fixed = dropping(setting, seed)
    clock = VirtualClock(
        make, capacity(), interval=setting.interval,
        buffer=max(10.0, setting.buffer * most), tick=TICK, overhead=setting.overhead, fixed=fixed,
        boost=BOOST,
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
        return self._mean(setting, "results", lambda done: done.rate("results", WARM, setting.seconds))

    def lost(self, setting: Setting) -> float:
        """The part of the rows that found their buffer full."""
        return self._mean(setting, "lost", lambda done: done.total("lost", WARM) / done.total("arrived", WARM))

    def _mean(self, setting: Setting, name: str, figure: Callable[[Run], float]) -> float:
        found = []
        for seed in range(self.count):
            known = json.loads(self.file.read_text()) if self.file.exists() else {}
            key = f"{name} {setting} {seed}"
            if key not in known:
                known[key] = figure(run(setting, seed))
                self.file.write_text(json.dumps(known, indent=1))
            found.append(known[key])
            self.tick()
        return float(np.mean(found))


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
