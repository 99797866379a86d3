"""Progress files as runs leave them, made up."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from datetime import UTC, datetime

from dovetail.watch.records import record_of

_COUNTED = ("thr", "rec", "late_", "early_", "held_", "most_")
PLAN = "window join, stream, how='inner'\n  inputs      A, B\n  window      A and B at most 1 minute apart\n"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def report(
    batch: int, began: float, *, rows: int = 1000, took: float = 0.4, kernel: float = 0.1, **more: object
) -> dict:
    """A report of a micro-batch in the form of Spark's JSON."""
    counters = {
        "rows": rows, "results": rows // 2, "candidates": rows // 2, "kernel_us": round(kernel * 1e6), "cells": 8,
        "most_rows": round(rows / 6),
        "held_rows_A": 20_000, "held_rows_B": 12_000, "state_bytes_A": 1_600_000, "state_bytes_B": 960_000,
        "evicted_A": rows // 2, "evicted_B": rows // 2, "late_A": 0, "late_B": 0,
        **{name: more.pop(name) for name in list(more) if name.startswith(_COUNTED)},
    }  # fmt: skip
    newest = more.pop("newest", began)
    event = {"min": iso(newest - 1.0), "avg": iso(newest - 0.5), "max": iso(newest)}
    mark = more.pop("watermark", newest - 5)
    return {
        "batchId": batch, "timestamp": iso(began), "numInputRows": rows, "inputRowsPerSecond": float(rows),
        "processedRowsPerSecond": rows / took, "eventTime": {**event, "watermark": iso(mark)},
        "durationMs": {
            "triggerExecution": round(took * 1000), "addBatch": round(took * 800), "queryPlanning": round(took * 50),
            "walCommit": round(took * 50), "latestOffset": round(took * 20), "commitOffsets": round(took * 30),
        },
        "sources": [], "sink": {"numOutputRows": rows // 2}, "observedMetrics": {"dovetail(A,B)": counters}, **more,
    }  # fmt: skip


def start(job: str, *, began: float, pid: int | None = None, **more: object) -> dict:
    return {
        "kind": "start", "job": job, "mode": "stream", "pid": os.getpid() if pid is None else pid,
        "host": socket.gethostname(), "time": iso(began), "plan": PLAN, **more,
    }  # fmt: skip


def write(file, records):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as opened:
        opened.writelines(json.dumps(record) + "\n" for record in records)


def steady(folder, job: str = "steady", batches: int = 60, now: float | None = None, **more):
    """A run with a micro-batch a second, the last of them now."""
    until = now or time.time()
    first = until - batches
    began = [first + at for at in range(batches)]
    records = [
        record_of(report(at, one, rows=round(1000 + 200 * math.sin(at / 9)), **more)) for at, one in enumerate(began)
    ]
    write(folder / f"{job}.jsonl", [start(job, began=first), *records])
    return folder / f"{job}.jsonl"
