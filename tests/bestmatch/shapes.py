"""Best-match joins without a JVM: criteria as the kernels and as the definition know them, and rows that are hard on
both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from dovetail.families.bestmatch.spec import Axis, BestSpec
from dovetail.reference import bestmatch as definition

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "x": pa.int64(),
    "y": pa.float64(),
    "z": pa.float64(),
    "t": pa.timestamp("us", "UTC"),
    "k": pa.string(),
    "h": pa.int64(),
    "tags": pa.list_(pa.string()),
}
NAMES = tuple(COLUMNS)

INTS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**62, -(2**62)]))
FLOATS = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 1.5, 2.0, -1.0, float("nan"), float("inf"), float("-inf"), 0.1, 0.2, 0.3]),
)
TIMES = st.one_of(st.none(), st.integers(0, 12))
KEYS = st.sampled_from(["a", "b", None])
TAGS = st.one_of(st.none(), st.lists(st.sampled_from(["p", "q", "r", None]), max_size=3))


@st.composite
def tables(draw: Any, most: int = 9) -> list[dict[str, Any]]:
    """Rows of one input, numbered."""
    made = draw(
        st.lists(
            st.fixed_dictionaries(
                {"x": INTS, "y": FLOATS, "z": FLOATS, "t": TIMES, "k": KEYS, "h": TIMES, "tags": TAGS}
            ),
            max_size=most,
        )
    )
    return [{"id": at, **row} for at, row in enumerate(made)]


@dataclass(frozen=True)
class Shape:
    """A criterion, three times: for the kernel, for the definition, and as columns of the rows."""

    name: str
    definition: Any
    axis: Axis | None = None
    column: str = ""
    judge: Any = None
    bounded: bool = False


def by_parity(p: Any, q: Any) -> str:
    """An order of its own: rows whose numbers are both even are better; odd ones beside even ones are another
    matter."""
    kinds = [(pair["R"]["id"] % 2, pair["S"]["id"] % 2) for pair in (p, q)]
    if kinds[0] == kinds[1]:
        return "equal"
    if kinds[0] == (0, 0):
        return "better"
    return "worse" if kinds[1] == (0, 0) else "incomparable"


def _judged(p: Any, q: Any) -> str:
    return by_parity({"R": p[0], "S": p[1]}, {"R": q[0], "S": q[1]})


def _sum(column: str) -> Any:
    def value(r: Any, s: Any) -> Any:
        return None if r[column] is None or s[column] is None else r[column] + s[column]

    return value


SHAPES = [
    Shape("x", definition.nearest("x"), Axis("near_int"), "x"),
    Shape("x1", definition.nearest("x", within=1), Axis("near_int", within=1), "x", bounded=True),
    Shape("y", definition.nearest("y"), Axis("near_float"), "y"),
    Shape("y.3", definition.nearest("y", within=0.3), Axis("near_float", within=0.3), "y", bounded=True),
    Shape("z1", definition.nearest("z", within=1.0), Axis("near_float", within=1.0), "z", bounded=True),
    Shape("least z", definition.smallest(_sum("z")), Axis("sum_float"), "z"),
    Shape("most z", definition.largest(_sum("z")), Axis("sum_float", largest=True), "z"),
    Shape("least h", definition.smallest(_sum("h")), Axis("sum_int"), "h"),
    Shape("most h", definition.largest(_sum("h")), Axis("sum_int", largest=True), "h"),
    Shape("youngest", definition.newest("t"), Axis("latest", largest=True), "t"),
    Shape("t4", definition.nearest("t", within=4), Axis("near_int", within=4), "t", bounded=True),
    Shape("tags", definition.larger_overlap("tags"), column="tags"),
    Shape("parity", definition.preferred(_judged), judge=by_parity),
]
BY_NAME = {shape.name: shape for shape in SHAPES}


@dataclass(frozen=True)
class Join:
    """A join of two inputs of the columns above."""

    shapes: tuple[Shape, ...]
    how: str
    by: tuple[str, ...] = ()
    keep: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        axes = [shape.column for shape in self.shapes if shape.axis is not None]
        return [*self.by, *axes, *[shape.column for shape in self.shapes if shape.name == "tags"]]

    def spec(self) -> BestSpec:
        """The description that the planner would give a kernel."""
        return BestSpec(
            how=self.how,  # type: ignore[arg-type]
            payload=(len(COLUMNS), len(COLUMNS)),
            types=(tuple(COLUMNS.values()), tuple(COLUMNS.values())),
            by=tuple("rank" if name == "k" else "int" for name in self.by),
            axes=tuple(shape.axis for shape in self.shapes if shape.axis is not None),
            sets=tuple("rank" for shape in self.shapes if shape.name == "tags"),
            judges=tuple(shape.judge for shape in self.shapes if shape.judge is not None),
            names=(NAMES, NAMES),
            keep=self.keep,
            **self.extra,
        )

    def batch(self, rows: Sequence[dict[str, Any]], more: Sequence[str] = ()) -> pa.RecordBatch:
        """Payload and keys, as Spark hands them to a kernel."""
        names = [*NAMES, *self.keys, *more]
        columns = [pa.array([row[name] for row in rows], COLUMNS.get(name, pa.int64())) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(names))])

    def expected(self, left: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]]) -> Counter[Any]:
        """The definition's answer, as numbers of rows."""
        criteria = [shape.definition for shape in self.shapes]
        found = definition.bestmatch_join(
            {"R": left, "S": right}, criteria, self.how, self.by, keep_unmatched=self.keep
        )
        return Counter(tuple(None if row is None else row["id"] for row in pair.values()) for pair in found)


@st.composite
def joins(
    draw: Any, *, bounded: bool = False, judged: bool = True, hows: Sequence[str] = ("inner", "left", "right", "full")
) -> Join:
    """A join of one to four criteria; a bounded one has a maximum distance somewhere."""
    usable = [shape for shape in SHAPES if judged or shape.judge is None]
    shapes = draw(st.lists(st.sampled_from(usable), min_size=1, max_size=4, unique_by=lambda shape: shape.name))
    if bounded and not any(shape.bounded for shape in shapes):
        shapes = [*shapes[:3], draw(st.sampled_from([shape for shape in SHAPES if shape.bounded]))]
    by = draw(st.sampled_from([(), (), ("k",), ("k", "h")]))
    how = draw(st.sampled_from(hows))
    keep = draw(st.booleans()) if how != "inner" else False
    return Join(tuple(shapes), how, by, keep)
