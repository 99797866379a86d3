"""Random SQL statements that Spark itself can answer: the net under ``dt.sql``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.nets.conditions import AnyConditionWriter
from tests.nets.tables import NUMBERS, ORDERED, TIMES, Table

JOINS = ("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
OPERATORS = ("<", "<=", ">", ">=")


@dataclass
class Relation:
    """What a FROM clause names: the text, the alias, and the columns that can be reached through it."""

    text: str
    alias: str
    table: Table
    visible: bool = True


class _Forms(AnyConditionWriter):
    """Conditions over tables that have few columns: k stands for what they lack."""

    def column(self, alias: str, domains: Sequence[str]) -> str:
        """A column of an input."""
        return f"{alias}.{self.tables[alias].of(self.draw, tuple(domains)) or 'k'}"


@dataclass
class Writer:
    """Writes one statement over some tables; every choice comes from `draw`."""

    draw: random.Random
    tables: list[Table]
    ctes: list[str] = field(default_factory=list)

    def statement(self) -> str:
        """A query, perhaps with common table expressions, a set operation or a query around it."""
        query = self._query()
        shape = self.draw.random()
        if shape < 0.12:
            query = f"({query}) UNION ALL ({query})"
        elif shape < 0.2:
            query = f"SELECT * FROM ({query}) AS q"
        elif shape < 0.26:
            query = f"SELECT count(*) AS n FROM ({query}) q"
        heads = ", ".join(self.ctes)
        return f"WITH {heads} {query}" if heads else query

    def _relation(self, alias: str) -> Relation:
        table = self.draw.choice(self.tables)
        shape = self.draw.random()
        if shape < 0.7:
            text = table.name
        elif shape < 0.85:
            text = f"(SELECT * FROM {table.name} WHERE {table.of(self.draw, ('k',))} >= 0)"
        else:
            name = f"cte_{table.name}"
            head = f"{name} AS (SELECT * FROM {table.name})"
            if head not in self.ctes:
                self.ctes.append(head)
            text = name
        word = self.draw.choice([" ", " AS "])
        if self.draw.random() < 0.1:
            alias = f"`{alias} {alias}`"
        return Relation(f"{text}{word}{alias}", alias, table)

    def _query(self) -> str:
        relations = [self._relation("abc"[at]) for at in range(self.draw.choice([2, 2, 3, 3]))]
        text = relations[0].text
        comma = self.draw.random() < 0.1
        conditions: list[str] = []
        merged = False
        for at, relation in enumerate(relations[1:], start=1):
            earlier = [other for other in relations[:at] if other.visible]
            if comma:
                text += f", {relation.text}"
                conditions.append(self._condition(earlier, relation))
                continue
            join = self.draw.choice(JOINS)
            if self.draw.random() < 0.04:
                text += f" NATURAL {join} {relation.text}"
                merged = True
                relation.visible = "SEMI" not in join and "ANTI" not in join
                continue
            text += f" {join} {relation.text}"
            shape = self.draw.random()
            if shape < 0.15:
                text += " USING (k)"
                merged = True
            elif shape < 0.35:
                other = self.draw.choice(earlier)
                text += f" ON {other.alias}.k = {relation.alias}.k"
            else:
                text += f" ON {self._condition(earlier, relation)}"
            if "SEMI" in join or "ANTI" in join:
                relation.visible = False
        visible = [relation for relation in relations if relation.visible]
        if self.draw.random() < 0.25:
            conditions.append(self._filter(self.draw.choice(visible)))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {self._selected(visible, merged=merged)} FROM {text}{where}"

    def _selected(self, visible: list[Relation], *, merged: bool) -> str:
        shape = self.draw.random()
        if shape < 0.45:
            return "*"
        if shape < 0.6:
            return ", ".join(f"{relation.alias}.*" for relation in reversed(visible))
        if shape < 0.65:
            return "struct(*) AS everything, " + ", ".join(f"{relation.alias}.*" for relation in visible)
        if shape < 0.72 and merged:
            return "k, " + ", ".join(self._column(relation, ORDERED) for relation in visible)
        if shape < 0.8:
            return ", ".join(f"{self._column(relation, ORDERED)} AS c{at}" for at, relation in enumerate(visible))
        return ", ".join(self._column(relation, ORDERED) for relation in visible for _ in range(2))

    def _column(self, relation: Relation, domains: tuple[str, ...]) -> str:
        return f"{relation.alias}.{relation.table.of(self.draw, domains) or 'k'}"

    def _condition(self, earlier: list[Relation], relation: Relation) -> str:
        other = self.draw.choice(earlier)
        parts = [self._comparison(other, relation) for _ in range(self.draw.choice([1, 1, 2, 3]))]
        if self.draw.random() < 0.4:
            parts.insert(self.draw.randint(0, len(parts)), f"{other.alias}.k = {relation.alias}.k")
        if self.draw.random() < 0.15:
            parts.append(self._filter(self.draw.choice([other, relation])))
        return " AND ".join(parts)

    def _comparison(self, a: Relation, b: Relation) -> str:
        if self.draw.random() < 0.5:
            a, b = b, a
        if self.draw.random() < 0.4:
            return self._any_form(a, b)
        shape = self.draw.random()
        operator = self.draw.choice(OPERATORS)
        if shape < 0.45:
            return f"{self._column(a, NUMBERS)} {operator} {self._column(b, NUMBERS)}"
        if shape < 0.55:
            return f"{self._column(a, TIMES)} {operator} {self._column(b, TIMES)}"
        if shape < 0.65:
            return f"{self._column(a, ORDERED)} {operator} {self._column(b, ORDERED)}"
        if shape < 0.75:
            small = self.draw.choice(["1", "2.5", "0.1D", "3L"])
            return f"ABS({self._column(a, NUMBERS)} - {self._column(b, NUMBERS)}) <= {small}"
        if shape < 0.82:
            low = f"{self._column(b, NUMBERS)}"
            return f"{self._column(a, NUMBERS)} BETWEEN {low} AND {self._column(b, NUMBERS)}"
        if shape < 0.88:
            return f"{self._column(a, ORDERED)} <> {self._column(b, ORDERED)}"
        if shape < 0.92:
            return f"NOT ({self._column(a, NUMBERS)} >= {self._column(b, NUMBERS)})"
        if shape < 0.96:
            return f"({self._column(a, NUMBERS)} < {self._column(b, NUMBERS)} OR {a.alias}.k = {b.alias}.k)"
        return f"{self._column(a, NUMBERS)} + 1 < {self._column(b, NUMBERS)} * 2"

    def _any_form(self, a: Relation, b: Relation) -> str:
        """A tolerance by row, a sum, a distance, logic, or an equality of any type."""
        write = _Forms(self.draw, {one.alias: one.table for one in (a, b)}, any_case=False)
        forms = [write.tolerance, write.tolerance, write.addition, write.distance, write.logic, write.logic]
        return self.draw.choice([*forms, write.keys, write.keys])(a.alias, b.alias)

    def _filter(self, relation: Relation) -> str:
        return self.draw.choice(
            [
                f"{self._column(relation, ('k',))} IS NOT NULL",
                f"{self._column(relation, NUMBERS)} > 0",
                f"{self._column(relation, ('k',))} IN (1, 2, 3)",
            ]
        )
