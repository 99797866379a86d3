"""What a job file says, checked: frozen values that know no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dovetail.jobs.marks import Node

Mode = Literal["batch", "stream"]

BATCH_MODES = ("append", "overwrite", "ignore", "error")
STREAM_MODES = ("append", "update", "complete")
AVAILABLE_NOW = "available_now"


@dataclass(frozen=True)
class Input:
    """A source: a format with options or a table, and what is taken of it."""

    name: str
    format: str | None
    path: str | None
    table: str | None
    schema: str | None
    options: Mapping[str, str]
    watermark: tuple[str, str] | None
    """The column, and how late its rows may come."""
    max_ahead: str | None
    """How far ahead of the clock a row's time may be, where the watermark is to be guarded."""
    select: tuple[str, ...]
    where: str | None
    static: bool
    """Read once, also in a stream."""
    node: Node = field(repr=False, compare=False)


@dataclass(frozen=True)
class Join:
    """The join: an SQL statement, or the call of one of the functions."""

    sql: str | None
    kind: str | None
    inputs: Mapping[str, str]
    """Aliases of the call, and the inputs behind them."""
    arguments: Mapping[str, object]
    select: tuple[str, ...]
    node: Node = field(repr=False, compare=False)


@dataclass(frozen=True)
class Output:
    """A sink."""

    format: str | None
    path: str | None
    table: str | None
    options: Mapping[str, str]
    modes: Mapping[str, str]
    partition_by: tuple[str, ...]
    trigger: str
    """``available_now``, or the length of time between micro-batches."""
    checkpoint: str | None
    node: Node = field(repr=False, compare=False)


@dataclass(frozen=True)
class Session:
    """Settings of a session that the job starts itself."""

    master: str | None = None
    memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Generate:
    """Made-up data that is written before the job runs, unless it is there already."""

    dataset: str
    into: str
    arguments: Mapping[str, int]


@dataclass(frozen=True)
class Job:
    """A whole job file.

    Examples
    --------
    >>> from dovetail.jobs import read_job
    >>> text = '''
    ... inputs: {R: {format: parquet, path: r}, S: {format: parquet, path: s}}
    ... join: {kind: theta, on: R.x < S.y}
    ... output: {format: noop}
    ... '''
    >>> job = read_job("job.yaml", text=text)
    >>> job.mode, job.join.kind, list(job.inputs)
    ('batch', 'theta', ['R', 'S'])
    """

    name: str
    file: str
    mode: Mode
    inputs: Mapping[str, Input]
    join: Join
    output: Output
    session: Session
    generate: Generate | None

    def summary(self) -> list[tuple[str, str]]:
        """The job in lines of two columns: what, and how."""
        lines = [("job", f"{self.name}, {self.mode}")]
        for one in self.inputs.values():
            parts = [one.table or f"{one.format} {one.path or ''}".strip()]
            if self.mode == "stream" and one.static:
                parts.append("static")
            if self.mode == "stream" and one.watermark:
                guard = f", at most {one.max_ahead} ahead" if one.max_ahead else ""
                parts.append(f"watermark {one.watermark[0]}, {one.watermark[1]}{guard}")
            if one.where:
                parts.append(f"where {one.where}")
            lines.append((f"input {one.name}", "; ".join(parts)))
        lines.append(("join", "SQL" if self.join.sql else f"{self.join.kind} join of {', '.join(self.join.inputs)}"))
        out = self.output
        parts = [out.table or f"{out.format} {out.path or ''}".strip()]
        if self.mode == "stream" or out.format not in ("console", "noop"):
            # What is shown and not kept cannot be in the way of anything.
            parts.append("fails if it exists" if out.modes[self.mode].startswith("error") else out.modes[self.mode])
        if self.mode == "stream":
            parts.append("all that is there, then stop" if out.trigger == AVAILABLE_NOW else f"every {out.trigger}")
            parts.append(f"checkpoint {out.checkpoint}" if out.checkpoint else "no checkpoint")
        lines.append(("output", "; ".join(parts)))
        return lines
