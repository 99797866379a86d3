"""Random conjunctions: known parts in random spelling, and the same rows before and after."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from dovetail.conditions.forms import Band, Equality, Filter, Inequality, Predicate, Rest
from dovetail.conditions.predicates import parse

from .shapes import COLUMNS, parts

SIGNS = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "=": "__eq__"}
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
ALL = ["A.x", "A.y", "A.k", "B.x", "B.y", "B.k", "C.x", "C.z"]

columns = st.sampled_from(["A.x", "B.x"]) | st.sampled_from(ALL)  # the same pair often enough to merge bands
conjuncts = st.tuples(
    st.sampled_from(["compare", "difference", "absolute", "between", "unequal", "one"]),
    columns,
    columns,
    st.sampled_from(sorted(SIGNS)),
    st.integers(-3, 3),
    st.integers(-3, 3),
)


class Spelling:
    """Writes the same condition in one of many ways."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def wrap(self, text: str) -> str:
        return self._dice.choice([text, text, f"({text})", f"( {text} )", f"(({text}))"])

    def name(self, name: str) -> str:
        alias, column = (self._dice.choice([part, part.upper(), part.lower(), f"`{part}`"]) for part in name.split("."))
        return self.wrap(f"{alias}.{column}")

    def compare(self, left: str, sign: str, right: str) -> str:
        if self._dice.random() < 0.5:
            left, sign, right = right, MIRROR[sign], left
        sign = self._dice.choice(["=", "=="]) if sign == "=" else sign
        gap = self._dice.choice([" ", "", "\n", " /* and */ "])
        return self.wrap(f"{left}{gap}{sign}{gap}{right}")

    def join(self, texts: list[str]) -> str:
        joined = texts[0]
        for text in texts[1:]:
            joined = f"{joined} {self._dice.choice(['AND', 'and', 'And'])} {text}"
            joined = f"({joined})" if self._dice.random() < 0.3 else joined
        return joined

    def write(self, conjunct) -> str:
        kind, left, right, sign, low, high = conjunct
        difference = self.wrap(f"{self.name(left)} - {self.name(right)}")
        if kind == "compare":
            return self.compare(self.name(left), sign, self.name(right))
        if kind == "difference":
            return self.compare(difference, sign, self.wrap(str(low)))
        if kind == "absolute":
            return self.compare(f"ABS({difference})", "<=", self.wrap(str(high)))
        if kind == "between":
            return self.wrap(f"{difference} BETWEEN {low} AND {high}")
        if kind == "unequal":
            return self.wrap(f"{self.name(left)} <> {self.name(right)}")
        return self.compare(self.name(left), sign, str(low))


def holds(conjunct, row) -> bool:
    kind, left, right, sign, low, high = conjunct
    a, b = row[left], row[right]
    if kind in ("compare", "unequal"):
        return a != b if kind == "unequal" else getattr(a, SIGNS[sign])(b)
    if kind == "difference":
        return getattr(a - b, SIGNS[sign])(low)
    if kind == "absolute":
        return abs(a - b) <= high
    return low <= a - b <= high if kind == "between" else getattr(a, SIGNS[sign])(low)


def value(sql: str, row):
    return row[sql.replace("`", "")]


def found_holds(p: Predicate, row) -> bool:
    """The typed parts evaluated by what they mean; the others by a reading of their text."""
    for e in p.equalities:
        if value(e.left.sql, row) != value(e.right.sql, row):
            return False
    for i in p.inequalities:
        a, b = value(i.left.sql, row), value(i.right.sql, row)
        if not (a < b if i.strict else a <= b):
            return False
    for d in p.bands:
        gap = value(d.left.sql, row) - value(d.right.sql, row)
        if d.low is not None and not (gap > d.low.value if d.low.strict else gap >= d.low.value):
            return False
        if d.high is not None and not (gap < d.high.value if d.high.strict else gap <= d.high.value):
            return False
    return all(eval(python(part.sql), {"ABS": abs}, names(row)) for part in (*p.filters, *p.rests))


def python(sql: str) -> str:
    text = sql.replace("`", "").replace("<>", "!=").replace("==", "=").replace("=", "==")
    for sign in "<>!":
        text = text.replace(f"{sign}==", f"{sign}=")
    if "BETWEEN" in text:
        middle, bounds = text.split("BETWEEN")
        low, high = bounds.split("AND")
        text = f"{low} <= {middle} <= {high}"
    for name in ALL:
        text = text.replace(name, name.replace(".", "_"))
    return f"({text})"


def names(row):
    return {name.replace(".", "_"): number for name, number in row.items()}


def expected_kind(conjunct) -> type:
    kind, left, right, *_ = conjunct
    if kind == "one" or left[0] == right[0]:
        return Filter
    if kind == "unequal":
        return Rest
    return (Equality if conjunct[3] == "=" else Inequality) if kind == "compare" else Band


@given(st.lists(conjuncts, min_size=1, max_size=5), st.integers(0, 2**32))
def test_any_spelling_of_known_parts(chosen, seed):
    spelling = Spelling(seed)
    text = spelling.join([spelling.write(conjunct) for conjunct in chosen])
    p = parse(text, COLUMNS)

    assert {type(part) for part in parts(text)} == {expected_kind(conjunct) for conjunct in chosen}
    linked = {frozenset((c[1][0], c[2][0])) for c in chosen if expected_kind(c) in (Equality, Inequality, Band)}
    assert p.edges() == linked
    for a, b in itertools.combinations("ABC", 2):
        assert p.between(a, b).edges() <= {frozenset((a, b))}
    again = parse(p.sql, COLUMNS)
    assert (again.equalities, again.inequalities) == (p.equalities, p.inequalities)

    dice = random.Random(seed)
    for _ in range(25):
        row = {name: dice.randint(-3, 3) for name in ALL}
        # Bands over the same columns may be gathered in another order, but they mean the same.
        assert found_holds(p, row) == found_holds(again, row) == all(holds(conjunct, row) for conjunct in chosen), row
