"""Windows of time around the rows of one input, in which another answers; and what two streams need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.conditions.names import quoted
from dovetail.errors import ArgumentError, UnboundedJoinError
from dovetail.families.window.graph import Within, window_graph
from dovetail.plan.window import InputColumns, read_times


@dataclass(frozen=True)
class AskedWindow:
    """From which time to which a row asks, as distances from its own time: microseconds, or whole numbers."""

    by: str
    other: str
    times: tuple[str, str]
    """The time columns of the asking and of the matched input."""
    low: int
    high: int
    numeric: bool
    given: str
    """The window as the user wrote it."""
    ddl: str
    """The type in which times are compared."""

    @property
    def columns(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The time columns with their inputs."""
        return (self.by, self.times[0]), (self.other, self.times[1])

    @property
    def condition(self) -> str:
        """The window as a condition, for inputs of any kind."""
        mine, theirs = (f"{quoted(a)}.{quoted(t)}" for a, t in zip((self.by, self.other), self.times, strict=True))
        return f"{theirs} >= {mine} {self._distance(self.low)} AND {theirs} <= {mine} {self._distance(self.high)}"

    def _distance(self, length: int) -> str:
        sign = "-" if length < 0 else "+"
        return f"{sign} {abs(length)}L" if self.numeric else f"{sign} INTERVAL {abs(length)} MICROSECONDS"


def read_window(
    time: str | Mapping[str, str] | None,
    within: Within | None,
    columns: Mapping[str, InputColumns],
    by: str,
    other: str,
    *,
    argument: str = "within",
    hint: str | None = None,
) -> AskedWindow | None:
    """The window that ``time=`` and ``within=``, or another `argument`, ask for; None without them."""
    if time is None and within is None:
        return None
    if time is None or within is None:
        missing, example = ("time", "time='ts'") if time is None else (argument, f"{argument}='10 seconds'")
        raise ArgumentError(
            f"{argument if time is None else 'time'}= without {missing}=", accepted=f"both, such as {example}",
            hint=hint,
        )  # fmt: skip
    if isinstance(within, tuple) and len(within) == 2:
        raise ArgumentError(
            f"{argument}={within!r} does not say which time is later",
            accepted=f"{argument}={{({by!r}, {other!r}): {within!r}}}",
            hint=f"which bounds the time of {other!r} less that of {by!r}",
        )
    names, numeric = read_times(time, columns)
    low, high = window_graph(within, (by, other), numeric=numeric, argument=argument).hull[0, 1].tolist()
    kinds = {known.types[known.names.index(names[alias])] for alias, known in columns.items()}
    # A date beside instants is midnight in the zone of the session; else days are as long as the calendar has them.
    ddl = "BIGINT" if numeric else "TIMESTAMP" if "timestamp" in kinds else "TIMESTAMP_NTZ"
    return AskedWindow(by, other, (names[by], names[other]), low, high, numeric, str(within), ddl)


def needs_window(by: str, other: str, argument: str, verb: str) -> UnboundedJoinError:
    """The refusal of two streams of which no row would ever be final."""
    return UnboundedJoinError(
        f"the streams {by!r} and {other!r} without {argument}=: a row of {other!r} that {verb} might always come",
        accepted=f"time= and {argument}=, such as time='ts', {argument}='10 seconds'",
    )


def check_two_streams(window: AskedWindow | None, by: str, other: str, reasons: list[str]) -> AskedWindow:
    """Refuse two streams of which no row would ever be final, or that would need their pairs."""
    if window is None:
        raise needs_window(by, other, "within", "matches")
    if reasons:
        raise ArgumentError(
            f"two streams in a join that has to form the pairs, because {reasons[0]}",
            accepted=f"aggregates that need no pairs, and up to one range of {other!r} beside within=",
            hint="dt.window_join gives the pairs",
        )
    return window
