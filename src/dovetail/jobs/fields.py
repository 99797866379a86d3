"""The types of values in a job file, and sections whose keys are the fields of a class.

pydantic checks a section field by field.  What it is given are the nodes of the file, not bare values: whatever a
check refuses, it refuses with the line of the node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo, model_validator
from pydantic.dataclasses import dataclass, is_pydantic_dataclass
from pydantic.fields import FieldInfo

from dovetail.conditions.durations import duration
from dovetail.errors import DovetailError, JobError, closest
from dovetail.jobs.positions import Node

Mode = Literal["batch", "stream"]
CONFIG = ConfigDict(arbitrary_types_allowed=True)
_Section = TypeVar("_Section", bound="Section")


@plain_dataclass(frozen=True)
class Context:
    """What the values of a file depend on."""

    folder: Path
    """Relative paths begin here."""
    declared: Mode
    """The mode that the file names."""
    mode: Mode
    """The mode in which the job runs."""
    once: bool
    inputs: tuple[str, ...]
    """The names of all inputs."""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Section:
    """A mapping of the file.  Its keys are the fields of the class: any other key is refused with the nearest name.

    A key without a value counts as absent.  The message about a missing key quotes the field's ``examples``.
    """

    node: Node = field(repr=False, compare=False)
    EXAMPLE: ClassVar[str] = ""
    """What a message shows where the value is no mapping at all."""

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """The fields of the class, by the keys of the file."""
        assert is_pydantic_dataclass(cls)
        return {field.alias or name: field for name, field in cls.__pydantic_fields__.items() if name != "node"}

    @model_validator(mode="before")
    @classmethod
    def _values(cls, node: Node, info: ValidationInfo) -> dict[str, Any]:
        keys = cls.keys()
        content = section_content(node, keys, cls.EXAMPLE)
        for key, known in keys.items():
            if known.is_required() and key not in content:
                raise lacks(node, key, (known.examples or ["..."])[0])
        return {"node": node, **content}


def read_section(kind: type[_Section], node: Node, context: Context) -> _Section:
    """The section that a node of the file is; the first thing that is wrong with it is raised."""
    try:
        return TypeAdapter(kind).validate_python(node, context=context)
    except ValidationError as error:
        # Every check below raises an error with its line, which pydantic collects.
        refused = error.errors()[0].get("ctx", {}).get("error")
        raise refused if isinstance(refused, JobError) else node.error(str(error)) from None


def section_content(node: Node, keys: Iterable[str], example: str = "") -> dict[str, Node]:
    """The values of a mapping that are not empty, by key; keys other than `keys` are refused."""
    known = tuple(keys)
    if not isinstance(node.content, dict):
        raise node.error(
            f"{node.name} is {node.shown()}", accepted=example or f"a mapping with the keys {', '.join(known)}"
        )
    for key in node.content:
        if key not in known:
            raise node.key_error(
                key, f"{node.name} has no key {key!r}", accepted=", ".join(known), hint=closest(key, known)
            )
    return {key: value for key, value in node.content.items() if value.content is not None}


def lacks(node: Node, key: str, example: str) -> JobError:
    """The error for a mapping without a key that it must have."""
    return node.key_error(key, f"{node.name} lacks the key {key!r}", hint=f"add {key}: {example}")


def as_text(node: Node) -> str:
    """A plain value as text; Spark reads "true", not "True"."""
    value = node.content
    if isinstance(value, dict | list) or value is None:
        shown = node.shown() if value is not None else "empty"
        raise node.error(f"{node.name} is {shown}", accepted="a text or a number")
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_flag(node: Node) -> bool:
    """True or false."""
    if not isinstance(node.content, bool):
        raise node.error(f"{node.name} is {node.shown()}", accepted="true or false")
    return node.content


def as_whole_number(node: Node) -> int:
    """A whole number."""
    if isinstance(node.content, bool) or not isinstance(node.content, int):
        raise node.error(f"{node.name} is {node.shown()}", accepted="a whole number")
    return node.content


def as_word(node: Node, words: Iterable[str]) -> str:
    """One of some words."""
    known = tuple(words)
    if not isinstance(node.content, str) or node.content not in known:
        hint = closest(node.content, known) if isinstance(node.content, str) else None
        raise node.error(f"{node.name} is {node.shown()}", accepted=", ".join(known), hint=hint)
    return node.content


def as_duration(node: Node) -> str:
    """A length of time, as Spark takes it."""
    text = as_text(node)
    try:
        duration(text, argument=node.name)
    except ValueError:
        hint = f"say the unit: {text} seconds" if text.isdigit() else None
        raise node.error(
            f"{node.name} is {text!r}, which is no length of time",
            accepted="such as 10 seconds or 5 minutes",
            hint=hint,
        ) from None
    return text


def as_texts(node: Node) -> tuple[str, ...]:
    """A list of texts; one text is a list of one."""
    if isinstance(node.content, dict):
        raise node.error(f"{node.name} is a mapping", accepted="a list of texts")
    return tuple(as_text(item) for item in (node.content if isinstance(node.content, list) else [node]))


def as_options(node: Node) -> dict[str, str]:
    """A mapping from names to plain values, as Spark takes its options."""
    if not isinstance(node.content, dict):
        hint = f"{node.name.rpartition('.')[2]}: {{name: value, ...}}"
        raise node.error(f"{node.name} is {node.shown()}", accepted="a mapping", hint=hint)
    return {name: as_text(value) for name, value in node.content.items()}


def as_path(node: Node, info: ValidationInfo) -> str:
    """A path as it is if it has a scheme, and otherwise from the folder of the job file."""
    path = as_text(node)
    context = cast(Context, info.context)
    return path if has_scheme(path) else str(context.folder / Path(path).expanduser())


def has_scheme(path: str) -> bool:
    """Whether a path is an address such as ``s3a://bucket``.

    Examples
    --------
    >>> has_scheme("s3a://bucket/data"), has_scheme("data/A")
    (True, False)
    """
    return re.match(r"[a-zA-Z][\w+.-]*:", path) is not None


def made(node: Node, make: Callable[[], Any]) -> Any:
    """What `make` returns; what it refuses is an error of this line."""
    try:
        return make()
    except DovetailError as error:
        raise node.error(error.given, accepted=error.accepted, hint=error.hint) from None


_LINE_IN_SQL = re.compile(r"(?P<key>SQL|on), line (?P<line>\d+): ")


def refused(node: Node, key: str, what: str, error: DovetailError) -> JobError:
    """What a step of the job refuses, as an error of the line that asked for it.

    An error that knows its line within an SQL text gets the line of the file; it shows the position itself.
    """
    prefix = f"{what}: " if what else ""
    match = _LINE_IN_SQL.match(error.given)
    value = (node.content if isinstance(node.content, dict) else {}).get(match["key"].lower()) if match else None
    if match is None or value is None:
        return node.key_error(key, prefix + error.given, accepted=error.accepted, hint=error.hint)
    line = value.line_of(int(match["line"]))
    given = f"{node.source.name}:{line}: {prefix}{error.given[match.end() :]}"
    return JobError(given, accepted=error.accepted, hint=error.hint)


Text = Annotated[str, BeforeValidator(as_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(as_texts)]
Flag = Annotated[bool, BeforeValidator(as_flag)]
Duration = Annotated[str, BeforeValidator(as_duration)]
Location = Annotated[str, BeforeValidator(as_path)]
Options = Annotated[Mapping[str, str], BeforeValidator(as_options)]
