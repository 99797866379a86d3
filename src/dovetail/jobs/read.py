"""Job file to job: every key checked, every message with its line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dovetail.errors import JobError, closest
from dovetail.jobs.calls import KINDS, call_arguments, join_keys
from dovetail.jobs.job import (
    AVAILABLE_NOW,
    BATCH_MODES,
    STREAM_MODES,
    Generate,
    Input,
    Job,
    Join,
    Mode,
    Output,
    Session,
)
from dovetail.jobs.marks import Node, Source, load, substituted
from dovetail.jobs.section import Section, as_choice, as_duration, as_mapping, as_text

_TOP = ("name", "mode", "variables", "generate", "spark", "inputs", "join", "output")
_INPUT = ("format", "path", "table", "schema", "options", "watermark", "select", "where", "static")
_OUTPUT = ("format", "path", "table", "options", "mode", "partition_by", "trigger", "checkpoint")
_FILES = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
_UNKEPT = ("console", "memory", "noop")
"""Sinks that keep nothing across a restart, so a checkpoint of theirs is worth nothing."""


def read_job(
    file: str | Path,
    *,
    text: str | None = None,
    variables: Mapping[str, str] | None = None,
    mode: Mode | None = None,
    once: bool = False,
) -> Job:
    """Read and check a job file.  Starts no Spark.

    Parameters
    ----------
    file
        The file; relative paths in it are relative to its folder.
    text
        What the file holds, if it has been read already.
    variables
        Values for ``${name}``; they win over those of the file.  ``${here}``, the folder of the file, and ``${tmp}``,
        the folder for temporary files, are always there.
    mode
        ``batch`` or ``stream``, instead of the mode of the file.
    once
        Whether a stream takes what is there and ends, whatever its trigger.

    Raises
    ------
    JobError
        With the file, the line, what was given, what is accepted, and a hint.
    """
    source = Source(str(file), _text_of(Path(file)) if text is None else text)
    raw = load(source)
    folder = Path(file).resolve().parent
    top = Section(substituted(raw, _values(raw, folder, variables or {})), "the job", _TOP)
    declared = top.choice("mode", ("batch", "stream"), "batch")
    runs: Mode = mode or ("stream" if declared == "stream" else "batch")
    listed = as_mapping(top.need("inputs", "{name: {format: ..., path: ...}}"), "inputs", "a mapping from names")
    inputs = {name: _input(node, name, folder, runs) for name, node in listed.items()}
    output = _output(top.need("output", "{format: parquet, path: ...}"), folder, declared, runs)
    if once:
        output = replace(output, trigger=AVAILABLE_NOW)
    return Job(
        name=top.text("name") or Path(file).stem,
        file=str(file),
        mode=runs,
        inputs=inputs,
        join=_join(top.need("join", "{sql: ...}, or {kind: theta, on: ...}"), inputs, runs),
        output=output,
        session=_session(top.get("spark")),
        generate=_generate(top.get("generate"), folder),
    )


def _values(raw: Node, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The variables: two that are always there, those of the file, which may use them, and those of the caller."""
    always = {"here": str(folder), "tmp": tempfile.gettempdir()}
    own = Section(raw, "the job", _TOP).get("variables")
    if own is None:
        return {**always, **given}
    defined = {"variables": substituted(own, {**always, **given})}
    section = Section(Node(raw.source, defined, own.line, own.column), "the job", ("variables",))
    return {**always, **section.options("variables"), **given}


def check_paths(job: Job) -> None:
    """Refuse a job whose local input folders are not there, before Spark starts."""
    for one in job.inputs.values():
        if one.path is None or _has_scheme(one.path) or re.search(r"[*?\[{,]", one.path):
            continue
        if not Path(one.path).exists():
            raise one.node.key_error(
                "path", f"inputs.{one.name}.path leads to {one.path}, and there is nothing",
                accepted="a file or folder, from the folder of the job file, or an address such as s3a://...",
                hint=_near(Path(one.path)),
            )  # fmt: skip


