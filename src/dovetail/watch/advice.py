"""Warnings in plain words: what the figures of a query say is wrong, and the page that helps.

A rule looks at the micro-batches of the last minutes.  It keeps silent as long as it has too few of them: a first
micro-batch starts Python, and one slow disk makes no trend.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

from dovetail.reports import unmet_target
from dovetail.watch.figures import Point, number
from dovetail.watch.records import Record

FEWEST = 6
"""Micro-batches with rows that a trend takes."""
_BUSY = 0.95
_SOME = 0.01
_SKEWED = 3.0
_NEARLY_NOTHING = 0.05
_MOST_ARE_LOST = 0.5


@dataclass(frozen=True)
class Advice:
    """Something to look at."""

    rule: str
    text: str
    page: str
    """A page of the docs, with the heading."""
    level: str = "warning"
    """``error``, ``warning`` or ``note``."""


@cache
def docs_address() -> str | None:
    """Where the pages of this version are, as the package says; None where it does not, or not yet."""
    try:
        urls = metadata("dovetail-spark").get_all("Project-URL") or []
    except PackageNotFoundError:
        # Shipped as an archive.
        return None
    found = [address.strip() for name, _, address in (url.partition(",") for url in urls) if name == "Documentation"]
    # Before the first release the address has a word in capitals where its owner will be.
    fitting = [one for one in found if one.startswith("https://") and "/OWNER/" not in one]
    return fitting[0].rpartition("/")[0] + "/" if fitting else None


def advice(points: Sequence[Point], *, target: float | None = None) -> list[Advice]:
    """What the recent micro-batches of a streaming query say, the worst first.

    Parameters
    ----------
    points
        The micro-batches of the last minutes, in the order of time.
    target
        Seconds that a micro-batch may take, if its join sheds with a target.
    """
    busy = [point for point in points if point["rows"]]
    found = [] if len(busy) < FEWEST else [one for rule in _RULES for one in rule(busy)]
    note = unmet_target(target, [(point["took"] / 1000, _kernel(point)) for point in busy])
    note = note or _spent_target(target, busy[-FEWEST:])
    if note is not None:
        found.insert(0, Advice("target", note, "shedding.md#when-the-target-cannot-be-met"))
    return found


def _spent_target(target: float | None, last: Sequence[Point]) -> str | None:
    """What to say of a join that sheds next to everything, and whose micro-batches are too long all the same."""
    throttles = _known(last, "throttle")
    if target is None or len(throttles) < FEWEST or max(throttles) > _NEARLY_NOTHING:
        return None
    took = [point["took"] / 1000 for point in last]
    if min(took) <= 1.2 * target:
        return None
    done = f"micro-batches take {statistics.median(took):.3g} s at a target of {target:g} s, although only"
    return f"{done} {_part(statistics.mean(throttles))} of the joining is done: shedding cannot make them shorter"


def _part(value: float) -> str:
    """A part of something in percent; of a small one not 0 %.

    Examples
    --------
    >>> _part(0.634), _part(0.0123), _part(0.0004)
    ('63 %', '1.2 %', 'less than 0.1 %')
    """
    if value < 0.001:
        return "less than 0.1 %"
    return f"{100 * value:.1f} %" if value < 0.0995 else f"{100 * value:.0f} %"


def _kernel(point: Point) -> float | None:
    return None if point["kernel"] is None else point["kernel"] / 1000


def target_note(target: object, records: Sequence[Record]) -> str | None:
    """The same of the records of a run."""
    seconds = number(target)
    busy = [record for record in records if record.get("rows")]
    return unmet_target(seconds, [(float(record.get("seconds") or 0), _kernel_of(record)) for record in busy])


def _kernel_of(record: Record) -> float | None:
    counters = record.get("counters") or {}
    microseconds = number(counters.get("kernel_us"))
    return None if microseconds is None else microseconds / 1_000_000


# ---------------------------------------------------------------------------------------------------------- rules


def _known(points: Sequence[Point], name: str) -> list[float]:
    return [point[name] for point in points if point[name] is not None]


def _thirds(values: Sequence[float]) -> tuple[float, float, float] | None:
    """The medians of the first, the middle and the last third of some values."""
    size = len(values) // 3
    if len(values) < FEWEST:
        return None
    parts = values[:size], values[size : len(values) - size], values[-size:]
    first, middle, last = (statistics.median(part) for part in parts)
    return first, middle, last


def _busy_share(points: Sequence[Point]) -> float:
    """The part of the time in which a micro-batch ran."""
    first = points[0]
    span = points[-1]["time"] - (first["time"] - first["took"] / 1000)
    return sum(point["took"] for point in points) / 1000 / span if span > 0 else 0.0


def _falls_behind(points: Sequence[Point]) -> Iterator[Advice]:
    span = points[-1]["time"] - points[0]["time"]
    lag, behind, took = (_thirds(_known(points, name)) for name in ("clock_lag", "behind", "took"))
    page = "operations.md#it-falls-behind"
    if behind is not None and behind[0] < behind[1] < behind[2] and behind[2] > 1.2 * behind[0] + 1:
        text = f"it falls behind: the sources hold {behind[2]:,.0f} unread rows, and {behind[0]:,.0f} a while ago"
        yield Advice("behind", text, page)
    elif lag is not None and lag[0] < lag[1] < lag[2] and lag[2] - lag[0] > max(5_000.0, 0.2 * span * 1000):
        text = f"it falls behind: the newest rows were {lag[2] / 1000:.0f} s old when they were committed, and "
        yield Advice("behind", f"{text}{lag[0] / 1000:.0f} s a while ago", page)
    elif (
        took is not None
        and took[0] < took[1] < took[2]
        and took[2] > 1.5 * took[0] + 500
        and _busy_share(points) > _BUSY
    ):
        text = f"micro-batches take longer and longer: {took[2] / 1000:.1f} s, and {took[0] / 1000:.1f} s a while ago"
        yield Advice("behind", text, page)


def _overloaded(points: Sequence[Point]) -> Iterator[Advice]:
    """One micro-batch follows another without a pause, the joining is most of it, and nothing is shed."""
    took, kernel = sum(_known(points, "took")), sum(_known(points, "kernel"))
    if not _known(points, "shed") and _busy_share(points) > _BUSY and took and kernel > 0.5 * took and took > 10_000:
        text = f"it is always busy, {min(1.0, kernel / took):.0%} of the time with joining, and may shed nothing"
        yield Advice("overload", text, "shedding.md")


def _sheds(points: Sequence[Point]) -> Iterator[Advice]:
    last = [point for point in points if point["throttle"] is not None][-FEWEST:]
    throttles = _known(last, "throttle")
    if throttles and statistics.mean(throttles) < 0.99:
        recalls = _known(last, "recall")
        recall = statistics.mean(recalls) if recalls else None
        found = "" if recall is None else f", and {_part(recall)} of the results are found, by its own estimate"
        text = f"overload: {_part(statistics.mean(throttles))} of the full work is done{found}"
        level = "note" if recall is None or recall >= _MOST_ARE_LOST else "warning"
        yield Advice("sheds", text, "shedding.md", level)


def _standing_watermark(points: Sequence[Point]) -> Iterator[Advice]:
    known = [
        (point["watermark"], point["time"], point["clock_lag"]) for point in points if point["clock_lag"] is not None
    ]
    if len(known) < FEWEST:
        return
    newest = [time - lag / 1000 for _, time, lag in known]
    marks = {mark for mark, _, _ in known}
    rose, span = max(newest) - newest[0], known[-1][1] - known[0][1]
    if len(marks) == 1 and rose > 1 and span > 10:
        [mark] = marks
        what = "has not moved" if mark is not None else "has not begun to move"
        text = f"the watermark {what} for {span:.0f} s, while newer rows came: one input is silent or behind the others"
        yield Advice("watermark", text, "streaming.md#idle-inputs")


def _growing_state(points: Sequence[Point]) -> Iterator[Advice]:
    held = _thirds(_known(points, "held_rows"))
    span = points[-1]["time"] - points[0]["time"]
    evicted = sum(_known(points, "evicted"))
    if held is not None and span > 120 and held[0] * 1.2 < held[1] and held[1] * 1.2 < held[2] and not evicted:
        text = f"state grows and nothing is evicted: {held[2]:,.0f} rows are held, and {held[0]:,.0f} were"
        yield Advice("state", f"{text} {span / 60:.0f} minutes ago", "streaming.md#watermarks")


def _late_rows(points: Sequence[Point]) -> Iterator[Advice]:
    rows = sum(_known(points, "rows"))
    for name, heading in (("late", "late-rows"), ("early", "early-rows")):
        count = sum(_known(points, name))
        if rows and count > _SOME * rows:
            text = f"{count:,.0f} rows came {name} and were dropped, {count / rows:.1%} of all"
            yield Advice(name, text, f"streaming.md#{heading}")


def _skewed(points: Sequence[Point]) -> Iterator[Advice]:
    known = _known(points, "skew")[-FEWEST:]
    if len(known) == FEWEST and statistics.median(known) > _SKEWED:
        text = f"the fullest cell gets {statistics.median(known):.1f} times the rows of an average one"
        yield Advice("skew", text, "tuning.md")


_RULES: tuple[Callable[[Sequence[Point]], Iterator[Advice]], ...] = (
    _falls_behind,
    _overloaded,
    _standing_watermark,
    _growing_state,
    _late_rows,
    _skewed,
    _sheds,
)
