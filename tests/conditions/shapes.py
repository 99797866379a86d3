"""Columns, terms and the parts of a condition."""

from __future__ import annotations

from dovetail.conditions.forms import Term
from dovetail.conditions.predicates import parse

COLUMNS = {
    "A": ["x", "y", "k", "ts", "s", "tags", "m", "end", "only_a", "1L", "we ird`x"],
    "B": ["x", "y", "k", "ts", "s", "lo", "hi", "end", "and"],
    "C": ["x", "z"],
}


def term(name: str) -> Term:
    alias, column = name.split(".")
    return Term(alias, f"`{alias}`.`{column}`")


AX, AY, AK, ATS = (term(name) for name in ("A.x", "A.y", "A.k", "A.ts"))
BX, BY, BK, BTS = (term(name) for name in ("B.x", "B.y", "B.k", "B.ts"))


def parts(text: str) -> list:
    p = parse(text, COLUMNS)
    assert p.text == text
    return [*p.equalities, *p.inequalities, *p.bands, *p.filters, *p.rests]


def only(text: str):
    (part,) = parts(text)
    return part
