"""The paper's workload (section 6.2): streams whose values drift, and the join of values that are near each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.conditions.comparison import KeyType
from dovetail.conditions.predicates import parse
from dovetail.families.shedding.paper.clock import SECOND, VirtualPace
from dovetail.families.shedding.slices import Slices
from dovetail.families.shedding.spec import RandomDrop, Shed
from dovetail.families.shedding.stream import HarvestKernel, SheddingKernel
from dovetail.families.shedding.stream_drop import DropKernel
from dovetail.families.window.graph import window_graph
from dovetail.families.window.spec import Algorithm, Options, WindowJoinSpec, build_conditions

COLUMNS = ("t", "v", "n")


@dataclass(frozen=True)
class DriftingStreams:
    """The paper's streams (section 6.2): X_i(t) = (D / eta) (t + tau_i) + kappa_i N(0, 1), modulo D.

    `rates` are rows a second of all inputs, or pairs (from this second on, so many).  Rows come at regular intervals
    with a random phase, as stamped on entry.

    Examples
    --------
    >>> one, other = DriftingStreams(kappas=(0.0, 0.0), lags=(0.0, 5.0)).made(10.0, seed=1)
    >>> one.num_rows, one.schema.names
    (1000, ['t', 'v', 'n'])
    """

    kappas: tuple[float, ...]
    lags: tuple[float, ...]
    rates: float | tuple[tuple[float, float], ...] = 100.0
    domain: float = 1000.0
    period: float = 50.0

    def made(self, seconds: float, seed: int) -> list[pa.RecordBatch]:
        """One table for each input: microseconds, value and row number."""
        random = np.random.default_rng(seed)
        tables = []
        for kappa, lag in zip(self.kappas, self.lags, strict=True):
            at = self._times(seconds, random)
            values = (self.domain / self.period) * (at + lag) + kappa * random.standard_normal(at.size)
            columns = {
                "t": (at * SECOND).astype(np.int64),
                "v": np.mod(values, self.domain),
                "n": np.arange(at.size, dtype=np.int64),
            }
            tables.append(pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()}))
        return tables

    def _times(self, seconds: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
        steps = ((0.0, self.rates),) if isinstance(self.rates, int | float) else self.rates
        parts = []
        for (begin, rate), end in zip(steps, [*(step[0] for step in steps[1:]), seconds], strict=True):
            # Times jitter by less than their distance: a stream's rows are stamped in order.
            count = round((end - begin) * rate)
            parts.append(begin + (np.arange(count) + random.random(count)) / rate)
        return np.concatenate(parts)


def arrival_times(inputs: Sequence[pa.RecordBatch]) -> list[npt.NDArray[np.float64]]:
    """Rows arrive when their time is."""
    return [batch.column("t").to_numpy() / SECOND for batch in inputs]


def epsilon_join(
    m: int, *, window: int = 20 * SECOND, epsilon: float = 1.0, algorithm: Algorithm = "nested"
) -> WindowJoinSpec:
    """All values within epsilon of each other and all rows within the window, in one cell.

    Examples
    --------
    >>> len(epsilon_join(3).comparisons)
    3
    """
    aliases = tuple("ABCDEFGH"[:m])
    on = " AND ".join(f"ABS({a}.v - {b}.v) <= {epsilon}" for a, b in combinations(aliases, 2))
    bands = parse(on, dict.fromkeys(aliases, COLUMNS)).bands
    conditions = build_conditions(aliases, [], [(band, KeyType("DOUBLE", "float64")) for band in bands])
    return WindowJoinSpec(
        aliases=aliases,
        options=Options(algorithm=algorithm),
        graph=window_graph(window, aliases, numeric=True),
        times=(0,) * m,
        payload=(3,) * m,
        types=((pa.int64(), pa.float64(), pa.int64()),) * m,
        keys=conditions.keys,
        sources=((1,),) * m,
        comparisons=conditions.comparisons,
        delays=(0,) * m,
    )


def maker(spec: WindowJoinSpec, shed: Shed, *, width: int = 2 * SECOND) -> Callable[[VirtualPace], SheddingKernel]:
    """What makes the kernel of a join for a virtual clock; `width` is the paper's b."""
    kind = DropKernel if isinstance(shed, RandomDrop) else HarvestKernel
    slices = Slices.of(spec.hull, width)
    return lambda pace: kind(spec, shed=shed, slices=slices, pace=pace)