def _near(path: Path) -> str | None:
    folder = path.parent
    if not folder.is_dir():
        return f"{folder} does not exist either"
    return closest(path.name, [other.name for other in folder.iterdir()])


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise JobError(f"{path} is not a text in UTF-8", accepted="a job file in YAML") from None
    except OSError as error:
        near = (
            closest(path.name, [other.name for other in path.parent.glob("*.y*ml")]) if path.parent.is_dir() else None
        )
        raise JobError(f"{path} cannot be read: {error.strerror}", accepted="a job file in YAML", hint=near) from None


def _has_scheme(path: str) -> bool:
    return re.match(r"[a-zA-Z][\w+.-]*:", path) is not None


def _resolved(path: str | None, folder: Path) -> str | None:
    return path if path is None or _has_scheme(path) else str(folder / Path(path).expanduser())


def _place(section: Section, folder: Path) -> tuple[str | None, str | None, str | None]:
    """The format, path and table of an input or output."""
    table = section.text("table")
    if table is None:
        return section.needed_text("format", "parquet"), _resolved(section.text("path"), folder), None
    for key in ("format", "path"):
        if key in section:
            raise section.at(key, f"{section.name} has a table and a {key}", accepted="one of them")
    return None, None, table


def _input(node: Node, name: str, folder: Path, mode: Mode) -> Input:
    if not name.isidentifier():
        raise node.error(f"the input name {name!r}", accepted="letters, digits and underscores")
    section = Section(node, f"inputs.{name}", _INPUT)
    kind, path, table = _place(section, folder)
    if kind in _FILES and path is None:
        raise node.error(f"inputs.{name} has no path", hint=f"add path: folder/with/{kind}/files")
    schema = section.text("schema")
    static = section.flag("static")
    if mode == "stream" and not static and kind in _FILES and schema is None:
        raise section.at(
            "schema", f"inputs.{name} is a stream of {kind} files without a schema",
            accepted="a schema, such as schema: id long, ts timestamp", hint="or static: true, to read it once",
        )  # fmt: skip
    return Input(
        name, kind, path, table, schema, section.options("options"), *_watermark(section, static),
        section.texts("select"), section.text("where"), static, node,
    )  # fmt: skip


def _watermark(section: Section, static: bool) -> tuple[tuple[str, str] | None, str | None]:
    """The column and the delay of a watermark, and how far ahead of the clock a row may be."""
    node = section.get("watermark")
    if node is None:
        return None, None
    if static:
        raise section.at("watermark", f"{section.name} is static and has a watermark", accepted="one of them")
    accepted = "{column: ts, delay: 10 seconds}"
    if not isinstance(node.content, dict):
        raise node.error(f"{section.name}.watermark is {node.shown()}", accepted=accepted)
    inner = Section(node, f"{section.name}.watermark", ("column", "delay", "max_ahead"))
    ahead = inner.get("max_ahead")
    delay = as_duration(inner.need("delay", "10 seconds"), f"{inner.name}.delay")
    mark = inner.needed_text("column", "ts"), delay
    return mark, None if ahead is None else as_duration(ahead, f"{inner.name}.max_ahead")


def _join(node: Node, inputs: Mapping[str, Input], mode: Mode) -> Join:
    if not isinstance(node.content, dict):
        raise node.error(f"join is {node.shown()}", accepted="{sql: ...}, or {kind: theta, on: ..., ...}")
    has_sql, has_kind = "sql" in node.content, "kind" in node.content
    if has_sql == has_kind:
        raise node.key_error(
            "kind", f"join has {'both sql and kind' if has_sql else 'neither sql nor kind'}",
            accepted=f"sql: with a statement, or kind: with one of {', '.join(KINDS)}",
        )  # fmt: skip
    if has_sql:
        section = Section(node, "join", ("sql", "select"))
        return Join(
            section.needed_text("sql", "SELECT ..."), None, {n: n for n in inputs}, {}, section.texts("select"), node
        )
    kind = as_choice(node.content["kind"], "join.kind", KINDS)
    section = Section(node, "join", ("kind", "inputs", "select", *join_keys(kind)))
    aliases = _aliases(section, inputs)
    arguments = call_arguments(kind, section, tuple(aliases))
    if mode == "batch":
        # Static tables set no pace to keep up with: the same job on them is the exact join.
        arguments.pop("shed", None)
    return Join(None, kind, aliases, arguments, section.texts("select"), node)


