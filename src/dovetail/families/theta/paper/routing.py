"""The paper's partitionings as a routing: surviving partition pairs are the cells.

Prefap and its rivals decide from all values of both sides, so their routing is fitted to every key, not to a sample.
A partition is a range of values; the rows of a partition go to each surviving pair it takes part in, and there every
pair of rows is compared.  Rows that were not among those values have a place, too, so that no pair is ever lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

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
    """Partitions of one side, which together hold every code, and the cells that each takes part in.

    Partition i holds the codes above ``bounds[i - 1]`` and up to ``bounds[i]``, and the last one all above; where
    `turned`, codes count downwards.  Cells are a flat list with offsets.
    """

    bounds: Codes
    offsets: Index
    cells: Index
    turned: bool

    @classmethod
    def of(cls, bounds: Codes, part: Index, cell: Index, *, turned: bool) -> Members:
        """`part` and `cell` list the cells of each partition, of which there is one more than there are bounds."""
        order = np.argsort(part, kind="stable")
        offsets = np.searchsorted(part[order], np.arange(bounds.size + 2))
        return cls(bounds, offsets, cell[order], turned)

    def cells_of_rows(self, codes: Codes) -> tuple[Index, Index]:
        """(row, cell) for every cell that a row's partition takes part in."""
        # One-bucket theta may cut a tie in two.  One part then takes all of it, which loses nothing because there
        # every pair survives.
        part = np.searchsorted(self.bounds, ~codes if self.turned else codes)
        begin, count = self.offsets[part], np.diff(self.offsets)[part]
        ends = np.cumsum(count)
        within = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - count, count)
        return np.repeat(np.arange(codes.size), count), self.cells[np.repeat(begin, count) + within]

    def columns(self) -> list[Index]:
        """The inverse of the constructor, as whole numbers."""
        return [self.bounds, self.offsets, self.cells, np.array([self.turned], dtype=np.int64)]

    @classmethod
    def from_columns(cls, columns: list[Index]) -> Members:
        """The inverse of :meth:`columns`."""
        return cls(columns[0], columns[1], columns[2], bool(columns[3][0]))


