"""Charts of the metrics, as matplotlib figures that also show themselves in notebooks.

matplotlib is an optional package: ``pip install "dovetail-spark[plots]"``.  Importing this module does not import it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dovetail.errors import MOST_PARTITIONS, ArgumentError, is_whole, missing_extra
from dovetail.watch.files import read_records
from dovetail.watch.records import Record, record_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dovetail.plots.picture import Picture

__all__ = ["harvested", "histograms", "partitions", "rates"]


_PROGRESS = "query.recentProgress, the records of a progress file, or the path of one"


def _drawing() -> Any:
    """The module that draws, or a clear message where matplotlib is missing."""
    try:
        return importlib.import_module("dovetail.plots.picture")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        raise missing_extra("plots need matplotlib, which is not installed", "plots") from None


def rates(progress: Sequence[Mapping[str, Any]] | str | Path) -> Picture:
    """Draw the rows and results per second of a stream, with the throttle and the recall of a join that sheds load.

    Parameters
    ----------
    progress : sequence of mappings, str or Path
        ``query.recentProgress``, the records of a progress file, or the path of one (``dovetail run`` writes them).

    Returns
    -------
    Picture
        A matplotlib figure: the rates on the left, and the state (or throttle and recall) on the right.

    Raises
    ------
    ArgumentError
        If no micro-batch has ended yet.
    SetupError
        If matplotlib is not installed.

    See Also
    --------
    harvested : The slices of windows that such a join examines.

    Examples
    --------
    >>> done = [{"kind": "batch", "batch": at, "rows": 100 * at, "results": at, "seconds": 0.5} for at in range(4)]
    >>> [axis.get_ylabel() for axis in rates(done).axes]
    ['per second', 'rows held']
    """
    batches = [record for record in _records(progress) if record.get("kind") == "batch"]
    if not batches:
        raise ArgumentError("no micro-batch has ended yet", accepted="the progress of a query with some micro-batches")
    drawing = _drawing()
    shares = [name for name in ("throttle", "recall") if any(name in record for record in batches)]
    figure, (left, right) = drawing.axes(2, 9, 3)
    # A report without a number gets its position in the series.
    numbers = [number if record.get("batch") is None else record["batch"] for number, record in enumerate(batches)]
    for name, label, colour in (("rows", "rows in", 0), ("results", "results", 1)):
        values = [(record.get(name) or 0) / max(record.get("seconds") or 0, 1e-3) for record in batches]
        left.plot(numbers, values, "o-", ms=3, color=drawing.COLOURS[colour], label=label)
    left.set(xlabel="micro-batch", ylabel="per second", title="rates", ylim=(0, None))
    left.legend(frameon=False)
    if shares:
        for colour, name in enumerate(shares, 2):
            values = [record.get(name, np.nan) for record in batches]
            right.plot(numbers, values, "o-", ms=3, color=drawing.COLOURS[colour], label=name)
        right.set(ylim=(0, 1.05), ylabel="share", title="throttle and recall")
        right.legend(frameon=False)
    else:
        right.fill_between(
            numbers, [record.get("held_rows") or 0 for record in batches], color=drawing.COLOURS[2], alpha=0.6
        )
        right.set(ylim=(0, None), ylabel="rows held", title="state")
    right.set_xlabel("micro-batch")
    return _picture(figure)


def _records(progress: Sequence[Mapping[str, Any]] | str | Path) -> list[Record]:
    if isinstance(progress, str | Path):
        try:
            return read_records(Path(progress))
        except (OSError, ValueError) as error:
            raise ArgumentError(f"the progress file {str(progress)!r}: {error}", accepted=_PROGRESS) from None
    given: object = progress
    plain = isinstance(given, Sequence) and all(isinstance(one, Mapping) or hasattr(one, "json") for one in given)
    if not plain or isinstance(given, bytes):
        raise ArgumentError(f"progress of type {type(given).__name__}", accepted=_PROGRESS)
    return [dict(one) if "kind" in one else record_of(_plain(one)) for one in progress]


def _plain(report: Any) -> Mapping[str, Any]:
    """The progress of a query as plain values: PySpark's own object knows its JSON form."""
    text = getattr(report, "json", None)
    found: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else report
    return found


def _picture(figure: Any) -> Picture:
    drawn: Picture = figure
    return drawn


