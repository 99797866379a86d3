"""The console with a day of history: 50 queries, a micro-batch a second each, 4.3 million records.

The records of the day go into the history minute after minute, 50 queries at a time, through the code that reads
progress files.  Those of one minute in twenty are made and read; the figures of the others are theirs, later.  Then the
page is asked for over HTTP, each question many times: by the wall clock, and by the time of the processor, which says
more on a busy machine.  Memory is the most that the process ever held, the making of records included.

    python benchmarks/console.py [--queries 50] [--hours 24] [--history FILE]

``--history`` keeps the day in a file; if that is there already, only the pages are asked for.
"""

from __future__ import annotations

import argparse
import http.client
import math
import os
import random
import resource
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

from dovetail.watch import server
from dovetail.watch.access import Access
from dovetail.watch.collect import add_batches, begin_run
from dovetail.watch.figures import point_of
from dovetail.watch.records import record_of
from dovetail.watch.server import Console
from dovetail.watch.store import Store

ASKED = 40


def iso(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def report(query, number, began):
    """What Spark would report: three inputs, a join that sheds, rates that follow the hour of the day."""
    rows = round(2000 + 1500 * math.sin(began / 13750 + query) + random.gauss(0, 80))
    took = 0.35 + random.random() * 0.2
    z = min(1.0, 0.8 + random.random() * 0.3)
    each = {
        f"{name}_{alias}": round(random.random() * 1e5)
        for name in ("held_rows", "state_bytes", "evicted", "late")
        for alias in "ABC"
    }
    counters = {
        "rows": rows,
        "results": rows // 3,
        "candidates": rows,
        "kernel_us": round(took * 3e5),
        "cells": 8,
        **each,
    }
    counters |= {"throttle": z, "recall": z**0.5, "recall_low": z**0.5 - 0.02, "recall_high": min(1.0, z**0.5 + 0.02)}
    return {
        "batchId": number, "timestamp": iso(began), "numInputRows": rows,
        "inputRowsPerSecond": float(rows), "processedRowsPerSecond": rows / took,
        "eventTime": {
            "min": iso(began - 1.3), "avg": iso(began - 0.7), "max": iso(began - 0.2), "watermark": iso(began - 10),
        },
        "durationMs": {
            "triggerExecution": round(took * 1000), "addBatch": round(took * 700), "queryPlanning": 40, "walCommit": 30,
            "latestOffset": 5, "commitOffsets": 30,
        },
        "observedMetrics": {"dovetail(A,B,C)": counters}, "sink": {"numOutputRows": -1},
    }  # fmt: skip


def fill(store, queries, hours, until):
    """A day, minute by minute."""
    first = until - hours * 3600
    with store.transaction() as sql:
        runs = [
            begin_run(sql, {"job": f"query {at:02}", "pid": os.getpid(), "run": f"{at:036}", "time": iso(first)}, first)
            for at in range(queries)
        ]
    spent, records, read, reading = 0.0, 0, 0, 0.0
    points: dict[int, list] = {}
    last: dict[int, dict] = {}
    for minute in range(round(hours * 60)):
        began = first + minute * 60
        for query, run in enumerate(runs):
            if minute % 20 == 0:
                made = [record_of(report(query, minute * 60 + at, began + at)) for at in range(60)]
                then = time.process_time()
                points[run], last[run] = [point_of(record, now=began) for record in made], made[-1]
                reading += time.process_time() - then
                read += len(made)
            else:
                points[run] = [point | {"time": point["time"] + 60} for point in points[run]]
            then = time.process_time()
            with store.transaction() as sql:
                add_batches(store, sql, run, points[run], last[run])
            spent += time.process_time() - then
            records += len(points[run])
        if minute % 5 == 0:
            then = time.process_time()
            store.forget(began)
            spent += time.process_time() - then
        if minute % 120 == 119:
            print(f"  {records:>9,} records, {most_memory():.0f} MB", flush=True)
    print(
        f"a record takes {(reading / read + spent / records) * 1e6:.0f} microseconds of the processor to read and keep"
    )


def most_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def asked(console, path):
    """Seconds of each answer, by the wall clock and by the processor's, and the bytes of one."""
    connection = http.client.HTTPConnection("127.0.0.1", console.server_address[1])
    seconds, busy = [], []
    for _ in range(ASKED):
        then, used = time.perf_counter(), time.process_time()
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        seconds.append(time.perf_counter() - then)
        busy.append(time.process_time() - used)
        assert answer.status == 200, (path, answer.status, body[:300])
    connection.close()
    return seconds, busy, len(body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--history", type=Path)
    wanted = parser.parse_args()
    random.seed(7)
    with tempfile.TemporaryDirectory() as folder:
        path = wanted.history or Path(folder) / "history.sqlite3"
        there = path.exists()
        store = Store(path)
        if not there:
            fill(store, wanted.queries, wanted.hours, time.time())
        # The pages of the moment in which the day ends: filling it takes a while.
        until = store._sql.execute("SELECT max(time) FROM points WHERE level = 0").fetchone()[0] / 1000
        server.time = SimpleNamespace(time=lambda: until)
        store._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        records = round(wanted.queries * wanted.hours * 3600)
        counts = [
            store._sql.execute("SELECT count(*) FROM points WHERE level = ?", (level,)).fetchone()[0]
            for level in (0, 60, 900)
        ]
        print(f"{records:,} records of {wanted.queries} queries, history of {path.stat().st_size / 1e6:.0f} MB:")
        print("  {:,} micro-batches (two hours), {:,} minutes, {:,} quarters of an hour".format(*counts))
        console = Console(path, Access("127.0.0.1"), 0)
        threading.Thread(target=console.serve_forever, daemon=True).start()
        pages = ["/", "/api/runs", "/metrics"]
        pages += [f"/api/run?id={wanted.queries}&range={span}" for span in ("15m", "1h", "6h", "24h", "7d")]
        print(f"{'page':<26} {'median':>9} {'longest':>10} {'processor':>10} {'answer':>9}")
        for page in pages:
            seconds, busy, length = asked(console, page)
            middle, most, used = statistics.median(seconds) * 1e3, max(seconds) * 1e3, statistics.median(busy) * 1e3
            print(f"{page:<26} {middle:>6.0f} ms {most:>7.0f} ms {used:>7.0f} ms {length / 1e3:>6.0f} kB")
        print(f"memory: {most_memory():.0f} MB at most")
        console.shutdown()
        console.server_close()
        store.close()


if __name__ == "__main__":
    main()
