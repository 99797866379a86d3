"""Job file to job: variables, the mode of the run, and the folders that must be there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dovetail.errors import JobError, closest
from dovetail.jobs.fields import Context, Mode, as_options, as_word, has_scheme, read_section, section_content
from dovetail.jobs.job import MODES, Job
from dovetail.jobs.positions import Node, Source, load, substituted


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
    file : str or Path
        The file; relative paths in it are relative to its folder.
    text : str, optional
        What the file holds, if it has been read already.
    variables : mapping of str to str, optional
        Values for ``${name}``; they win over those of the file.  ``${here}``, the folder of the file, and ``${tmp}``,
        the folder for temporary files, are always defined.
    mode : {"batch", "stream"}, optional
        The mode to run in, instead of the mode that the file names.
    once : bool, default False
        Whether a stream takes what is there and ends, whatever its trigger.

    Returns
    -------
    Job
        What the file says, checked.

    Raises
    ------
    JobError
        With the file, the line, what was given, what is accepted, and a hint.
    """
    source = Source(str(file), _text_of(Path(file)) if text is None else text)
    raw = load(source)
    section_content(raw, Job.keys())
    folder = Path(file).resolve().parent
    root = substituted(raw, _variables(raw, folder, variables or {}))
    content = section_content(root, Job.keys())
    given = content.get("mode")
    declared: Mode = "stream" if given and as_word(given, MODES) == "stream" else "batch"
    inputs = content["inputs"].content if "inputs" in content else None
    context = Context(
        folder=folder,
        declared=declared,
        mode=mode or declared,
        once=once,
        inputs=tuple(inputs) if isinstance(inputs, dict) else (),
    )
    defaults = {"name": replace(root, content=Path(file).stem), "spark": replace(root, content={}, name="spark")}
    chosen = {"mode": replace(root, content=context.mode)}
    return read_section(Job, replace(root, content={**defaults, **content, **chosen}), context)


def _variables(raw: Node, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The variables: two that are always defined, those of the file, which may use them, and those of the caller."""
    always = {"here": str(folder), "tmp": tempfile.gettempdir()}
    own = raw.content.get("variables") if isinstance(raw.content, dict) else None
    if own is None or own.content is None:
        return {**always, **given}
    return {**always, **as_options(substituted(own, {**always, **given}, "variables")), **given}


def check_paths(job: Job) -> None:
    """Refuse a job whose local input folders are not there, before Spark starts."""
    for source in job.inputs.values():
        if source.path is None or has_scheme(source.path) or re.search(r"[*?\[{,]", source.path):
            continue
        if not Path(source.path).exists():
            raise source.node.key_error(
                "path", f"{source.node.name}.path leads to {source.path}, and there is nothing",
                accepted="a file or folder, from the folder of the job file, or an address such as s3a://...",
                hint=_near(Path(source.path)),
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
