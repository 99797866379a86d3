"""Where rows go: as in a window join; what says how far an input has come also says when its packing began.

Only joins that set their throttle by the clock need that.  Spark compares what a packing task gives when it runs again,
after its executor was lost, and ends a query in which that differs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pyarrow as pa

from dovetail.columns.layout import PACKED_AT_HEADER
from dovetail.families.shedding.stream import MILLION
from dovetail.families.window.router import WindowRouter


@dataclass(frozen=True)
class SheddingRouter(WindowRouter):
    """The router of a window join, which also takes the time: workers do not see Spark's own progress reports."""

    began: list[int] = field(default_factory=list, compare=False)
    """When this task saw its first rows, in microseconds; empty before."""

    def parts(self, block: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The rows of each cell."""
        if not self.began:
            self.began.append(int(time.time() * MILLION))
        return super().parts(block)

    def ticks(self, top: int) -> list[tuple[int, pa.RecordBatch]]:
        """A segment without rows for every cell, with the time at which packing began."""
        stamp = str(self.began[0] if self.began else int(time.time() * MILLION)).encode()
        return [
            (cell, header.replace_schema_metadata({**(header.schema.metadata or {}), PACKED_AT_HEADER: stamp}))
            for cell, header in super().ticks(top)
        ]
