"""The verifier: compares what a sink holds with what it must hold according to the input files.

It shares no code with the joins.  It reads the list of committed files that Spark's sink keeps, as any reader of such a
sink must, and computes the answer from the input files: in DuckDB, for as-of joins by the nested loop that
defines them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow.parquet as pq

from chaos.inputs import LAST
from dovetail import reference

Rows = Counter[tuple[object, ...]]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a sink, if anything."""

    rows: int
    faults: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __str__(self) -> str:
        return "nothing lost, nothing twice" if self.right else "; ".join(self.faults)


# ----------------------------------------------------------------------------------------------------------------------
# The sink
# ----------------------------------------------------------------------------------------------------------------------


def committed_files(sink: Path) -> list[Path]:
    """The files that the sink's log says are there; others are leftovers of attempts that failed."""
    log = sink / "_spark_metadata"
    numbered = {int(file.name.split(".")[0]): file for file in log.glob("[0-9]*") if not file.name.endswith(".tmp")}
    compact = [number for number, file in numbered.items() if file.name.endswith(".compact")]
    # A compact file has all entries before it too.
    first = max(compact, default=0)
    found: dict[str, None] = {}
    for number in sorted(number for number in numbered if number >= first):
        version, *entries = numbered[number].read_text(encoding="utf-8").splitlines()
        if version != "v1":
            raise ValueError(f"the sink's log {numbered[number]} has the version {version!r}, not 'v1'")
        for entry in map(json.loads, entries):
            if entry["action"] == "add":
                found[entry["path"]] = None
            else:
                found.pop(entry["path"], None)
    return [Path(unquote(urlparse(path).path)) for path in found]


def sink_rows(sink: Path) -> Rows:
    """All rows of a sink, with their numbers."""
    rows: Rows = Counter()
    for file in committed_files(sink):
        table = pq.read_table(file)
        rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# The answer
# ----------------------------------------------------------------------------------------------------------------------

_BEST = """
    SELECT A.id AS a, B.id AS b, A.v AS av, B.v AS bv, A.k AS ak,
           abs(epoch_us(A.ts) - epoch_us(B.ts)) AS dt, abs(A.v - B.v) AS dv
    FROM A, B WHERE dt <= 3000000 AND dv <= 5"""
_BEATEN = "q.dt <= p.dt AND q.dv <= p.dv AND (q.dt < p.dt OR q.dv < p.dv)"
_NEAR = "abs(epoch_us({0}.ts) - epoch_us({1}.ts)) <= 4000000"

_SQL = {
    "theta, rows": """
        SELECT A.id, B.id, A.v, B.v FROM A JOIN B ON A.n // 25 = B.n // 25 AND A.v <= B.v AND B.v <= A.v + 3""",
    "theta, time, left": """
        SELECT A.id, B.id, A.v, B.v FROM A LEFT JOIN B
        ON epoch_us(A.ts) // 10000000 = epoch_us(B.ts) // 10000000 AND abs(A.v - B.v) <= 1""",
    "beside static, left": "SELECT A.id, S.name, A.v FROM A LEFT JOIN S ON A.v >= S.low AND A.v < S.high",
    "window, 3 inputs": f"""
        SELECT A.id, B.id, A.v, B.v, C.id, C.v FROM A JOIN B ON A.k = B.k JOIN C ON B.k = C.k
        WHERE {_NEAR.format("A", "B")} AND {_NEAR.format("A", "C")} AND {_NEAR.format("B", "C")}""",
    "window, full": """
        SELECT A.id, B.id, A.v, B.v FROM A FULL JOIN B
        ON A.k = B.k AND epoch_us(B.ts) - epoch_us(A.ts) BETWEEN -1000000 AND 2000000""",
    "best match, left": f"""
        WITH pairs AS ({_BEST}) SELECT a, b, av, bv FROM pairs p
        WHERE NOT EXISTS (FROM pairs q WHERE q.a = p.a AND {_BEATEN})""",
    "best match, inner": f"""
        WITH pairs AS ({_BEST} AND A.k = B.k) SELECT a, b, av, bv FROM pairs p
        WHERE NOT EXISTS (FROM pairs q WHERE q.ak = p.ak AND {_BEATEN})""",
    "shedding": f"""
        SELECT A.id, B.id, A.v, B.v, C.id, C.v FROM A, B, C
        WHERE abs(A.v - B.v) <= 8 AND abs(B.v - C.v) <= 8
        AND {_NEAR.format("A", "B")} AND {_NEAR.format("A", "C")} AND {_NEAR.format("B", "C")}""",
    "approx": "SELECT A.id, B.id, A.v, B.v FROM A JOIN B ON A.k = B.k",
    "aggregate": """
        SELECT A.id, A.v, count(B.id), sum(B.v)::BIGINT, max(B.v) FROM A LEFT JOIN B
        ON A.k = B.k AND epoch_us(B.ts) - epoch_us(A.ts) BETWEEN -3000000 AND 1000000 GROUP BY A.id, A.v""",
    "nearest, left": f"""
        WITH near AS (
            SELECT A.id AS a, B.id AS b, B.v AS bv, abs(A.v - B.v) AS far,
                   rank() OVER (PARTITION BY A.id ORDER BY abs(A.v - B.v)) AS place
            FROM A JOIN B ON A.k = B.k AND {_NEAR.format("A", "B")} AND A.v IS NOT NULL AND B.v IS NOT NULL)
        SELECT A.id, b, A.v, bv, far, place FROM A LEFT JOIN near ON A.id = a AND place <= 2""",
}


