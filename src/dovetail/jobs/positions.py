"""YAML whose every value remembers its position in the file.

PyYAML composes a tree of nodes with their lines and columns.  Nothing is constructed from tags, so a file can make no
objects.  Scalars follow YAML 1.2: ``on``, ``yes`` and ``12:30`` are text, which matters: ``on`` is a key of a join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import yaml

from dovetail.errors import JobError, at_position, closest

Scalar: TypeAlias = str | int | float | bool | None
Content: TypeAlias = "Scalar | list[Node] | dict[str, Node]"

_LARGEST = 10_000
"""Nodes of a file.  An alias counts as often as it occurs: an alias of aliases could fill the memory."""

_TAGS = ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
"""The tags that YAML itself gives to plain values; any other tag was written by hand."""

_INT = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
TOP = "the job"
"""What messages call the whole file."""

_UNQUOTED = re.compile(r"(?:\$\{[^}\s]*\}|:(?=[^\s,\]}])|[^\s,:\[\]{}\"'])+")
"""A value with a variable, as it stands in a line."""

_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>[^}]*)\})")


@dataclass(frozen=True)
class Source:
    """The text of a job file and its name, for messages that point at a line."""

    name: str
    text: str

    def error(
        self, line: int, column: int, given: str, *, accepted: str | None = None, hint: str | None = None
    ) -> JobError:
        """The error for a position in the file; lines and columns count from 1."""
        shown = f"{self.name}:{line}: {given}\n{at_position(self.text, line, column)}"
        return JobError(shown, accepted=accepted, hint=hint)


@dataclass(frozen=True)
class Node:
    """A value of the file, and its position there."""

    source: Source = field(repr=False, compare=False)
    content: Content
    line: int
    column: int
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False)
    """The line and column of each key of a mapping."""
    literal: bool = field(default=False, compare=False)
    """Whether the text is below its key, line by line, after a ``|``."""
    name: str = field(default=TOP, compare=False)
    """What messages call the value: the keys that lead to it, such as ``inputs.A.path``."""

    def line_of(self, number: int) -> int:
        """The line of the file that holds a line of this text, as far as that can be known."""
        return self.line + number if self.literal else self.line

    def error(self, given: str, *, accepted: str | None = None, hint: str | None = None) -> JobError:
        """The error for this value."""
        return self.source.error(self.line, self.column, given, accepted=accepted, hint=hint)

    def key_error(self, key: str, given: str, *, accepted: str | None = None, hint: str | None = None) -> JobError:
        """The error for a key of this mapping, or for the mapping where it lacks the key."""
        line, column = self.keys.get(key, (self.line, self.column))
        return self.source.error(line, column, given, accepted=accepted, hint=hint)

    def plain(self) -> object:
        """The value without positions."""
        if isinstance(self.content, dict):
            return {key: node.plain() for key, node in self.content.items()}
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        return self.content

    def shown(self) -> str:
        """The value as a message shows it."""
        if isinstance(self.content, dict):
            return "a mapping"
        return "a list" if isinstance(self.content, list) else repr(self.content)


def load(source: Source) -> Node:
    r"""Read the text of a job file.

    Examples
    --------
    >>> node = load(Source("job.yaml", "join:\n  on: A.x < B.x\n  partitions: 4\n"))
    >>> node.plain()
    {'join': {'on': 'A.x < B.x', 'partitions': 4}}
    >>> node.content["join"].keys["partitions"]
    (3, 3)
    """
    try:
        root = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        hint = "YAML indents with spaces only" if "\\t" in str(error.problem) else None
        hint = hint or _quote_hint(source.text, line, column) or "check indentation, colons and quotes"
        raise source.error(line, column, f"this is not YAML: {error.problem}", hint=hint) from None
    except RecursionError:
        raise source.error(1, 1, "values nested too deeply to be read", accepted="a few levels") from None
    except yaml.reader.ReaderError as error:
        line = source.text.count("\n", 0, error.position) + 1
        raise source.error(line, 1, f"a character that YAML does not allow: {error.reason}") from None
    if root is None:
        raise source.error(1, 1, "the file is empty", hint="see docs/jobs.md for a job file to start from")
    return _Reader(source).node(root, ())


def _quote_hint(text: str, line: int, column: int) -> str | None:
    """What to do where YAML stumbles over the brace of a variable: within ``{ }`` and ``[ ]`` it is one of its own."""
    row = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    if row[: column - 1][-1:] + row[column - 1 : column] != "${":
        return None
    for value in _UNQUOTED.finditer(row):
        if value.start() < column <= value.end():
            return f'within {{ }} and [ ] a value with ${{...}} needs quotes: "{value[0]}"'
    return None


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.made = 0

    def node(self, raw: yaml.Node, above: tuple[int, ...]) -> Node:
        line, column = raw.start_mark.line + 1, raw.start_mark.column + 1
        self.made += 1
        if self.made > _LARGEST or id(raw) in above:
            raise self.source.error(line, column, "aliases that repeat too much", accepted=f"{_LARGEST} values at most")
        tag = str(raw.tag).removeprefix("tag:yaml.org,2002:")
        if tag not in _TAGS:
            raise self.source.error(line, column, f"the tag {tag!r}", accepted="plain values, without tags")
        inside = (*above, id(raw))
        if isinstance(raw, yaml.MappingNode):
            return self.mapping(raw, inside, line, column)
        if isinstance(raw, yaml.SequenceNode):
            return Node(self.source, [self.node(item, inside) for item in raw.value], line, column)
        return Node(self.source, _scalar(raw), line, column, literal=getattr(raw, "style", None) == "|")

    def mapping(self, raw: yaml.MappingNode, inside: tuple[int, ...], line: int, column: int) -> Node:
        content: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        for name, value in raw.value:
            at = (name.start_mark.line + 1, name.start_mark.column + 1)
            if not isinstance(name, yaml.ScalarNode):
                raise self.source.error(*at, "a key that is not a word", accepted="key: value")
            node = self.node(value, inside)
            if name.value == "<<":
                merged.update(self.merged(node))
                continue
            if name.value in content:
                raise self.source.error(
                    *at, f"the key {name.value!r} is here twice", accepted="each key once",
                    hint=f"it is in line {keys[name.value][0]} already; remove one of them",
                )  # fmt: skip
            content[name.value], keys[name.value] = node, at
        for key, node in merged.items():
            keys.setdefault(key, (node.line, node.column))
        return Node(self.source, {**merged, **content}, line, column, keys)

    def merged(self, node: Node) -> dict[str, Node]:
        if not isinstance(node.content, dict):
            raise node.error(f"<<: {node.shown()}", accepted="an alias of a mapping, such as <<: *defaults")
        return node.content


def _scalar(raw: yaml.Node) -> Scalar:
    text = str(raw.value)
    if getattr(raw, "style", None) is not None:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def substituted(node: Node, variables: Mapping[str, str], name: str = TOP) -> Node:
    """The tree with ``${name}`` in its texts replaced, and each value named by its keys; ``$$`` is a dollar sign.

    Examples
    --------
    >>> node = substituted(load(Source("job.yaml", "output: {path: '${folder}/A'}")), {"folder": "/data"})
    >>> node.plain()
    {'output': {'path': '/data/A'}}
    >>> node.content["output"].content["path"].name
    'output.path'
    """
    content = node.content
    if isinstance(content, dict):
        prefix = "" if name == TOP else f"{name}."
        content = {key: substituted(value, variables, f"{prefix}{key}") for key, value in content.items()}
    elif isinstance(content, list):
        content = [substituted(value, variables, name) for value in content]
    elif isinstance(content, str):
        content = _VARIABLE.sub(lambda match: _value(node, match, variables), content)
    return replace(node, content=content, name=name)


def _value(node: Node, match: re.Match[str], variables: Mapping[str, str]) -> str:
    name = match["name"]
    if name is None:
        return "$"
    if name not in variables:
        raise node.error(
            f"no value for the variable ${{{name}}}",
            accepted=f"one of {', '.join(sorted(variables)) or '(none is defined)'}",
            hint=closest(name, variables) or f"give it with --set {name}=..., or under variables:",
        )
    return variables[name]
