"""What a job file says: a class for each section, checked as it is read.  Nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator
from pydantic.dataclasses import dataclass

from dovetail.api.joins import JOINS
from dovetail.datasets.files import DATASETS, sizes_of
from dovetail.errors import DovetailError, JobError, closest
from dovetail.jobs.calls import call_arguments, join_keys
from dovetail.jobs.fields import (
    CONFIG,
    Context,
    Duration,
    Flag,
    Location,
    Mode,
    Options,
    Section,
    Text,
    Texts,
    as_duration,
    as_text,
    as_whole_number,
    as_word,
    lacks,
    refused,
    section_content,
)
from dovetail.jobs.positions import Node
from dovetail.statements.syntax.statement import check_frame_names, read_statement

AVAILABLE_NOW = "available_now"
MODES = {"batch": ("append", "overwrite", "ignore", "error"), "stream": ("append", "update", "complete")}
_DEFAULT_MODES = {"batch": "error", "stream": "append"}
_FILES = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
_UNKEPT = ("console", "memory", "noop")
"""Sinks that keep nothing across a restart, so a checkpoint of theirs is worth nothing."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Endpoint(Section):
    """Where rows come from or go to: a format with a path and options, or a table."""

    format: Text | None = None
    path: Location | None = None
    table: Text | None = None
    options: Options = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Endpoint:
        name = self.node.name
        if self.table is not None:
            for key in ("format", "path"):
                if key in self.node.keys:
                    raise self.node.key_error(key, f"{name} has a table and a {key}", accepted="one of them")
        elif self.format is None:
            raise lacks(self.node, "format", "parquet")
        elif self.format in _FILES and self.path is None:
            raise self.node.error(f"{name} has no path", hint=f"add path: folder/of/{self.format}/files")
        return self

    def __str__(self) -> str:
        return self.table or f"{self.format} {self.path or ''}".strip()


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Watermark(Section):
    """The time column of a stream, how late its rows may come, and how far ahead of the clock they may be."""

    EXAMPLE: ClassVar[str] = "{column: ts, delay: 10 seconds}"

    column: Text = Field(examples=["ts"])
    delay: Duration = Field(examples=["10 seconds"])
    max_ahead: Duration | None = None

    def __str__(self) -> str:
        guard = f", at most {self.max_ahead} ahead" if self.max_ahead else ""
        return f"watermark {self.column}, {self.delay}{guard}"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Input(Endpoint):
    """A source, and what is taken of it."""

    schema: Text | None = None
    watermark: Watermark | None = None
    select: Texts = ()
    where: Text | None = None
    static: Flag = False
    """Read once, also in a stream."""

    @property
    def name(self) -> str:
        """The name of the input."""
        return self.node.name.rpartition(".")[2]

    @model_validator(mode="after")
    def _fits_the_mode(self, info: ValidationInfo) -> Input:
        name = self.node.name
        if self.static and self.watermark is not None:
            raise self.node.key_error("watermark", f"{name} is static and has a watermark", accepted="one of them")
        streams = _context(info).mode == "stream" and not self.static
        if streams and self.format in _FILES and self.schema is None:
            raise self.node.key_error(
                "schema", f"{name} is a stream of {self.format} files without a schema",
                accepted="a schema, such as schema: id long, ts timestamp", hint="or static: true, to read it once",
            )  # fmt: skip
        return self

    def summary(self, mode: Mode) -> str:
        """The input in a line of words."""
        static, watermark = ("static" if self.static else "", self.watermark) if mode == "stream" else ("", None)
        parts = (str(self), static, watermark, f"where {self.where}" if self.where else "")
        return "; ".join(str(part) for part in parts if part)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Join(Section):
    """The join: an SQL statement, or the call of one of the functions."""

    sql: Text | None = None
    kind: str | None = None
    inputs: Mapping[str, str]
    """Aliases of the call, and the inputs behind them."""
    arguments: Mapping[str, Any]
    select: Texts = ()

    @model_validator(mode="before")
    @classmethod
    def _values(cls, node: Node, info: ValidationInfo) -> dict[str, Any]:
        if not isinstance(node.content, dict):
            raise node.error(f"join is {node.shown()}", accepted="{sql: ...}, or {kind: theta, on: ..., ...}")
        has_sql, has_kind = "sql" in node.content, "kind" in node.content
        if has_sql == has_kind:
            raise node.key_error(
                "kind", f"join has {'both sql and kind' if has_sql else 'neither sql nor kind'}",
                accepted=f"sql: with a statement, or kind: with one of {', '.join(JOINS)}",
            )  # fmt: skip
        context = _context(info)
        if has_sql:
            content = section_content(node, ("sql", "select"))
            if "sql" not in content:
                raise lacks(node, "sql", "SELECT ...")
            _check_statement(node, content["sql"], context.inputs)
            return {"node": node, "inputs": {name: name for name in context.inputs}, "arguments": {}, **content}
        kind = as_word(node.content["kind"], JOINS)
        content = section_content(node, ("kind", "inputs", "select", *join_keys(kind)))
        aliases = _aliases(content.get("inputs"), context.inputs)
        arguments = call_arguments(kind, node, tuple(aliases))
        if context.mode == "batch":
            # Static tables set no pace to keep up with: the same job on them is the exact join.
            arguments.pop("shed", None)
        select = {"select": content["select"]} if "select" in content else {}
        return {"node": node, "kind": kind, "inputs": aliases, "arguments": arguments, **select}


