"""Which columns of the inputs some texts may mean, so that the others need not travel.

It reads words and never names too few: a column too many costs time, one too few would be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

_WORD = re.compile(r"\w+")
_QUALIFIER = re.compile(r"(?:(\w+)|`((?:[^`]|``)*)`)\s*\.\s*`?$")


def mentioned(texts: Iterable[str], columns: Mapping[str, Sequence[str]], *, stars: bool = True) -> dict[str, set[str]]:
    """The columns of each input that some texts may mean: those whose names stand there bare or behind their alias.

    It reads words, not SQL, so what stands in a string or a comment counts, too: a column too many costs time, one too
    few would be missing.  ``t.*`` means all columns of t; with `stars`, a bare asterisk means those of all inputs.

    Examples
    --------
    >>> found = mentioned(["t.id = q.Ref AND size > 1"], {"t": ["id", "ref", "size"], "q": ["id", "ref"]})
    >>> {alias: sorted(names) for alias, names in found.items()}
    {'t': ['id', 'size'], 'q': ['ref']}
    """
    found: dict[str, set[str]] = {alias: set() for alias in columns}
    owners: dict[str, list[tuple[str, str]]] = {}
    odd: list[tuple[str, str]] = []
    for alias, names in columns.items():
        for name in names:
            if _WORD.fullmatch(name):
                owners.setdefault(name.casefold(), []).append((alias, name))
            else:
                odd.append((alias, name))
    for text in texts:
        for alias in columns if "*" in text else ():
            if _has_star(text, alias, bare=stars):
                found[alias].update(columns[alias])
        for word in _WORD.finditer(text):
            for alias, name in owners.get(word[0].casefold(), ()):
                if _may_belong(text, word.start(), alias):
                    found[alias].add(name)
        folded = text.casefold()
        for alias, name in odd:
            if name.casefold() in folded or name.replace("`", "``").casefold() in folded:
                found[alias].add(name)
    return found


def _may_belong(text: str, start: int, alias: str) -> bool:
    """Whether the name that starts there may be one of the input: nothing else is in front of it."""
    before = text[max(0, start - 300) : start].rstrip("` \t\r\n")
    if not before.endswith("."):
        return True
    qualifier = _QUALIFIER.search(before)
    if qualifier is None:
        return True
    return (qualifier[1] or qualifier[2].replace("``", "`")).casefold() == alias.casefold()


def _has_star(text: str, alias: str, *, bare: bool) -> bool:
    """Whether an asterisk may stand for the columns of an input: ``alias.*``, or ``*`` but in ``count(*)``."""
    for star in re.finditer(r"\*", text):
        before = text[: star.start()].rstrip()
        if before.endswith("."):
            if _may_belong(text, star.start(), alias):
                return True
        elif not bare:
            continue
        elif not before or before.endswith(",") or re.search(r"(?i)(?<!\bcount)\s*\($", before):
            return True
    return False


def stands_alone(alias: str, text: str) -> bool:
    """Whether an input may be meant as a whole: its alias stands there, and no column of it behind a dot.

    Examples
    --------
    >>> stands_alone("t", "struct(t, q.id)"), stands_alone("t", "t.id + q.t"), stands_alone("t", "t.*")
    (True, False, True)
    """
    name = re.escape(alias)
    found = re.search(rf"(?i)(?:(?<!\.)`{name}`|(?<![\w.`]){name}(?![\w`]))(?!\s*\.\s*[^\s*])", text)
    return found is not None


def texts_of(value: object) -> Iterator[str]:
    """All texts in an argument: itself, or those of its parts.

    Examples
    --------
    >>> list(texts_of({"a": ["x", 1], "b": ("y", None)}))
    ['a', 'x', 'b', 'y']
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts_of(key)
            yield from texts_of(inner)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for inner in value:
            yield from texts_of(inner)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from texts_of(getattr(value, name))