def harvested(
    slices: Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path,
    *,
    unit: str = "slice of the window, youngest first",
) -> Picture:
    """Draw which slices of the windows a join under overload still examines, as a heat map.

    Parameters
    ----------
    slices : mapping, sequence of mappings, str or Path
        For each direction of the join, such as ``"A -> B"``, the share of each slice that is examined, from 0 to 1.
        Or what :func:`rates` takes: the last micro-batch that reports its slices is drawn.
    unit : str, optional
        What the columns are, as the label of the axis.

    Returns
    -------
    Picture
        A matplotlib figure with a row for each direction.

    Raises
    ------
    ArgumentError
        If there are no slices, or a share is outside 0 to 1.
    SetupError
        If matplotlib is not installed.

    See Also
    --------
    rates : The throughput and the recall of the same join.

    Examples
    --------
    >>> picture = harvested({"A -> B": [1, 1, 0.5, 0], "B -> A": [0, 0.2, 1, 1]})
    >>> picture.axes[0].get_title()
    '59% of the windows looked at'
    """
    rows = _slices(slices)
    longest = max((len(row) for row in rows.values()), default=0)
    if not longest or not min(len(row) for row in rows.values()):
        raise ArgumentError(
            "no slices", accepted="a list of shares for each direction, or the progress of a join that sheds"
        )
    # Windows of different lengths have different numbers of slices.
    grid = np.array([[*row, *[np.nan] * (longest - len(row))] for row in rows.values()], dtype=np.float64)
    if not (np.isnan(grid) | ((grid >= 0) & (grid <= 1))).all():
        raise ArgumentError("a share outside 0 to 1", accepted="shares of slices, from 0 to 1")
    drawing = _drawing()
    figure, (axis,) = drawing.axes(1, max(5.0, 0.35 * longest + 2), 0.5 * len(rows) + 1.6)
    image = axis.imshow(grid, aspect="auto", cmap="YlGnBu", vmin=0, vmax=1)
    axis.set(yticks=range(len(rows)), yticklabels=list(rows), xlabel=unit)
    axis.set_title(f"{np.nanmean(grid):.0%} of the windows looked at")
    figure.colorbar(image, ax=axis, label="share looked at")
    return _picture(figure)


_HARVEST = "harvest_"


def _slices(given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path) -> dict[str, list[float]]:
    if isinstance(given, Mapping) and not ({"kind", "batchId", "observedMetrics"} & given.keys()):
        for name, row in given.items():
            if not isinstance(row, Sequence | np.ndarray) or not all(isinstance(one, Real) for one in row):
                raise ArgumentError(f"the slices of {name!r} are {row!r}", accepted="a list of shares, from 0 to 1")
        return {str(name): list(row) for name, row in given.items()}
    records = _records([given] if isinstance(given, Mapping) else given)
    for record in reversed(records):
        found = {
            name.removeprefix(_HARVEST).replace("_", " -> ", 1): list(row)
            for name, row in (record.get("counters") or {}).items()
            if name.startswith(_HARVEST)
        }
        if found:
            return found
    return {}


def histograms(
    sample: DataFrame | Mapping[Any, float], complete: DataFrame | Mapping[Any, float], *, on: str | None = None,
    most: int = 30,
) -> Picture:  # fmt: skip
    """Draw how the results of a sample spread over join values, next to those of the complete join.

    Parameters
    ----------
    sample : DataFrame or mapping of join values to counts
        The result of :func:`dovetail.approx_join`, or its counts.  Spark counts a DataFrame.
    complete : DataFrame or mapping of join values to counts
        The result of the complete join, or its counts.
    on : str, optional
        The join value: an expression over the columns of both frames, such as ``"R.k"``.  Frames need it.
    most : int, default 30
        How many of the most frequent values of the complete join to show.

    Returns
    -------
    Picture
        A matplotlib figure with two panels of the same scale.

    Raises
    ------
    ArgumentError
        If an argument is of the wrong kind, or frames are given without `on`.
    SetupError
        If matplotlib is not installed.

    See Also
    --------
    dovetail.estimates : Figures of the complete join, estimated from the sample.

    Examples
    --------
    >>> picture = histograms({"x": 3, "y": 1}, {"x": 50, "y": 40, "z": 10})
    >>> [axis.get_title() for axis in picture.axes]
    ['sample: 4 results', 'complete: 100 results']
    """
    if not is_whole(most):
        raise ArgumentError(f"most={most!r}", accepted="a whole number from 1")
    counts = [_counted(one, on) for one in (sample, complete)]
    values = sorted(counts[1], key=lambda value: (-counts[1][value], str(value)))[:most]
    drawing = _drawing()
    figure, panels = drawing.axes(2, 9, 3, sharey=True)
    for axis, found, name, colour in zip(panels, counts, ("sample", "complete"), drawing.COLOURS, strict=False):
        total = sum(found.values())
        axis.bar(range(len(values)), [found.get(value, 0) / max(total, 1) for value in values], color=colour, width=0.9)
        axis.set_title(f"{name}: {total:,.0f} results")
        axis.set(xlabel=f"{on or 'join value'}, most frequent first", xticks=[])
    panels[0].set_ylabel("share of the results")
    return _picture(figure)


