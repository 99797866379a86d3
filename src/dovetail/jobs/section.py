"""A mapping of a job file, asked key by key; what nobody asked for is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.conditions.durations import duration
from dovetail.errors import JobError, closest
from dovetail.jobs.marks import Node


class Section:
    """One mapping of the file.

    Parameters
    ----------
    node
        The mapping.
    name
        How messages call it, such as ``output`` or ``inputs.A``.
    keys
        All keys that it may have.
    """

    def __init__(self, node: Node, name: str, keys: Iterable[str]) -> None:
        if not isinstance(node.content, dict):
            raise node.error(f"{name} is {node.shown()}", accepted=f"a mapping with the keys {', '.join(keys)}")
        self.node = node
        self.name = name
        self.content = node.content
        known = tuple(keys)
        for key in self.content:
            if key not in known:
                raise node.key_error(
                    key, f"{name} has no key {key!r}", accepted=", ".join(known), hint=closest(key, known)
                )

    def __contains__(self, key: str) -> bool:
        return key in self.content

    def get(self, key: str) -> Node | None:
        """The value of a key; None where the key is absent or empty."""
        node = self.content.get(key)
        return None if node is None or node.content is None else node

    def need(self, key: str, example: str) -> Node:
        """The value of a key that must be there."""
        node = self.get(key)
        if node is None:
            raise self.node.key_error(key, f"{self.name} lacks the key {key!r}", hint=f"add {key}: {example}")
        return node

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text; a number is taken as it is written."""
        node = self.get(key)
        return default if node is None else as_text(node, self._called(key))

    def needed_text(self, key: str, example: str) -> str:
        """A text that must be there."""
        return as_text(self.need(key, example), self._called(key))

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        node = self.get(key)
        if node is None:
            return default
        if not isinstance(node.content, bool):
            raise node.error(f"{self._called(key)} is {node.shown()}", accepted="true or false")
        return node.content

    def choice(self, key: str, words: Iterable[str], default: str) -> str:
        """One of some words."""
        node = self.get(key)
        return default if node is None else as_choice(node, self._called(key), words)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        node = self.get(key)
        if node is None:
            return ()
        if isinstance(node.content, dict):
            raise node.error(f"{self._called(key)} is a mapping", accepted="a list of texts")
        items = node.content if isinstance(node.content, list) else [node]
        return tuple(as_text(item, self._called(key)) for item in items)

    def options(self, key: str) -> dict[str, str]:
        """A mapping from names to plain values, as Spark takes its options."""
        node = self.get(key)
        if node is None:
            return {}
        if not isinstance(node.content, dict):
            raise node.error(
                f"{self._called(key)} is {node.shown()}", accepted="a mapping", hint=f"{key}: {{name: value, ...}}"
            )
        return {name: as_text(value, f"{self._called(key)}.{name}") for name, value in node.content.items()}

    def at(self, key: str, given: str, *, accepted: str | None = None, hint: str | None = None) -> JobError:
        """The error for a key of this section."""
        return self.node.key_error(key, given, accepted=accepted, hint=hint)

    def _called(self, key: str) -> str:
        return f"{self.name}.{key}"


def as_text(node: Node, name: str) -> str:
    """A plain value as text; Spark reads "true", not "True"."""
    value = node.content
    if isinstance(value, dict | list) or value is None:
        raise node.error(f"{name} is {node.shown() if value is not None else 'empty'}", accepted="a text or a number")
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_choice(node: Node, name: str, words: Iterable[str]) -> str:
    """One of some words."""
    known = tuple(words)
    if not isinstance(node.content, str) or node.content not in known:
        hint = closest(node.content, known) if isinstance(node.content, str) else None
        raise node.error(f"{name} is {node.shown()}", accepted=", ".join(known), hint=hint)
    return node.content


def as_duration(node: Node, name: str) -> str:
    """A length of time, as Spark takes it."""
    text = as_text(node, name)
    try:
        duration(text, argument=name)
    except ValueError:
        hint = f"say the unit: {text} seconds" if text.isdigit() else None
        raise node.error(
            f"{name} is {text!r}, which is no length of time", accepted="such as 10 seconds or 5 minutes", hint=hint
        ) from None
    return text


def as_mapping(node: Node, name: str, accepted: str) -> Mapping[str, Node]:
    """A mapping with keys of the user's own."""
    if not isinstance(node.content, dict) or not node.content:
        raise node.error(f"{name} is {node.shown() if node.content else 'empty'}", accepted=accepted)
    return node.content