def _check_statement(node: Node, given: Node, inputs: tuple[str, ...]) -> None:
    """Refuse a statement that cannot be read, or that does not name the inputs: neither takes Spark to find out."""
    try:
        statement = read_statement(as_text(given))
        if statement.unread is not None:
            raise statement.unread  # a job has a clause of ours to run, or it needs no Dovetail
        check_frame_names(statement, inputs)
    except JobError:
        raise
    except DovetailError as error:
        raise refused(node, "sql", "join.sql", error) from None


def _aliases(node: Node | None, inputs: tuple[str, ...]) -> dict[str, str]:
    """The aliases of a join: all inputs, a list of them, or a mapping from aliases to them."""
    if node is None:
        return {name: name for name in inputs}
    if isinstance(node.content, dict):
        pairs = list(node.content.items())
    elif isinstance(node.content, list):
        pairs = [(as_text(value), value) for value in node.content]
    else:
        raise node.error(f"{node.name} is {node.shown()}", accepted="a list of inputs, or a mapping from aliases")
    for _, value in pairs:
        name = as_text(value)
        if name not in inputs:
            accepted = f"one of the inputs {', '.join(inputs)}"
            raise value.error(f"join.inputs names {name!r}", accepted=accepted, hint=closest(name, inputs))
    return {alias: as_text(value) for alias, value in pairs}


def _modes(node: Node, info: ValidationInfo) -> dict[str, str]:
    """The output mode of a run in batch and in streaming: one word for the declared kind, or both."""
    if isinstance(node.content, dict):
        given = section_content(node, MODES)
        return {**_DEFAULT_MODES, **{mode: as_word(word, MODES[mode]) for mode, word in given.items()}}
    declared = _context(info).declared
    return {**_DEFAULT_MODES, declared: as_word(node, MODES[declared])}