def _counted(frame: DataFrame | Mapping[Any, float], on: str | None) -> dict[Any, float]:
    if isinstance(frame, Mapping):
        if not all(isinstance(count, Real) for count in frame.values()):
            raise ArgumentError(f"the counts {frame!r}", accepted="a mapping from join values to numbers")
        return {value: float(count) for value, count in frame.items()}
    from dovetail.spark.frames import check_frame
    from dovetail.spark.joins.approx_estimates import check_value

    check_frame("sample or complete", frame)
    if on is None:
        raise ArgumentError("histograms of frames without on=", accepted="the join value, such as on='R.k'")
    check_value("on", on, frame)
    rows = frame.selectExpr(f"{on} AS value").groupBy("value").count().collect()
    # Arrays and binary values have no hash.
    return {str(row[0]) if isinstance(row[0], list | bytearray) else row[0]: float(row[1]) for row in rows}


def partitions(
    r: npt.ArrayLike,
    s: npt.ArrayLike,
    *,
    op: str = "<",
    algorithms: Sequence[str] = ("prefap", "ftj", "cfs", "rbm"),
    number: int = 10,
) -> Picture:
    """Draw the partition pairs that the published theta joins compare, as matrices: R down, S across, to scale.

    A shaded rectangle is a pair of partitions whose rows are all compared.  The algorithm never compares the rest.

    Parameters
    ----------
    r : array_like
        The join column of R: numbers.
    s : array_like
        The join column of S: numbers.
    op : {"<", "<=", ">", ">="}, default "<"
        The comparison between the two columns.
    algorithms : sequence of str, optional
        A matrix for each of these: ``prefap``, ``ftj``, ``cfs``, ``obt``, ``rbm``.
    number : int, default 10
        How many partitions each column is first divided into.

    Returns
    -------
    Picture
        A matplotlib figure with a panel for each algorithm.

    Raises
    ------
    ArgumentError
        If a column is no list of numbers, or an argument is not a choice.
    SetupError
        If matplotlib is not installed.

    Examples
    --------
    >>> picture = partitions([1, 2, 5, 9], [2, 4, 8, 9], op=">", algorithms=["prefap", "obt"], number=2)
    >>> [axis.get_title() for axis in picture.axes]
    ['prefap: 5 of 16 pairs', 'obt: 16 of 16 pairs']
    """
    from dovetail.families.theta.paper.layouts import Values, layout

    columns = [np.asarray(one) for one in (r, s)]
    for name, column in zip("rs", columns, strict=True):
        if column.ndim != 1 or column.dtype.kind not in "iuf" or not column.size:
            raise ArgumentError(f"{name} has the shape {column.shape}", accepted="a list of numbers, not empty")
    if not is_whole(number, most=MOST_PARTITIONS):
        raise ArgumentError(f"number={number!r}", accepted=f"a whole number from 1 to {MOST_PARTITIONS:,}")
    if not isinstance(algorithms, Sequence) or isinstance(algorithms, str | bytes) or not algorithms:
        raise ArgumentError(f"algorithms={algorithms!r}", accepted="one or more of prefap, ftj, cfs, obt, rbm")
    values = [Values.of(column) for column in columns]
    chosen: Any = list(algorithms)
    comparison: Any = op
    layouts = [layout(name, *values, op=comparison, partitions=number) for name in chosen]
    drawing = _drawing()
    figure, panels = drawing.axes(len(chosen), 2.6 * len(chosen) + 0.4, 3)
    for axis, name, made in zip(panels, chosen, layouts, strict=True):
        _matrix(axis, drawing, made, [column.positions for column in values])
        axis.set_title(f"{name}: {made.products:,} of {columns[0].size * columns[1].size:,} pairs", fontsize=9)
        axis.set(xlabel="S", ylabel="R", xticks=[], yticks=[])
    return _picture(figure)


def _matrix(axis: Any, drawing: Any, made: Any, positions: list[npt.NDArray[np.float64]]) -> None:
    """Rectangles of the surviving pairs, by value; a partition is as wide as it has rows."""
    edges = []
    sides = ((made.r_part, made.r_bounds), (made.s_part, made.s_bounds))
    for (part, bounds), position in zip(sides, positions, strict=True):
        sizes = np.bincount(part[part >= 0], minlength=len(bounds))
        # By value, so that the frontier of a comparison is a staircase.
        order = np.argsort(bounds[:, 0], kind="stable") if len(bounds) else np.empty(0, dtype=np.int64)
        starts = np.empty(len(sizes))
        starts[order] = np.concatenate([[0], np.cumsum(sizes[order])[:-1]]) if len(sizes) else []
        # Rows that a filter removed leave a gap.
        starts += np.searchsorted(np.sort(position[part < 0]), bounds[:, 0])
        edges.append((starts, sizes, int(part.size)))
    (tops, heights, rows), (lefts, widths, columns) = edges
    for i, j in made.pairs:
        axis.add_patch(drawing.rectangle(lefts[j], tops[i], widths[j], heights[i]))
    axis.set(xlim=(0, columns), ylim=(rows, 0))
    for spine in axis.spines.values():
        spine.set_visible(True)
