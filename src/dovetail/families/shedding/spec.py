"""What a user says about shedding, checked on construction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dovetail.conditions.limits import Limit, memory_limit
from dovetail.errors import LARGEST, ArgumentError, choice, is_whole
from dovetail.families.window.graph import Length

Metric = Literal["output", "output per cost", "delta"]
Method = Literal["double-sided", "greedy", "reverse", "exhaustive"]
Histograms = Literal["stream", "pair"]
Keep = Literal["windows", "selected"]

METRICS: tuple[Metric, ...] = ("output", "output per cost", "delta")
"""Best Output, Best Output Per Cost, and Best Delta Output Per Delta Cost."""
METHODS: tuple[Method, ...] = ("double-sided", "greedy", "reverse", "exhaustive")
HISTOGRAMS: tuple[Histograms, ...] = ("stream", "pair")
KEEPS: tuple[Keep, ...] = ("windows", "selected")

KEEP_UP = "keep up"


def _fraction(name: str, value: object, *, none: bool = False) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
    if not fits and not (none and value is None):
        raise ArgumentError(
            f"{name}={value!r}", accepted="a number above 0 and at most 1" + (", or None" if none else "")
        )


def _pace(target: object, throttle: object, boost: object, seed: object) -> None:
    number = isinstance(target, int | float) and not isinstance(target, bool)
    if target != KEEP_UP and not (number and 0 < target < math.inf):  # type: ignore[operator]
        hint = "write a length as a number of seconds" if isinstance(target, str) else None
        raise ArgumentError(f"target={target!r}", accepted=f"{KEEP_UP!r}, or seconds above 0", hint=hint)
    _fraction("throttle", throttle, none=True)
    if not isinstance(boost, int | float) or isinstance(boost, bool) or not 1 < boost < math.inf:
        raise ArgumentError(f"boost={boost!r}", accepted="a finite number above 1")
    if not is_whole(seed, least=0):
        raise ArgumentError(f"seed={seed!r}", accepted=f"a whole number from 0 to {LARGEST}")


@dataclass(frozen=True)
class Harvest:
    """Shed work, not rows: look only at the slices of the windows where matches are likely.

    Pass it to :func:`dovetail.window_join` as ``shed=``.

    Parameters
    ----------
    target : "keep up" or float, default "keep up"
        ``"keep up"``: a micro-batch takes no longer than the time in which its rows arrived.  A number: the seconds
        that a micro-batch may take, such as the trigger interval.
    throttle : float, optional
        A fixed part of the full work, above 0 and at most 1, for experiments.  By default the load decides.
    boost : float, default 2.0
        How fast the throttle recovers: the most by which one micro-batch multiplies it.
    basic_window : str, timedelta or int, optional
        The length of a slice, in time or in units of a numeric time.  By default a tenth of the longest window.
    sample_fraction : float, default 0.1
        The part of the rows that look at all slices, thinned out, so that the join learns where matches are and
        how many it misses.  Where only Spark can evaluate a condition, it judges pairs of so many rows first.
    method : str, default "double-sided"
        How slices are chosen: ``double-sided``, ``greedy``, ``reverse`` or ``exhaustive``.
    metric : str, default "delta"
        What a slice is chosen by: ``delta`` (output gained for the work), ``output`` or ``output per cost``.
    histograms : str, default "stream"
        ``stream``: one histogram for each input, against the first; ``pair``: one for each direction and window.
    keep : str, default "windows"
        Which rows stay in the state: ``windows`` keeps all rows until their windows close, ``selected`` evicts rows
        that no direction will look at.
    memory : int or str, optional
        What the state of the whole join may hold: a number of rows, or a size such as ``"512 MB"``.  Beyond it the
        segments that contribute least are evicted.
    seed : int, default 0
        Makes the sampling repeatable.

    Raises
    ------
    ArgumentError
        If a value is none of those that its parameter takes.

    See Also
    --------
    RandomDrop : Drop rows instead, for comparison.
    window_join : The join that sheds.

    Examples
    --------
    >>> Harvest(target=5.0).boost
    2.0
    >>> Harvest(memory="512 MB").limit
    Limit(amount=512000000, unit='bytes')
    >>> Harvest(throttle=1.5)
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: throttle=1.5
      accepted: a number above 0 and at most 1, or None
    """

    target: Literal["keep up"] | float = "keep up"
    throttle: float | None = None
    boost: float = 2.0
    basic_window: Length | None = None
    sample_fraction: float = 0.1
    method: Method = "double-sided"
    metric: Metric = "delta"
    histograms: Histograms = "stream"
    keep: Keep = "windows"
    memory: int | str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _pace(self.target, self.throttle, self.boost, self.seed)
        _fraction("sample_fraction", self.sample_fraction)
        if self.method not in METHODS:
            raise choice("method", self.method, METHODS)
        if self.metric not in METRICS:
            raise choice("metric", self.metric, METRICS)
        if self.histograms not in HISTOGRAMS:
            raise choice("histograms", self.histograms, HISTOGRAMS)
        if self.keep not in KEEPS:
            raise choice("keep", self.keep, KEEPS)
        _ = self.limit  # refuses what is not an amount of memory

    @property
    def limit(self) -> Limit | None:
        """What the state may hold, as a number with its unit; None where nothing bounds it."""
        return None if self.memory is None else memory_limit(self.memory)


@dataclass(frozen=True)
class RandomDrop:
    """Shed rows at random, each input at the rate that loses least output for the work saved.

    The alternative that :class:`Harvest` is measured against, with the same throttle.

    Parameters
    ----------
    target : "keep up" or float, default "keep up"
        ``"keep up"``: a micro-batch takes no longer than the time in which its rows arrived.  A number: the seconds
        that a micro-batch may take, such as the trigger interval.
    throttle : float, optional
        A fixed part of the full work, above 0 and at most 1, for experiments.  By default the load decides.
    boost : float, default 2.0
        How fast the throttle recovers: the most by which one micro-batch multiplies it.
    seed : int, default 0
        Makes the sampling repeatable.

    Raises
    ------
    ArgumentError
        If a value is none of those that its parameter takes.

    See Also
    --------
    Harvest : Shed work, not rows.

    Examples
    --------
    >>> RandomDrop(throttle=0.5)
    RandomDrop(target='keep up', throttle=0.5, boost=2.0, seed=0)
    """

    target: Literal["keep up"] | float = "keep up"
    throttle: float | None = None
    boost: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        _pace(self.target, self.throttle, self.boost, self.seed)


Shed = Harvest | RandomDrop