def _trigger(node: Node, info: ValidationInfo) -> str:
    if _context(info).once or node.content == AVAILABLE_NOW:
        return AVAILABLE_NOW
    near = closest(node.content, [AVAILABLE_NOW]) if isinstance(node.content, str) else None
    if near is not None:
        accepted = "available_now, or a length of time"
        raise node.error(f"{node.name} is {node.content!r}", accepted=accepted, hint=near)
    return as_duration(node)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Output(Endpoint):
    """A sink, and how it is written to."""

    modes: Annotated[Mapping[str, str], BeforeValidator(_modes)] = Field(
        default_factory=lambda: dict(_DEFAULT_MODES), alias="mode"
    )
    partition_by: Texts = ()
    trigger: Annotated[str, BeforeValidator(_trigger)] = AVAILABLE_NOW
    """``available_now``, or the length of time between micro-batches."""
    checkpoint: Location | None = None

    @model_validator(mode="after")
    def _fits_the_mode(self, info: ValidationInfo) -> Output:
        context = _context(info)
        for key in ("trigger", "checkpoint"):
            if key in self.node.keys and context.declared == "batch" and context.mode == "batch":
                given = f"output has a {key}, and the job is a batch job"
                raise self.node.key_error(key, given, hint="add mode: stream to the job")
        if context.mode == "stream" and self.checkpoint is None and self.format not in _UNKEPT:
            raise self.node.key_error(
                "checkpoint", f"output has no checkpoint, and a stream into {self.format or 'a table'} needs one",
                accepted="a folder that belongs to this job alone", hint="add checkpoint: folder/of/checkpoint",
            )  # fmt: skip
        return self

    def summary(self, mode: Mode) -> str:
        """The output in a line of words."""
        parts = [str(self)]
        if mode == "stream" or self.format not in ("console", "noop"):
            # What is shown and not kept cannot be in the way of anything.
            parts.append("fails if it exists" if self.modes[mode].startswith("error") else self.modes[mode])
        if mode == "stream":
            parts.append("all that is there, then stop" if self.trigger == AVAILABLE_NOW else f"every {self.trigger}")
            parts.append(f"checkpoint {self.checkpoint}" if self.checkpoint else "no checkpoint")
        return "; ".join(parts)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Session(Section):
    """Settings of a session that the job starts itself."""

    master: Text | None = None
    driver_memory: Text | None = None
    conf: Options = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Generate(Section):
    """Made-up data that is written before the job runs, unless it is there already."""

    EXAMPLE: ClassVar[str] = "{dataset: cameras, into: folder}"

    dataset: str
    into: Location
    arguments: Mapping[str, int]

    @model_validator(mode="before")
    @classmethod
    def _values(cls, node: Node, info: ValidationInfo) -> dict[str, Any]:
        given = node.content.get("dataset") if isinstance(node.content, dict) else None
        dataset = as_word(given, DATASETS) if given else None
        sizes = sizes_of(dataset) if dataset else ()
        content = section_content(node, ("dataset", "into", *sizes), cls.EXAMPLE)
        for key, example in (("dataset", next(iter(DATASETS))), ("into", "folder/for/the/data")):
            if key not in content:
                raise lacks(node, key, example)
        arguments = {key: as_whole_number(content[key]) for key in sizes if key in content}
        return {"node": node, "dataset": dataset, "into": content["into"], "arguments": arguments}


def _named(node: Node) -> dict[str, Node]:
    if not isinstance(node.content, dict) or not node.content:
        raise node.error(f"inputs is {node.shown() if node.content else 'empty'}", accepted="a mapping from names")
    for name, value in node.content.items():
        if not name.isidentifier():
            raise value.error(f"the input name {name!r}", accepted="letters, digits and underscores")
    return node.content


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Job(Section):
    """A job file.

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

    name: Text
    mode: Annotated[Mode, BeforeValidator(as_text)]
    """The mode in which the job runs."""
    variables: Options = Field(default_factory=dict)
    generate: Generate | None = None
    session: Session = Field(alias="spark")
    inputs: Annotated[Mapping[str, Input], BeforeValidator(_named)] = Field(
        examples=["{name: {format: ..., path: ...}}"]
    )
    join: Join = Field(examples=["{sql: ...}, or {kind: theta, on: ...}"])
    output: Output = Field(examples=["{format: parquet, path: ...}"])

    def summary(self) -> list[tuple[str, str]]:
        """The job in lines of two columns: what, and how."""
        inputs = [(f"input {name}", given.summary(self.mode)) for name, given in self.inputs.items()]
        join = "SQL" if self.join.sql else f"{self.join.kind} join of {', '.join(self.join.inputs)}"
        heading = ("job", f"{self.name}, {self.mode}")
        return [heading, *inputs, ("join", join), ("output", self.output.summary(self.mode))]


def _context(info: ValidationInfo) -> Context:
    return cast(Context, info.context)
