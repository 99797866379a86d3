"""The paper's partitionings as a routing: surviving partition pairs are the cells.

Prefap and its rivals decide from all values of both sides, so their routing is fitted to every key, not to a sample.
A partition is a range of values; the rows of a partition go to each surviving pair it takes part in, and there every
pair of rows is compared.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.columns import spark_hash
from dovetail.columns.codes import Codes, order_codes, prefix_codes
from dovetail.columns.encode import Keys, box_range, routing_points
from dovetail.columns.segments import pack, unpack
from dovetail.conditions.comparison import Axis, Kind, Step
from dovetail.families.theta.kernel import Index
from dovetail.families.theta.paper.layouts import layout
from dovetail.families.theta.paper.prefap import Layout, Operator, Values
from dovetail.families.theta.spec import Partitioning


def partition_axis(step: Step) -> Axis:
    """The axis whose values are partitioned: the first one; all other conditions are checked pair by pair."""
    return step.axes[0]


def axis_operator(axis: Axis) -> Operator:
    """The comparison between the point and the end of the range that is partitioned."""
    end = axis.high if axis.high is not None else axis.low
    assert end is not None
    # Ranges with a shift have inclusive codes already; prefixes of strings keep only <=.
    strict = end.strict and end.shift is None and axis.kind != "rank"
    if axis.high is not None:
        return "<" if strict else "<="
    return ">" if strict else ">="


def end_codes(axis: Axis, keys: Keys) -> Codes:
    """Codes of the end of the range, as the operator compares them."""
    end = axis.high if axis.high is not None else axis.low
    assert end is not None
    if axis.kind == "rank":
        return prefix_codes(keys[end.key])
    if end.shift is None:
        return order_codes(keys[end.key], axis.kind)
    low, high = box_range(axis, keys)
    return high if axis.high is not None else low


def positions(codes: Codes, kind: Kind) -> npt.NDArray[np.float64]:
    """Where codes lie on the number line, for spans of equal width; not finer than a float64."""
    if kind in ("int", "rank"):
        return codes.astype(np.float64)
    if kind == "float64":
        bits = np.where(codes < 0, codes ^ np.int64(0x7FFF_FFFF_FFFF_FFFF), codes)
        values = bits.view(np.float64)
    else:
        small = codes.astype(np.int32)
        with np.errstate(invalid="ignore"):
            values = np.where(small < 0, small ^ np.int32(0x7FFF_FFFF), small).view(np.float32).astype(np.float64)
    # NaN lies above everything; the end of an empty range may have a code below that of -inf.
    return np.where(np.isnan(values), np.where(codes < 0, -np.inf, np.inf), values)


def layout_of(axis: Axis, points: Codes, ends: Codes, partitioning: Partitioning) -> Layout:
    """The layout that a partitioning gives for the values of both sides."""
    settings = asdict(partitioning)
    return layout(
        partitioning.name,
        Values(points, positions(points, axis.kind)),
        Values(ends, positions(ends, axis.kind)),
        op=axis_operator(axis),
        partitions=settings.pop("p"),
        window=settings.pop("w", None),
        **settings,
    )


@dataclass(frozen=True)
class Members:
    """Partitions of one side as ranges of codes, and the cells that each takes part in (a flat list with offsets)."""

    low: Codes
    high: Codes
    offsets: Index
    cells: Index

    @classmethod
    def of(cls, codes: Codes, part: npt.NDArray[np.int32], cells_of: Index) -> Members:
        """`cells_of` is (partition, cell) pairs."""
        low, high = _extremes(codes, part)
        order = np.argsort(cells_of[:, 0], kind="stable")
        offsets = np.searchsorted(cells_of[order, 0], np.arange(low.size + 1))
        return cls(low, high, offsets, cells_of[order, 1])

    def cells_of_rows(self, codes: Codes) -> tuple[Index, Index]:
        """(row, cell) for every cell that a row's partition takes part in."""
        if self.high.size == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        # Partitions are ascending ranges.  One-bucket theta may cut a tie in two; the first part then takes all of
        # it, which loses nothing because there every pair survives.
        order = np.argsort(self.high, kind="stable")
        part = order[np.minimum(np.searchsorted(self.high[order], codes), self.high.size - 1)]
        kept = np.flatnonzero((codes >= self.low[part]) & (codes <= self.high[part]))
        begin, count = self.offsets[part[kept]], np.diff(self.offsets)[part[kept]]
        ends = np.cumsum(count)
        within = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - count, count)
        return np.repeat(kept, count), self.cells[np.repeat(begin, count) + within]


