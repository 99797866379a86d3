"""The ways to hold the state of a streaming join that `state.py` measures: segments, operators, variants."""

from __future__ import annotations

import sys
import types
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from _state_packing import even_cells, from_ipc, packer, to_ipc, unpack
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

WITHIN_US = 10_000_000
BATCH_US = 10_000_000  # event time that one micro-batch spans
PARTITIONS = 2
ROW = "id long, k long, ts timestamp, v double"
PACKED = "cell int, side int, lo long, hi long, seg binary"
PAIR = ", ".join(f"{s}_{c}" for s in "rs" for c in ("id long", "k long", "ts timestamp", "v double"))
STORES = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
OUT_SCHEMA = pa.schema(
    [
        (f"{s}_{c}", t)
        for s in "rs"
        for c, t in (
            ("id", pa.int64()),
            ("k", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("v", pa.float64()),
        )
    ]
)


# -------------------- segments and kernel


@dataclass
class Held:
    """One held segment, opened once: Arrow columns over the IPC bytes plus the two key arrays."""

    side: int
    lo: int
    hi: int
    blob: bytes

    def __post_init__(self) -> None:
        self.batch = from_ipc(self.blob)
        self.k = self.batch.column(1).to_numpy()
        self.ts = np.asarray(self.batch.column(2).cast(pa.int64()))


def pairs_of(r: Held, s: Held) -> pa.RecordBatch | None:
    """All matches between two segments that are both sorted by k."""
    if r.lo - WITHIN_US > s.hi or s.lo - WITHIN_US > r.hi:
        return None
    first = np.searchsorted(s.k, r.k, side="left")
    count = np.searchsorted(s.k, r.k, side="right") - first
    total = int(count.sum())
    if not total:
        return None
    left = np.repeat(np.arange(len(r.k)), count)
    ends = np.cumsum(count)
    right = np.arange(total) - np.repeat(ends - count, count) + np.repeat(first, count)
    near = np.abs(r.ts[left] - s.ts[right]) <= WITHIN_US
    rows = [h.batch.take(pa.array(i[near])) for h, i in ((r, left), (s, right))]
    return pa.RecordBatch.from_arrays([*rows[0].columns, *rows[1].columns], schema=OUT_SCHEMA)


def probe(new: list[Held], held: list[Held]) -> bytes | None:
    """Join the new segments with each other and with the held ones; every pair is found exactly once."""
    found = []
    for i, a in enumerate(new):
        for b in [*held, *new[:i]]:
            if a.side != b.side:
                out = pairs_of(a, b) if a.side == 0 else pairs_of(b, a)
                if out is not None and out.num_rows:
                    found.append(out)
    if not found:
        return None
    return to_ipc(pa.Table.from_batches(found).combine_chunks().to_batches()[0])


# -------------------- stateful operators


def segments_in(frames: Iterator[pd.DataFrame]) -> list[Held]:
    return [
        Held(int(side), int(lo), int(hi), seg)
        for f in frames
        for side, lo, hi, seg in zip(f["side"], f["lo"], f["hi"], f["seg"], strict=True)
    ]


def group_state_join(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Variants e and f: one value per cell, a header of int64 and the segments behind each other."""
    held = []
    if state.exists:
        head, data = state.get
        at = 0
        table = np.frombuffer(head, np.int64).reshape(-1, 4)
        # Spark hides its watermark from this operator once mapInArrow has replaced the watermarked column, so
        # the cell takes the smaller of the two sides' newest times, as Spark's min policy would.
        newest = [table[table[:, 0] == side, 2].max(initial=-(1 << 62)) for side in (0, 1)]
        floor = min(newest) - WITHIN_US
        for side, lo, hi, size in table.tolist():
            if hi >= floor:
                held.append(Held(side, lo, hi, bytes(data[at : at + size])))
            at += size
    new = segments_in(frames)
    blob = probe(new, held)
    keep = held + new
    head = np.array([(h.side, h.lo, h.hi, len(h.blob)) for h in keep], np.int64).tobytes()
    state.update((head, b"".join(h.blob for h in keep)))
    if blob is not None:
        yield pd.DataFrame({"blob": [blob]})


def worker_cache() -> dict[Any, Any]:
    """A dict that outlives the pickled functions: one per Python worker process."""
    return sys.modules.setdefault("_state_benchmark_cache", types.ModuleType("cache")).__dict__


class _PackedProcessor(StatefulProcessor):
    """Variants d, i, j, l: one map entry per segment; ``cached`` keeps opened segments in the worker."""

    def __init__(self, form: str = "pandas", cached: bool = False) -> None:
        self.form, self.cached = form, cached

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.segments = handle.getMapState("segments", "side int, lo long, hi long, tag string", "seg binary")
        self.token = handle.getValueState("token", "token string") if self.cached else None

    def load(self, key: Any) -> list[tuple[str, Held]]:
        if self.token is not None:
            stored = self.token.get()
            if stored is None:
                return []
            token, held = worker_cache().get(("held", tuple(key)), (None, []))
            # A token is fresh for every write, so an equal one means this very write was committed.
            if token == stored[0]:
                return list(held)
        return [(k[3], Held(k[0], k[1], k[2], bytes(v[0]))) for k, v in self.segments.iterator()]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802
        floor = timerValues.getCurrentWatermarkInMs() * 1000 - WITHIN_US
        stored = self.load(key)
        for tag, h in stored:
            if h.hi < floor:
                self.segments.removeKey((h.side, h.lo, h.hi, tag))
        live = [(tag, h) for tag, h in stored if h.hi >= floor]
        new = [Held(r.side, r.lo, r.hi, bytes(r.seg)) for r in rows] if self.form == "row" else segments_in(rows)
        blob = probe(new, [h for _, h in live])
        for h in new:
            tag = uuid.uuid4().hex
            self.segments.updateValue((h.side, h.lo, h.hi, tag), (h.blob,))
            live.append((tag, h))
        if self.token is not None:
            token = uuid.uuid4().hex
            self.token.update((token,))
            worker_cache()["held", tuple(key)] = (token, live)
        if blob is not None:
            yield Row(blob=blob) if self.form == "row" else pd.DataFrame({"blob": [blob]})

    def close(self) -> None:
        pass


class _RowsProcessor(StatefulProcessor):
    """Variants c and k: rows travel as rows; their state is packed (c) or a list of rows (k)."""

    def __init__(self, state: str) -> None:
        self.state = state

    def init(self, handle: StatefulProcessorHandle) -> None:
        if self.state == "rows":
            self.rows = handle.getListState("rows", "side int, id long, k long, ts long, v double")
        else:
            self.segments = handle.getMapState("segments", "side int, hi long, tag string", "seg binary")

    @staticmethod
    def segment(frame: pd.DataFrame, side: int) -> Held | None:
        part = frame[frame["side"] == side].sort_values("k")
        if part.empty:
            return None
        ts = part["ts"].to_numpy()
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(part["id"].to_numpy()),
                pa.array(part["k"].to_numpy()),
                pa.array(ts).cast(pa.timestamp("us", "UTC")),
                pa.array(part["v"].to_numpy()),
            ],
            names=["id", "k", "ts", "v"],
        )
        return Held(side, int(ts.min()), int(ts.max()), to_ipc(batch))

    def handleInputRows(  # noqa: N802
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        floor = timerValues.getCurrentWatermarkInMs() * 1000 - WITHIN_US
        frame = pd.concat(list(rows))
        new = [h for h in (self.segment(frame, side) for side in (0, 1)) if h is not None]
        if self.state == "rows":
            old = pd.DataFrame(list(self.rows.get()), columns=["side", "id", "k", "ts", "v"])
            old = old[old["ts"] >= floor]
            held = [h for h in (self.segment(old, side) for side in (0, 1)) if h is not None]
            kept = pd.concat([old, frame[["side", "id", "k", "ts", "v"]]]) if len(old) else frame
            self.rows.put(list(zip(*(kept[c].tolist() for c in ("side", "id", "k", "ts", "v")), strict=True)))
        else:
            held = []
            for k, v in list(self.segments.iterator()):
                if k[1] < floor:
                    self.segments.removeKey(k)
                else:
                    batch = from_ipc(bytes(v[0]))
                    ts = np.asarray(batch.column(2).cast(pa.int64()))
                    held.append(Held(k[0], int(ts.min()), k[1], bytes(v[0])))
            for h in new:
                self.segments.updateValue((h.side, h.hi, uuid.uuid4().hex), (h.blob,))
        blob = probe(new, held)
        if blob is not None:
            table = pa.Table.from_batches([from_ipc(blob)]).to_pandas()
            for c in ("r_ts", "s_ts"):
                table[c] = table[c].dt.tz_localize(None)
            yield table

    def close(self) -> None:
        pass


class _IdleProcessor(StatefulProcessor):
    """Variant h: the price of the operator itself."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802
        for _ in rows:
            pass
        yield pd.DataFrame({"blob": [b""]})

    def close(self) -> None:
        pass


def idle_group_state(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    for _ in frames:
        pass
    yield pd.DataFrame({"blob": [b""]})


# -------------------- variants


def watermarked(side: DataFrame) -> DataFrame:
    return side.withWatermark("ts", "0 seconds")


def packed(r: DataFrame, s: DataFrame, cells: list[int]) -> DataFrame:
    sides = [watermarked(d).mapInArrow(packer(i, cells), PACKED) for i, d in enumerate((r, s))]
    return sides[0].unionByName(sides[1])


def spark_join(r: DataFrame, s: DataFrame) -> DataFrame:
    left = watermarked(r).select(*(fn.col(c).alias(f"r_{c}") for c in ("id", "k", "ts", "v")))
    right = watermarked(s).select(*(fn.col(c).alias(f"s_{c}") for c in ("id", "k", "ts", "v")))
    return left.join(
        right,
        fn.expr("r_k = s_k AND r_ts >= s_ts - INTERVAL 10 SECONDS AND r_ts <= s_ts + INTERVAL 10 SECONDS"),
    )


def group_state(r: DataFrame, s: DataFrame) -> DataFrame:
    grouped = packed(r, s, even_cells(PARTITIONS, 1)).groupBy("cell")
    timeout = GroupStateTimeout.NoTimeout
    out = grouped.applyInPandasWithState(group_state_join, "blob binary", "head binary, data binary", "append", timeout)
    return out.mapInArrow(unpack, PAIR)


def processor_join(form: str, cached: bool = False) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def build(r: DataFrame, s: DataFrame) -> DataFrame:
        grouped = packed(r, s, even_cells(PARTITIONS, 1)).groupBy("cell")
        operator = grouped.transformWithState if form == "row" else grouped.transformWithStateInPandas
        out = operator(_PackedProcessor(form, cached), "blob binary", "append", "EventTime")
        return out.mapInArrow(unpack, PAIR)

    return build


def rows_join(state: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def build(r: DataFrame, s: DataFrame) -> DataFrame:
        cells = even_cells(PARTITIONS, 1)
        ids = fn.array(*map(fn.lit, cells))
        sides = [
            watermarked(d).select(
                fn.get(ids, fn.pmod(fn.xxhash64("k"), fn.lit(len(cells))).cast("int")).alias("cell"),
                fn.lit(i).alias("side"),
                "id",
                "k",
                fn.unix_micros("ts").alias("ts"),
                "v",
            )
            for i, d in enumerate((r, s))
        ]
        grouped = sides[0].unionByName(sides[1]).groupBy("cell")
        return grouped.transformWithStateInPandas(_RowsProcessor(state), PAIR, "append", "EventTime")

    return build


def floor(r: DataFrame, s: DataFrame) -> DataFrame:
    return r.unionByName(s).mapInArrow(lambda batches: batches, ROW)


def idle(operator: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def build(r: DataFrame, s: DataFrame) -> DataFrame:
        grouped = packed(r, s, even_cells(PARTITIONS, 1)).groupBy("cell")
        if operator == "tws":
            return grouped.transformWithStateInPandas(_IdleProcessor(), "blob binary", "append", "EventTime")
        timeout = GroupStateTimeout.NoTimeout
        return grouped.applyInPandasWithState(idle_group_state, "blob binary", "n long", "append", timeout)

    return build


@dataclass(frozen=True)
class Variant:
    """One way to hold the state; ``tiny`` runs it on one row per file."""

    key: str
    what: str
    store: str
    build: Callable[[DataFrame, DataFrame], DataFrame]
    joins: bool = True
    tiny: bool = False
    conf: tuple[tuple[str, str], ...] = ()


JOIN_V4 = (("spark.sql.streaming.join.stateFormatVersion", "4"),)
VARIANTS = [
    Variant("a", "Spark's stream-stream join", "memory", spark_join),
    Variant("b", "Spark's stream-stream join, state format 4", "rocksdb", spark_join, conf=JOIN_V4),
    Variant("c", "rows travel, packed state, transformWithStateInPandas", "rocksdb", rows_join("packed")),
    Variant("k", "rows travel, rows as state, transformWithStateInPandas", "rocksdb", rows_join("rows")),
    Variant("d", "packed, transformWithStateInPandas", "rocksdb", processor_join("pandas")),
    Variant("i", "packed, transformWithState (Row)", "rocksdb", processor_join("row")),
    Variant("j", "packed, transformWithStateInPandas, worker cache", "rocksdb", processor_join("pandas", True)),
    Variant("l", "packed, transformWithState (Row), worker cache", "rocksdb", processor_join("row", True)),
    Variant("e", "packed, applyInPandasWithState", "memory", group_state),
    Variant("f", "packed, applyInPandasWithState", "rocksdb", group_state),
    Variant("g", "rows through mapInArrow, no state", "memory", floor, joins=False),
    Variant("h", "idle applyInPandasWithState, 1 row", "memory", idle("group"), joins=False, tiny=True),
    Variant("m", "idle transformWithStateInPandas, 1 row", "rocksdb", idle("tws"), joins=False, tiny=True),
]