def _aliases(section: Section, inputs: Mapping[str, Input]) -> dict[str, str]:
    """The aliases of the join: all inputs, a list of them, or a mapping from aliases to them."""
    node = section.get("inputs")
    if node is None:
        return {name: name for name in inputs}
    if isinstance(node.content, dict):
        pairs = [(alias, value) for alias, value in node.content.items()]
    elif isinstance(node.content, list):
        pairs = [(as_text(value, "join.inputs"), value) for value in node.content]
    else:
        raise node.error(f"join.inputs is {node.shown()}", accepted="a list of inputs, or a mapping from aliases")
    found = {}
    for alias, value in pairs:
        name = as_text(value, "join.inputs")
        if name not in inputs:
            raise value.error(
                f"join.inputs names {name!r}",
                accepted=f"one of the inputs {', '.join(inputs)}",
                hint=closest(name, inputs),
            )
        found[alias] = name
    return found


def _output(node: Node, folder: Path, declared: str, runs: Mode) -> Output:
    section = Section(node, "output", _OUTPUT)
    kind, path, table = _place(section, folder)
    if kind in _FILES and path is None:
        raise node.error("output has no path", hint=f"add path: folder/for/{kind}/files")
    for key in ("trigger", "checkpoint"):
        if key in section and declared == "batch" and runs == "batch":
            raise section.at(key, f"output has a {key}, and the job is a batch job", hint="add mode: stream to the job")
    checkpoint = _resolved(section.text("checkpoint"), folder)
    if runs == "stream" and checkpoint is None and kind not in _UNKEPT:
        raise section.at(
            "checkpoint", "output has no checkpoint, and a stream into " + (kind or "a table") + " needs one",
            accepted="a folder that belongs to this job alone", hint="add checkpoint: folder/of/checkpoint",
        )  # fmt: skip
    trigger = section.get("trigger")
    when = AVAILABLE_NOW
    if trigger is not None and trigger.content != AVAILABLE_NOW:
        if isinstance(trigger.content, str) and closest(trigger.content, [AVAILABLE_NOW]):
            raise trigger.error(
                f"output.trigger is {trigger.content!r}", accepted="available_now, or a length of time",
                hint=closest(trigger.content, [AVAILABLE_NOW]),
            )  # fmt: skip
        when = as_duration(trigger, "output.trigger")
    return Output(
        kind, path, table, section.options("options"), _modes(section, declared), section.texts("partition_by"), when,
        checkpoint, node,
    )  # fmt: skip


def _modes(section: Section, declared: str) -> dict[str, str]:
    """The output mode of a run in batch and in streaming: one word for the declared kind, or both."""
    words = {"batch": BATCH_MODES, "stream": STREAM_MODES}
    modes = {"batch": "error", "stream": "append"}
    node = section.get("mode")
    if node is None:
        return modes
    if isinstance(node.content, dict):
        both = Section(node, "output.mode", tuple(words))
        return {name: both.choice(name, words[name], modes[name]) for name in words}
    return {**modes, declared: as_choice(node, "output.mode", words[declared])}


def _session(node: Node | None) -> Session:
    if node is None:
        return Session()
    section = Section(node, "spark", ("master", "memory", "conf"))
    return Session(section.text("master"), section.text("memory"), section.options("conf"))


def _generate(node: Node | None, folder: Path) -> Generate | None:
    if node is None:
        return None
    from dovetail.datasets.files import DATASETS, sizes_of

    if not isinstance(node.content, dict):
        raise node.error(f"generate is {node.shown()}", accepted="{dataset: cameras, into: folder}")
    found = node.content.get("dataset")
    name = as_choice(found, "generate.dataset", DATASETS) if found else ""
    section = Section(node, "generate", ("dataset", "into", *(sizes_of(name) if name else ())))
    section.need("dataset", next(iter(DATASETS)))
    into = _resolved(section.needed_text("into", "folder/for/the/data"), folder)
    sizes = {}
    for key in section.content.keys() - {"dataset", "into"}:
        value = section.content[key]
        if isinstance(value.content, bool) or not isinstance(value.content, int):
            raise value.error(f"generate.{key} is {value.shown()}", accepted="a whole number")
        sizes[key] = value.content
    return Generate(name, str(into), sizes)
