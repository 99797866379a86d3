"""What the demo leaves to play with: three programs and their data, each with the lines that are worth changing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dovetail.datasets.files import write

RANGE = '''\
"""Readings of two sensors within a tolerance."""

import dovetail as dt

spark = dt.session()
data = "{data}/sensors"
a, b = spark.read.parquet(f"{{data}}/a"), spark.read.parquet(f"{{data}}/b")
near = dt.theta_join(
    {{"a": a, "b": b}},
    # Change me: a.value BETWEEN b.value AND b.value + 2, ...
    on="ABS(a.value - b.value) <= 0.5",
    how="inner",  # or left, right, full, semi, anti
)
near.select("a.id", "b.id", "a.value", "b.value").orderBy("a.id", "b.id").show(5)
'''

ASOF = '''\
"""The quote that was current when a trade happened."""

import dovetail as dt

spark = dt.session()
data = "{data}/trades"
trades, quotes = spark.read.parquet(f"{{data}}/trades"), spark.read.parquet(f"{{data}}/quotes")
priced = dt.asof_join(
    {{"t": trades, "q": quotes}},
    by="item",
    time="ts",
    direction="backward",  # change me: forward, nearest
    within="10 minutes",  # or a shorter time, to see rows without a quote
    how="left",
)
priced.select("t.item", "t.ts", "t.price", "q.ts", "q.bid").orderBy("t.ts", "t.item").show(5)
'''

STREAM = '''\
"""A stream: objects that pass three cameras, one after the other."""

import dovetail as dt

spark = dt.session()
data = "{data}/cameras"


def camera(name):
    rows = spark.readStream.schema("obj long, speed long, ts timestamp")
    return rows.parquet(f"{{data}}/{{name}}").withWatermark("ts", "5 seconds")


passages = dt.window_join(
    {{name: camera(name) for name in "ABC"}},
    on="A.obj = B.obj AND B.obj = C.obj",
    time="ts",
    # Change me: "15 seconds"
    within=dt.path("A -> B -> C", ["5 seconds", "10 seconds"]),
    # Or {{"C": "optional"}}, {{"C": "absent"}}: the last camera may miss the object, or did miss it
    how="inner",
    partitions=1,
)
query = passages.writeStream.format("memory").queryName("passed")
query.trigger(availableNow=True).start().awaitTermination()
print(spark.table("passed").count(), "passages")
'''

_TEXTS = {"range.py": RANGE, "asof.py": ASOF, "stream.py": STREAM}


@dataclass(frozen=True)
class Program:
    """A program that the demo left."""

    path: Path
    text: str


def leave(folder: Path) -> list[Program]:
    """Write the programs and their data; a program that is there already may have been changed, and stays.

    Parameters
    ----------
    folder
        Where they go.

    Returns
    -------
    list of Program
        The programs as they are now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder.resolve() / "data"
    write("sensors", data / "sensors", rows=2_000)
    write("trades", data / "trades")
    write("cameras", data / "cameras", batches=2, objects=200)
    left = []
    for name, text in _TEXTS.items():
        path = folder.resolve() / name
        if not path.exists():
            path.write_text(text.format(data=_escaped(str(data))), encoding="utf-8")
        left.append(Program(path, path.read_text(encoding="utf-8")))
    return left


def _escaped(path: str) -> str:
    r"""A path inside a literal of Python.

    Examples
    --------
    >>> _escaped('/home/a "b"/{c}')
    '/home/a \\"b\\"/{c}'
    """
    return path.replace("\\", "\\\\").replace('"', '\\"')
