"""What a nearest join was decided to do, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import pyarrow as pa

from dovetail.columns.held import STREAM_CELLS
from dovetail.columns.sampling import DENSE
from dovetail.conditions.comparison import Key, KeyType
from dovetail.conditions.forms import Term
from dovetail.conditions.names import bare
from dovetail.conditions.nearness import Nearness
from dovetail.errors import ArgumentError, check_partitions, choice, is_whole
from dovetail.families.nearest.spec import TIES, NearestSpec, Ties
from dovetail.plan.asked_window import AskedWindow
from dovetail.plan.broadcast import Small

HOWS = ("inner", "left")
MOST = 1_000_000
"""The largest k."""

_WAYS = {
    "line": "sorted by it, one run of it for each row",
    "euclidean": "in a k-d tree, searched from the nearest box outward",
    "haversine": "in a k-d tree on the sphere, searched from the nearest box outward",
}

_WAYS_BY_TIME = {
    "line": "sorted by time, one range of it for each row; ranks of its values in a wavelet matrix",
    "euclidean": "in a k-d tree that is cut by time as well, searched from the nearest box outward",
    "haversine": "in a k-d tree on the sphere that is cut by time as well, searched from the nearest box outward",
}

Within = int | float | Decimal | str | timedelta


@dataclass(frozen=True)
class Options:
    """How a nearest join is to be run."""

    k: int = 1
    ties: Ties = "all"
    how: str = "inner"
    partitions: int | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.k, most=MOST):
            raise ArgumentError(f"k={self.k!r}", accepted=f"a whole number of at least 1 and at most {MOST:,}")
        if self.ties not in TIES:
            raise choice("ties", self.ties, TIES)
        if self.how not in HOWS:
            raise choice("how", self.how, HOWS)
        check_partitions(self.partitions)


@dataclass(frozen=True)
class Measured:
    """What Spark knows of a distance: the type in which coordinates are compared, and that of the distance."""

    kind: KeyType
    distance: pa.DataType
    unit: int = 1
    """Codes of a coordinate in units of the distance."""
    terms: tuple[tuple[Term, Term], ...] | None = None
    """Terms whose difference is that of the given ones, where those are compared as something else."""


@dataclass(frozen=True)
class NearestPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    nearness: Nearness
    spec: NearestSpec
    keys: tuple[tuple[Key, ...], tuple[Key, ...]]
    """For each input its equality keys and its coordinates."""
    texts: tuple[str, ...]
    """Columns of the second input that only their text as JSON puts into an order."""
    options: Options
    shuffle_partitions: int
    filters: tuple[tuple[str, str], ...] = ()
    """(alias, condition) that drops rows of an input before the join."""
    hidden: str | None = None
    """The condition on the asking rows alone that must not drop them."""
    given_within: Within | None = None
    sampled: bool = True
    broadcast: Small | None = None
    window: AskedWindow | None = None
    """From which time to which a row looks, where it does not look at all rows."""

    @property
    def two_streams(self) -> bool:
        """Whether rows wait for the end of their window."""
        return len(self.streams) == 2

    @property
    def one_shuffle(self) -> bool:
        """Whether rows that ask find all they need in one cell: by time, or on a line that a sample has shown."""
        return self.window is not None or (self.spec.metric == "line" and (self.sampled or bool(self.spec.keys)))

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        asking, answering = self.inputs
        mode = f"stream {asking} beside a static input" if self.streams else "batch"
        if self.two_streams:
            mode = f"streams {asking} and {answering}"
        lines = [f"nearest join, {mode}, how={self.options.how!r}"]
        rows = [("for each", f"row of {asking}, the {self._wanted()}")]
        rows += [("first", f"{alias} keeps rows where {bare(sql)}") for alias, sql in self.filters]
        if self.nearness.predicate.equalities:
            rows.append(("where", " AND ".join(bare(one.sql) for one in self.nearness.predicate.equalities)))
        if self.window is not None:
            rows.append(("window", bare(self.window.condition)))
        rows.append(("ties", self._ties_text()))
        ways = _WAYS if self.window is None else _WAYS_BY_TIME
        rows.append(("kernel", f"{answering} {ways[self.spec.metric]}"))
        rows.append(("routing", self._routing_text()))
        return "\n".join([*lines, *[f"  {head:<10}{text}" for head, text in rows]])

    def _wanted(self) -> str:
        answering = self.inputs[1]
        k = self.options.k
        count = f"nearest row of {answering}" if k == 1 else f"{k} nearest rows of {answering}"
        bound = "" if self.given_within is None else f", at most {self.given_within} away"
        if self.nearness.strict and self.nearness.within is not None:
            bound = bound.replace("at most", "less than")
        return f"{count} by {self.nearness.distance.text}{bound}"

    def _ties_text(self) -> str:
        answering = self.inputs[1]
        if self.options.ties == "all":
            return "all rows that are as near as the last one"
        return f"of equally near rows those that come first by the columns of {answering}, from left to right"

    def _routing_text(self) -> str:
        asking, answering = self.inputs
        if self.two_streams:
            cells = f"{STREAM_CELLS} cells by the keys" if self.spec.keys else "one cell: there is no key"
            return f"{cells}; a row of {asking} comes out once the watermark has passed the end of its window"
        if self.broadcast:
            return f"no shuffle: {self.broadcast.where}"
        where = f"{self.shuffle_partitions} shuffle partitions of packed segments"
        if not self.one_shuffle:
            where += "; the nearest of all cells in a second"
        if not self.sampled:
            spread = f"{answering} spread over the cells, {asking} to every cell"
            if self.window is not None:
                spread = f"{answering} to every cell, {asking} to one"
            return f"{'slices of the key hash' if self.spec.keys else spread}; {where}"
        if self.window is not None:
            return (
                f"cells cut at quantiles of the times of a 1/{DENSE} sample of both sides, read within the same action"
                f"; {asking} to one cell, {answering} to those whose windows it may lie in; {where}"
            )
        if self.one_shuffle:
            return (
                f"cells cut at quantiles of a 1/{DENSE} sample of both sides, read within the same action; {asking} to "
                f"one cell, {answering} to those where it may be among the {self.options.k} nearest; {where}"
            )
        return (
            f"cells cut from a 1/{DENSE} sample of both sides, read within the same action; {asking} to the cells that "
            f"may hold its {self.options.k} nearest, as near as in the sample of {answering}; {where}"
        )

    def identity(self) -> dict[str, str]:
        """What two streams may not change between two runs on one checkpoint."""
        assert self.window is not None
        conditions = [self.nearness.distance.text, *(bare(part.sql) for part in self.nearness.predicate.parts)]
        return {
            "join": "a nearest join",
            "inputs": ", ".join(self.inputs),
            "time": ", ".join(self.window.times),
            "window": f"{self.window.low} to {self.window.high}",
            "condition": " AND ".join(conditions),
            "k": str(self.options.k),
            "within": str(self.spec.within),
            "ties": self.options.ties,
            "how": self.options.how,
        }