@dataclass(frozen=True)
class PairRouting:
    """Cells are surviving pairs of partitions.

    Where an unmatched point must be reported once, a cell is a partition of the points with all partitions that
    survive with it: the same Cartesian products, and no point in two cells.
    """

    point_members: Members
    box_members: Members
    numbers: npt.NDArray[np.int32]

    splits_values = False
    owner = False

    @property
    def cells(self) -> int:
        """How many cells there are; at least one."""
        return int(self.numbers.size)

    @classmethod
    def fit(
        cls,
        step: Step,
        points: Codes,
        ends: Codes,
        partitioning: Partitioning,
        *,
        partitions: int,
        may_copy_points: bool,
    ) -> PairRouting:
        """The routing for all values of both sides; `partitions` is the number of shuffle partitions."""
        chosen = layout_of(partition_axis(step), points, ends, partitioning)
        pairs = chosen.pairs.reshape(-1, 2).astype(np.int64)
        cell = np.arange(len(pairs)) if may_copy_points else pairs[:, 0]
        count = max(1, int(cell.max(initial=-1)) + 1)
        point_cells = np.unique(np.stack([pairs[:, 0], cell], axis=1), axis=0)
        box_cells = np.stack([pairs[:, 1], cell], axis=1)
        point_size = np.bincount(chosen.r_part[chosen.r_part >= 0], minlength=1)
        box_size = np.bincount(chosen.s_part[chosen.s_part >= 0], minlength=1)
        products = point_size[pairs[:, 0]].astype(np.float64) * box_size[pairs[:, 1]]
        cost = np.bincount(cell, weights=products, minlength=count).astype(np.float64)
        return cls(
            Members.of(points, chosen.r_part, point_cells),
            Members.of(ends, chosen.s_part, box_cells),
            spark_hash.cell_numbers(spark_hash.balance(cost, partitions), partitions),
        )

    def points(self, step: Step, hashes: Index, keys: Keys, ties: Index) -> tuple[Index, Index]:
        """(row, cell) for each cell that each point goes to."""
        return self.point_members.cells_of_rows(routing_points(partition_axis(step), keys))

    def boxes(self, step: Step, hashes: Index, keys: Keys) -> tuple[Index, Index]:
        """(row, cell) for each cell that each box goes to."""
        return self.box_members.cells_of_rows(end_codes(partition_axis(step), keys))

    def to_buffer(self) -> pa.Buffer:
        """The routing as bytes, for its way to the workers."""
        columns = [*astuple(self.point_members), *astuple(self.box_members), self.numbers]
        lists = [pa.array([column.tolist()], pa.list_(pa.int64())) for column in columns]
        batch = pa.RecordBatch.from_arrays(lists, names=[str(at) for at in range(len(lists))])
        return pack(batch.replace_schema_metadata({"routing": json.dumps({"mode": "pairs"})}))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> PairRouting:
        """The inverse of :meth:`to_buffer`."""
        columns = [np.array(column[0].as_py(), dtype=np.int64) for column in unpack(buffer).columns]
        return cls(Members(*columns[:4]), Members(*columns[4:8]), columns[8].astype(np.int32))


def _extremes(codes: Codes, part: npt.NDArray[np.int32]) -> tuple[Codes, Codes]:
    count = int(part.max(initial=-1)) + 1
    kept = part >= 0
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, part[kept], codes[kept])
    np.maximum.at(high, part[kept], codes[kept])
    return low, high
