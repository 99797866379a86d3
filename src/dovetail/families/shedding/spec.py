"""What a user says about shedding, checked on construction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dovetail.errors import LARGEST, ArgumentError, choice, is_whole
from dovetail.families.shedding.settings import METHODS, METRICS, Method, Metric
from dovetail.families.window.graph import Length

Histograms = Literal["stream", "pair"]
HISTOGRAMS: tuple[Histograms, ...] = ("stream", "pair")

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

    Parameters
    ----------
    target
        ``"keep up"``: a micro-batch takes no longer than the time in which its rows arrived.  Or the seconds that a
        micro-batch may take, such as the trigger interval.
    throttle
        A fixed part of the full work, for experiments; None lets the load decide.
    boost
        How fast the throttle recovers: the most by which one micro-batch multiplies it.
    basic_window
        The length of a slice, in time or in units of a numeric time; None for a tenth of the longest window.
    sample
        The part of the rows that look at all slices, thinned out, so that the join learns where matches are and
        how many it misses.
    method, metric
        How slices are chosen: ``double-sided``, ``greedy``, ``reverse`` or ``exhaustive``; by ``delta`` (output
        gained for the work), ``output`` or ``output per cost``.
    histograms
        ``stream``: one histogram for each input, against the first; ``pair``: one for each direction and window.
    memory
        None keeps all rows in their windows; ``"selected"`` lets go of slices that no direction looks at; a number of
        bytes is what the state of the whole join may hold.
    seed
        Makes the sampling repeatable.

    Examples
    --------
    >>> Harvest(target=5.0).boost
    2.0
    >>> Harvest(throttle=1.5)
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: throttle=1.5
      accepted: a number above 0 and at most 1, or None
    """

    target: Literal["keep up"] | float = "keep up"
    throttle: float | None = None
    boost: float = 2.0
    basic_window: Length | None = None
    sample: float = 0.1
    method: Method = "double-sided"
    metric: Metric = "delta"
    histograms: Histograms = "stream"
    memory: Literal["selected"] | int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _pace(self.target, self.throttle, self.boost, self.seed)
        _fraction("sample", self.sample)
        if self.method not in METHODS:
            raise choice("method", self.method, METHODS)
        if self.metric not in METRICS:
            raise choice("metric", self.metric, METRICS)
        if self.histograms not in HISTOGRAMS:
            raise choice("histograms", self.histograms, HISTOGRAMS)
        if self.memory is not None and self.memory != "selected" and not is_whole(self.memory):
            raise ArgumentError(
                f"memory={self.memory!r}", accepted="None, 'selected', or a number of bytes above 0",
                hint="such as memory=512 << 20 for 512 MiB",
            )  # fmt: skip


@dataclass(frozen=True)
class RandomDrop:
    """Shed rows at random, each input at the rate that loses least output for the work saved.

    The rival of :class:`Harvest`, with the same throttle.

    Parameters
    ----------
    target, throttle, boost, seed
        As in :class:`Harvest`.

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
