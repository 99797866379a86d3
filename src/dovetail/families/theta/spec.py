"""What a user says about a theta join, checked on construction, and its form for the kernel of windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa

from dovetail.columns.layout import HAS_ROW, columns_of, input_payload
from dovetail.conditions.comparison import Key, Step
from dovetail.conditions.join_kind import HOWS, How, JoinKind
from dovetail.errors import MOST_PARTITIONS, ArgumentError, check_partitions, choice, is_whole

Word = Literal["auto", "prefap", "ftj", "cfs", "obt", "rbm"]

ALGORITHMS: tuple[Word, ...] = ("auto", "prefap", "ftj", "cfs", "obt", "rbm")

POINTS, BOXES = 0, 1
"""The two sides of a step, in the order of their payload and key columns."""


@dataclass(frozen=True)
class _Partitioning:
    """What the published partitionings have in common: p, the number of partitions of each input."""

    name: ClassVar[Literal["prefap", "ftj", "cfs", "obt", "rbm"]]

    p: int = 10

    def __post_init__(self) -> None:
        if not is_whole(self.p, most=MOST_PARTITIONS):
            raise ArgumentError(
                f"p={self.p!r} is not a number of partitions",
                accepted=f"a whole number of at least 1 and at most {MOST_PARTITIONS:,}",
            )


@dataclass(frozen=True)
class _WindowedPartitioning(_Partitioning):
    """A partitioning that splits partitions larger than their share of a window of w rows."""

    w: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.w is not None and not is_whole(self.w):
            raise ArgumentError(
                f"w={self.w!r} is not a number of rows",
                accepted="a whole number of at least 1, or None for the size of each input",
            )


@dataclass(frozen=True)
class Prefap(_WindowedPartitioning):
    """Prefap (Wu et al., doi 10.1002/cpe.6996), as the ``algorithm`` of :func:`theta_join`.

    Parameters
    ----------
    p : int
        The number of partitions that each input is first cut into.
    w : int, optional
        The window size, from which the average size of a partition follows; by default the size of each input.
    prefilter : bool
        Whether rows that nothing on the other side can match are dropped first (Algorithm 1).
    amalgamate : bool
        Whether the boundaries of both inputs are merged (Algorithm 2).

    See Also
    --------
    FTJ, CFS, OBT, RBM : the partitionings that Prefap is compared with.

    Examples
    --------
    >>> Prefap(p=20, prefilter=False)
    Prefap(p=20, w=None, prefilter=False, amalgamate=True)
    >>> Prefap(p=0)
    Traceback (most recent call last):
    dovetail.errors.ArgumentError: p=0 is not a number of partitions
      accepted: a whole number of at least 1 and at most 100,000
    """

    name: ClassVar = "prefap"

    prefilter: bool = True
    amalgamate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("prefilter", self.prefilter), ("amalgamate", self.amalgamate)):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name}={value!r}", accepted="True or False")


@dataclass(frozen=True)
class FTJ(_WindowedPartitioning):
    """FastThetaJoin (Hu et al. 2020), as the ``algorithm`` of :func:`theta_join`: equal spans, then repartitioned.

    Parameters
    ----------
    p : int
        The number of partitions that each input is first cut into.
    w : int, optional
        The window size, from which the average size of a partition follows; by default the size of each input.

    See Also
    --------
    Prefap : the same with two additions.

    Examples
    --------
    >>> FTJ(w=1000)
    FTJ(p=10, w=1000)
    """

    name: ClassVar = "ftj"


@dataclass(frozen=True)
class CFS(_Partitioning):
    """The cross filter strategy (Liu et al. 2017), as the ``algorithm`` of :func:`theta_join`.

    Parameters
    ----------
    p : int
        The number of ranges that each input is cut into.

    See Also
    --------
    RBM : the same ranges without a filter.

    Examples
    --------
    >>> CFS()
    CFS(p=10)
    """

    name: ClassVar = "cfs"


@dataclass(frozen=True)
class OBT(_Partitioning):
    """1-Bucket-Theta (Okcan and Riedewald 2011), as the ``algorithm`` of :func:`theta_join`: equal shares, no filter.

    Parameters
    ----------
    p : int
        The number of shares that each input is cut into.

    See Also
    --------
    Prefap : a partitioning that drops pairs of partitions.

    Examples
    --------
    >>> OBT(p=4)
    OBT(p=4)
    """

    name: ClassVar = "obt"


@dataclass(frozen=True)
class RBM(_Partitioning):
    """The range-based method (DeWitt et al. 1992), as the ``algorithm`` of :func:`theta_join`: ranges, no filter.

    Parameters
    ----------
    p : int
        The number of ranges that each input is cut into.

    See Also
    --------
    CFS : the same ranges with a filter.

    Examples
    --------
    >>> RBM(p=4)
    RBM(p=4)
    """

    name: ClassVar = "rbm"


Partitioning = Prefap | FTJ | CFS | OBT | RBM
Algorithm = Word | Partitioning

_PARTITIONINGS: dict[str, Partitioning] = {made.name: made for made in (Prefap(), FTJ(), CFS(), OBT(), RBM())}


@dataclass(frozen=True)
class Options:
    """How a theta join is to be run."""

    how: How = "inner"
    algorithm: Algorithm = "auto"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        if self.algorithm not in ALGORITHMS and not isinstance(self.algorithm, Partitioning):
            raise choice("algorithm", self.algorithm, ALGORITHMS)
        check_partitions(self.partitions)

    @property
    def kind(self) -> JoinKind:
        """What `how` means for the two sides."""
        return JoinKind.of(self.how)

    @property
    def partitioning(self) -> Partitioning | None:
        """The published partitioning to use; None where Dovetail cuts cells of its own."""
        return _PARTITIONINGS.get(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm


@dataclass(frozen=True)
class WindowStep:
    """A step of a join in windows: the aliases joined so far meet `right`."""

    step: Step
    right: int
    """The position of the further input in the spec."""


@dataclass(frozen=True)
class WindowSpec:
    """A theta join in windows.

    A segment of input `i` has ``payload[i]`` columns, then its key columns ``keys[i]``, and in time windows the event
    time last, a timestamp or a number of microseconds.  `steps` follow the order in which inputs are joined; the first
    input of that order is `first`.
    """

    payload: tuple[int, ...]
    keys: tuple[tuple[Key, ...], ...]
    aliases: tuple[str, ...]
    first: int
    steps: tuple[WindowStep, ...]
    options: Options
    rows: int | None = None
    every: int | None = None
    types: tuple[tuple[pa.DataType, ...], ...] = ()
    """Arrow types of each input's payload."""

    @property
    def kind(self) -> JoinKind:
        """What `how` means for the two sides."""
        return self.options.kind

    @property
    def preserved(self) -> tuple[int, ...]:
        """Inputs whose unmatched rows come out."""
        return tuple(side for side, keeps in enumerate(self.kind.preserved) if keeps)

    @property
    def emitted(self) -> range:
        """Inputs that have columns in the result."""
        return range(len(self.payload) if self.kind.pairs else 1)

    def output_names(self) -> list[str]:
        """The columns that leave the kernel: the payload of each input, then, in an outer join, whether it is there."""
        names = [name for side in self.emitted for name in columns_of(input_payload(side), self.payload[side])]
        return [*names, *columns_of(HAS_ROW, len(self.emitted))] if self.kind.outer else names