def answer(family: str, inputs: Path) -> Rows:
    """The whole join of the input files."""
    with duckdb.connect() as connection:
        for name in "ABC":
            # Rows are numbered in the order of arrival, over all files.
            connection.execute(
                f"""CREATE VIEW {name} AS SELECT *, row_number() OVER (ORDER BY id) - 1 AS n
                FROM read_json('{inputs / name}/*.json', format = 'newline_delimited', columns = {{
                    'id': 'BIGINT', 'k': 'BIGINT', 'v': 'BIGINT', 'ts': 'TIMESTAMPTZ'}})"""
            )
        connection.execute(f"CREATE VIEW S AS FROM read_parquet('{inputs}/S/*.parquet')")
        if family in _SQL:
            return Counter(connection.execute(_SQL[family]).fetchall())
        sides = {}
        for name in "AB":
            rows = connection.execute(f"SELECT id, k, v, epoch_us(ts) AS ts FROM {name}")
            columns = [column[0] for column in rows.description]
            sides[name] = [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]
    within = timedelta(seconds=5) // timedelta(microseconds=1)
    found = reference.asof_join(sides, by=["k"], time="ts", direction="nearest", how="left", within=within)
    pairs = [(one["A"], one["B"] or {}) for one in found]
    return Counter((a["id"], b.get("id"), a["v"], b.get("v")) for a, b in pairs)


# ----------------------------------------------------------------------------------------------------------------------
# The verdict
# ----------------------------------------------------------------------------------------------------------------------


def verify(family: str, inputs: Path, sink: Path, repeated: Path | None = None) -> Verdict:
    """Compare a sink with the answer; `repeated` is the sink of a run without kills, where the answer is a choice."""
    return judge(family, inputs, sink_rows(sink), None if repeated is None else sink_rows(repeated))


def judge(family: str, inputs: Path, found: Rows, repeated: Rows | None = None) -> Verdict:
    """Compare rows with the answer, wherever they were found."""
    wanted = answer(family, inputs)
    checks: dict[str, Callable[[Rows, Rows], list[str]]] = {
        "best match, inner": _changes, "shedding": _subset, "approx": _subset,
    }  # fmt: skip
    faults = checks.get(family, _same)(found, wanted)
    if repeated is not None:
        faults += [f"compared with the run without kills: {fault}" for fault in _same(found, repeated)]
    return Verdict(found.total(), tuple(faults))


def part_of_answer(family: str, inputs: Path, sink: Path) -> list[str]:
    """What is wrong with the sink of a query that did not come to its end: rows that are not so, or are there twice."""
    if not (sink / "_spark_metadata").is_dir():
        return []
    found = sink_rows(sink)
    if family == "best match, inner":
        # A pair may come that a better one beats later.
        return _changes_of_one(*_came_and_went(found))
    return _fault("not in the join, or twice", found - answer(family, inputs))


def _same(found: Rows, wanted: Rows) -> list[str]:
    # Rows that only move watermarks may or may not be final when the input ends; even so, none may come twice.
    twice = Counter({row: count for row, count in found.items() if _closing(row) and count > 1})
    found, wanted = (Counter({r: c for r, c in rows.items() if not _closing(r)}) for rows in (found, wanted))
    return [*_fault("lost", wanted - found), *_fault("too many", found - wanted), *_fault("twice", twice)]


def _subset(found: Rows, wanted: Rows) -> list[str]:
    faults = _fault("not in the join, or twice", found - wanted)
    return faults if found else [*faults, "nothing was found"]


def _changes(found: Rows, wanted: Rows) -> list[str]:
    """A log of changes: each pair comes at most once and goes at most once, and what stays is the answer."""
    came, went = _came_and_went(found)
    return [*_changes_of_one(came, went), *_same(came - went, wanted)]


def _came_and_went(found: Rows) -> tuple[Rows, Rows]:
    came, went = (
        Counter({row[:-1]: count for row, count in found.items() if row[-1] == change})
        for change in ("insert", "retract")
    )
    return came, went


def _changes_of_one(came: Rows, went: Rows) -> list[str]:
    many = Counter({row: n for counts in (came, went) for row, n in counts.items() if n > 1})
    return [*_fault("twice", many), *_fault("gone before it came", went - came)]


def _closing(row: Iterable[object]) -> bool:
    return any(isinstance(value, int) and value >= LAST for value in row)


def _fault(what: str, rows: Rows) -> list[str]:
    if not rows:
        return []
    shown = ", ".join(str(row) for row in islice(rows, 3))
    return [f"{rows.total()} rows {what}, such as {shown}"]
