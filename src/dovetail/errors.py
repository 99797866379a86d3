"""The exceptions a user meets, and the wording they share.

Every message has the same three parts, in this order: what was given, what is accepted, a hint.  The
classes also derive from the built-in that a Python programmer would expect (``ValueError``, ``LookupError``,
``TypeError``), so code that knows nothing of Dovetail can still catch them sensibly.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class DovetailError(Exception):
    """Base of every error that Dovetail raises on purpose."""

    def __init__(self, given: str, *, accepted: str | None = None, hint: str | None = None) -> None:
        self.given = given
        self.accepted = accepted
        self.hint = hint
        lines = [given]
        if accepted:
            lines.append(f"  accepted: {accepted}")
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))

    def __str__(self) -> str:
        # LookupError and friends would otherwise show the repr of the message.
        return str(self.args[0])


class ArgumentError(DovetailError, ValueError):
    """An argument has a value that the function does not take."""


class PredicateError(DovetailError, ValueError):
    """A join condition cannot be read, or can be read in two ways."""


class StatementError(DovetailError, ValueError):
    """A SQL statement cannot be read, or asks for a join that does not exist."""


class UnknownNameError(DovetailError, LookupError):
    """An alias or a column that no input has."""


class UnsupportedTypeError(DovetailError, TypeError):
    """A column type that the operation cannot order, compare or carry."""


class UnboundedJoinError(DovetailError, ValueError):
    """A join whose state or output would grow without end."""


class SetupError(DovetailError, RuntimeError):
    """The machine lacks something that Dovetail needs, such as Java or an optional package."""


class CheckpointError(DovetailError, RuntimeError):
    """A checkpoint that another join or another version of Dovetail wrote."""


class MemoryLimitError(DovetailError, MemoryError):
    """Rows that must be in the memory of one worker together, and are more than it may hold."""


class JobError(DovetailError, ValueError):
    """A job file cannot be read, or asks for something that cannot be done; the message begins with file:line."""


def missing_extra(given: str, extra: str, *, otherwise: str | None = None) -> SetupError:
    """The error for a package that only an extra of the distribution installs.

    Parameters
    ----------
    given
        What needs which package.
    extra
        The name between the brackets.
    otherwise
        Another way to get the package.

    Examples
    --------
    >>> print(missing_extra("plots need matplotlib, which is not installed", "plots"))
    plots need matplotlib, which is not installed
      hint: pip install "dovetail-spark[plots]"
    """
    hint = f'pip install "dovetail-spark[{extra}]"'
    return SetupError(given, hint=f"{hint}, or {otherwise}" if otherwise else hint)


def listing(names: Iterable[str], limit: int = 20) -> str:
    """Names in a stable order, cut after `limit` so that a wide table does not bury the message."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:limit]) or "(none)"
    return shown if len(ordered) <= limit else f"{shown}, and {len(ordered) - limit} more"


def closest(name: str, names: Iterable[str]) -> str | None:
    """A hint that names the nearest spelling, or None where nothing is near."""
    folded = {candidate.casefold(): candidate for candidate in names}
    found = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean {folded[found[0]]!r}?" if found else None


def unknown_alias(alias: str, aliases: Iterable[str], *, where: str) -> UnknownNameError:
    """The error for an alias that is not among the inputs."""
    known = list(aliases)
    return UnknownNameError(
        f"{where} names the input {alias!r}, which is not among the inputs",
        accepted=f"one of the aliases {listing(known)}",
        hint=closest(alias, known),
    )


def unknown_column(column: str, alias: str, columns: Iterable[str], *, where: str) -> UnknownNameError:
    """The error for a column that an input does not have."""
    known = list(columns)
    return UnknownNameError(
        f"{where} names the column {alias}.{column}, which {alias!r} does not have",
        accepted=f"one of its columns {listing(known)}",
        hint=closest(column, known),
    )


def choice(argument: str, value: object, words: Iterable[str]) -> ArgumentError:
    """The error for a word that is not among the words an argument takes."""
    known = list(words)
    return ArgumentError(
        f"{argument}={value!r} is not a choice",
        accepted=", ".join(repr(word) for word in known),
        hint=closest(value, known) if isinstance(value, str) else None,
    )


LARGEST = 2**63 - 1
"""The largest whole number that the kernels and Spark can count with."""

MOST_PARTITIONS = 100_000


def is_whole(value: object, *, least: int = 1, most: int = LARGEST) -> bool:
    """Whether `value` is a whole number between two others; True and False are not.

    Examples
    --------
    >>> is_whole(3), is_whole(0), is_whole(True), is_whole(2.0), is_whole(2**63)
    (True, False, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def check_partitions(value: object) -> None:
    """Refuse what is neither a number of partitions nor None."""
    if value is not None and not is_whole(value, most=MOST_PARTITIONS):
        raise ArgumentError(
            f"partitions={value!r} is not a number of partitions",
            accepted=f"a whole number of at least 1 and at most {MOST_PARTITIONS:,}, or None for the session's "
            "spark.sql.shuffle.partitions",
        )


def at_position(text: str, line: int, column: int) -> str:
    """The line of `text` with a caret under the 1-based `column`."""
    rows = text.splitlines() or [""]
    row = rows[min(line, len(rows)) - 1]
    return f"    {row}\n    {' ' * (max(column, 1) - 1)}^"


def in_statement(
    text: str, offset: int, given: str, *, accepted: str | None = None, hint: str | None = None
) -> StatementError:
    """The error for a position in a SQL statement: its line, with a caret under the character at `offset`."""
    offset = min(max(offset, 0), len(text))
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    return StatementError(f"SQL, line {line}: {given}\n{at_position(text, line, column)}", accepted=accepted, hint=hint)


_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys in place of showing it, and marks that turn the direction of writing."""


def visible(text: str) -> str:
    r"""Text of a stranger as a terminal can show it: controls become question marks, lines and tabs stay.

    Examples
    --------
    >>> visible("a\x1b[2J\tb\n")
    'a?[2J\tb\n'
    """
    return _OBEYED.sub("?", text)