@dataclass(frozen=True)
class PairRouting:
    """Cells are surviving pairs of partitions, and two more that hold what the filters drop.

    Where an unmatched point must be reported once, a cell is a partition of the points with all partitions that
    survive with it: the same Cartesian products, and no point in two cells.

    The values that are routed need not be those that were fitted: an input may give others when Spark computes it
    again.  So partitions have no gaps.  Let points match where they are *larger* than what they meet (otherwise all
    codes are turned round).  A pair of partitions survives by the largest point and the smallest end, so the values
    between two partitions of points join the upper one, those between two partitions of ends the lower one, and what
    was decided about a pair holds for them, too.  Four kinds of values remain:

    * *high* points, above all that were seen, go where the highest partition goes: it survives with every other;
    * *low* ends, below all that were seen, go where the lowest partition goes;
    * *dropped* points matched nothing; they could match only low ends, and one cell has both;
    * *dropped* ends could match only high points, and the other cell has both.

    No high point and no low end exists where the values are those fitted, so the products stay those of the paper.
    """

    point_members: Members
    box_members: Members
    numbers: npt.NDArray[np.int32]

    splits_values = False
    owner = False

    @property
    def cells(self) -> int:
        """How many cells there are; at least three."""
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
        axis = partition_axis(step)
        chosen = layout_of(axis, points, ends, partitioning)
        turned = axis_operator(axis) in ("<", "<=")
        # Both sides count away from each other: a partition of either is bounded by its value likeliest to match.
        point_side = _Side.of(~points if turned else points, chosen.r_part, chosen.pairs[:, 0])
        box_side = _Side.of(ends if turned else ~ends, chosen.s_part, chosen.pairs[:, 1])
        pairs = np.stack([point_side.places[chosen.pairs[:, 0]], box_side.places[chosen.pairs[:, 1]]], axis=1)
        if not len(pairs):
            # High points and low ends still have to meet.
            pairs = np.zeros((1, 2), dtype=np.int64)
        cell = np.arange(len(pairs)) if may_copy_points else pairs[:, 0]
        count = int(cell.max()) + 1
        dropped_points, dropped_ends = count, count + 1
        products = point_side.sizes[pairs[:, 0]].astype(np.float64) * box_side.sizes[pairs[:, 1]]
        cost = np.bincount(cell, weights=products, minlength=count + 2).astype(np.float64)
        point_cells = np.unique(np.stack([pairs[:, 0], cell], axis=1), axis=0)
        box_cells = np.stack([pairs[:, 1], cell], axis=1)
        low_ends = [*box_side.cells_of_last(box_cells), dropped_points]
        if may_copy_points:
            high_points = [*point_side.cells_of_last(point_cells), dropped_ends]
        else:
            # A high point is in one cell, and all ends come there.
            high_points, low_ends = [dropped_ends], [*low_ends, dropped_ends]
            everywhere = np.arange(box_side.bounds.size)
            box_cells = np.concatenate(
                [box_cells, np.stack([everywhere, np.full_like(everywhere, dropped_ends)], axis=1)]
            )
        return cls(
            point_side.members(point_cells, dropped_points, high_points, turned=turned),
            box_side.members(box_cells, dropped_ends, low_ends, turned=not turned),
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
        columns = [column.tolist() for column in (*self.point_members.columns(), *self.box_members.columns())]
        lists = [pa.array([column], pa.list_(pa.int64())) for column in (*columns, self.numbers.tolist())]
        batch = pa.RecordBatch.from_arrays(lists, names=[str(at) for at in range(len(lists))])
        return pack(batch.replace_schema_metadata({"routing": json.dumps({"mode": "pairs"})}))

    @classmethod
    def from_buffer(cls, buffer: pa.Buffer | bytes) -> PairRouting:
        """The inverse of :meth:`to_buffer`."""
        columns = [np.array(column[0].as_py(), dtype=np.int64) for column in unpack(buffer).columns]
        points, boxes = Members.from_columns(columns[:4]), Members.from_columns(columns[4:8])
        return cls(points, boxes, columns[8].astype(np.int32))


@dataclass(frozen=True)
class _Side:
    """The partitions of one side that take part in a surviving pair, in the order in which they match more and more."""

    bounds: Codes
    """The largest code of each."""
    sizes: Index
    places: Index
    """Where each partition of the layout stands among them; -1 for one without a pair."""
    dropped: Codes
    """The largest code of the rows that are in none of them; nothing where there are no such rows."""

    @classmethod
    def of(cls, codes: Codes, part: npt.NDArray[np.int32], paired: Index) -> _Side:
        count = int(part.max(initial=-1)) + 1
        takes_part = np.zeros(count + 1, dtype=np.bool_)  # the last place is that of removed rows
        takes_part[paired] = True
        kept = takes_part[part]
        largest = np.full(count, np.iinfo(np.int64).min)
        np.maximum.at(largest, part[kept], codes[kept])
        used = np.flatnonzero(takes_part[:count])
        # The layout counts the other way where codes are turned, and shares of one tie may have one bound.
        order = used[np.argsort(largest[used], kind="stable")]
        places = np.full(count, -1, dtype=np.int64)
        places[order] = np.arange(order.size)
        # Without a pair there is one place for what lies beyond: nothing, as far as was seen.
        sizes = np.bincount(part[kept], minlength=count)[order] if order.size else np.zeros(1, dtype=np.int64)
        left_out = codes[~kept]
        return cls(largest[order], sizes, places, np.array([left_out.max()] if left_out.size else [], dtype=np.int64))

    def cells_of_last(self, cells: Index) -> list[int]:
        """The cells of the partition that matches most; `cells` lists (partition, cell)."""
        return [int(cell) for cell in cells[cells[:, 0] == self.sizes.size - 1, 1]]

    def members(self, cells: Index, dropped_cell: int, beyond: list[int], *, turned: bool) -> Members:
        """The partitions with their cells: what matched nothing first, what lies beyond all that was seen last."""
        first, last = self.dropped.size, self.dropped.size + self.bounds.size
        inner = cells[cells[:, 0] < self.bounds.size]
        part = np.concatenate([np.zeros(first, np.int64), inner[:, 0] + first, np.full(len(beyond), last)])
        cell = np.concatenate([np.full(first, dropped_cell), inner[:, 1], np.array(beyond, dtype=np.int64)])
        return Members.of(np.concatenate([self.dropped, self.bounds]), part, cell, turned=turned)
