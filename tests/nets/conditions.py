"""Conditions of every form, for the net of calls: tolerances by row, sums, distances, logic, keys of any type."""

from __future__ import annotations

from tests.nets.calls import COMPARED, SMALL, Writer
from tests.nets.tables import TIMES

EXACT = ("k", "c")
"""Numbers whose squares are the same in whatever order they are added."""


class AnyConditionWriter(Writer):
    """Writes what connects two inputs in any way that Spark can evaluate."""

    def connection(self, a: str, b: str, *, ordered: bool = False) -> str:
        """A condition over two inputs; `ordered` asks for an inequality or a band."""
        if ordered or self.draw.random() < 0.15:
            return super().connection(a, b, ordered=ordered)
        if self.draw.random() < 0.5:
            a, b = b, a
        forms = [self.tolerance, self.tolerance, self.addition, self.addition, self.distance, self.logic, self.logic]
        return self.draw.choice([*forms, self.keys, self.keys, self.of_time, self.opaque])(a, b)

    def sign(self) -> str:
        """A comparison."""
        return self.draw.choice(["<", "<=", ">", ">=", "<=", "="])

    def tolerance(self, a: str, b: str) -> str:
        """A difference, bounded by something of the row."""
        draw = self.draw
        gap = f"{self.column(a, SMALL)} - {self.column(b, SMALL)}"
        bound = self.column(draw.choice([a, b]), SMALL)
        return draw.choice(
            [
                f"ABS({gap}) <= {bound}",
                f"{bound} > abs({gap})",
                f"ABS({gap}) <= 0.5 * {bound}",
                f"ABS({gap}) BETWEEN 0 AND {bound} + 1",
                f"{gap} {self.sign()} {bound}",
                f"-({gap}) {self.sign()} {bound}",
                f"{gap} BETWEEN -{bound} AND {self.column(b, SMALL)}",
                f"{self.column(a, SMALL)} <= {self.column(b, SMALL)} * 1.1",
            ]
        )

    def addition(self, a: str, b: str) -> str:
        """A sum of values of both inputs."""
        total = f"{self.column(a, SMALL)} + {self.column(b, SMALL)}"
        return self.draw.choice(
            [
                f"{total} {self.sign()} 3",
                f"2.5 {self.sign()} {total}",
                f"{total} {self.sign()} {self.column(a, SMALL)}",
                f"{total} BETWEEN {self.column(a, SMALL)} AND {self.column(a, SMALL)}",
                f"{total} - {self.column(a, SMALL)} {self.sign()} {self.column(b, SMALL)} - 1",
                f"{self.column(b, SMALL)} {self.sign()} 5 - {self.column(a, SMALL)} - {self.column(b, SMALL)}",
            ]
        )

    def distance(self, a: str, b: str) -> str:
        """A distance in one to three dimensions."""
        draw = self.draw
        some = [EXACT, EXACT, EXACT] if draw.random() < 0.3 else [SMALL, SMALL, SMALL]
        gaps = [f"({self.column(a, kinds)} - {self.column(b, kinds)})" for kinds in some[: draw.randint(1, 3)]]
        squares = " + ".join(draw.choice([f"{gap} * {gap}", f"POW({gap}, 2)", f"power({gap}, 2)"]) for gap in gaps)
        bound = draw.choice(["2", "0", self.column(b, SMALL), self.column(a, SMALL)])
        sign = draw.choice(["<", "<="])
        forms = [
            f"{squares} {sign} {bound}",
            f"{squares} {sign} {bound} * {bound}",
            f"SQRT({squares}) {sign} {bound}",
            f"SQRT({squares}) {sign} {self.column(a, SMALL)} + {self.column(b, SMALL)}",
        ]
        if len(gaps) == 2:
            forms.append(f"hypot({gaps[0]}, {gaps[1]}) {sign} {bound}")
        return draw.choice(forms)

    def logic(self, a: str, b: str) -> str:
        """NOT, OR, and what amounts to them."""
        one, two = Writer.connection(self, a, b), self.connection(a, b)
        group = self.draw.choice(COMPARED)
        value, low, high = self.column(a, group), self.column(b, group), self.column(b, group)
        return self.draw.choice(
            [
                f"NOT ({one})",
                f"NOT ({one} AND {two})",
                f"NOT ({one} OR {two})",
                f"({one} OR {two})",
                f"({one} OR {two} OR {value} = {low})",
                f"{value} NOT BETWEEN {low} AND {high}",
                f"{value} <> {low}",
                f"{value} IN ({low}, {high})",
                f"{value} IN ({low}, {high}, {self.column(a, group)})",
                f"({one} OR {value} IN ({low}, {high}))",
                f"{value} NOT IN ({low}, {high})",
            ]
        )

    def keys(self, a: str, b: str) -> str:
        """Equalities of any type."""
        group, other = self.draw.choice(COMPARED), self.draw.choice(COMPARED)
        # Values of one domain each: Spark itself has no common type for tuples and arrays of others.
        first, second = ((self.column(a, (one,)), self.column(b, (one,))) for one in (group[-1], other[0]))
        text = f"CAST({self.column(a, ('k', 'sh'))} AS STRING)"
        return self.draw.choice(
            [
                f"{self.column(a, group)} <=> {self.column(b, group)}",
                f"{self.column(a, group)} IS NOT DISTINCT FROM {self.column(b, group)}",
                f"({first[0]}, {second[0]}) = ({first[1]}, {second[1]})",
                f"({first[0]}, {second[0]}) <=> ({first[1]}, {second[1]})",
                f"named_struct('p', {first[0]}) = named_struct('p', {first[1]})",
                f"array({first[0]}, {first[0]}) = array({first[1]}, {first[1]})",
                f"{self.column(a, ('ar',))} = {self.column(b, ('ar',))}",
                f"{self.column(a, ('st',))} <=> {self.column(b, ('st',))}",
                f"({first[0]}, {second[0]}) IN (({first[1]}, {second[1]}), ({first[0]}, {second[1]}))",
                f"array({first[0]}) < array({first[1]})",
                f"{text} {self.sign()} {self.column(b, ('k', 'i', 'l', 'd', 'c'))}",
                f"{text} <=> {self.column(b, ('k', 'i', 'l', 'd', 'c'))}",
                f"CAST({self.column(a, TIMES)} AS STRING) {self.sign()} {self.column(b, TIMES)}",
            ]
        )

    def of_time(self, a: str, b: str) -> str:
        """Times and lengths of time of both inputs."""
        first, second = self.column(a, TIMES), self.column(b, TIMES)
        length = self.column(self.draw.choice([a, b]), ("iv",))
        return self.draw.choice(
            [
                f"{first} - {second} {self.sign()} {length}",
                f"ABS({first} - {second}) <= {length}",
                f"{self.column(a, ('ts',))} - {self.column(b, ('iv',))} {self.sign()} {self.column(b, ('ts',))}",
                f"{self.column(a, ('iv',))} + {self.column(b, ('iv',))} {self.sign()} INTERVAL 30 MINUTES",
                f"{self.column(a, ('ts',))} BETWEEN {self.column(b, ('ts',))} - {self.column(b, ('iv',))} "
                f"AND {self.column(b, ('ts',))} + {self.column(b, ('iv',))}",
            ]
        )

    def opaque(self, a: str, b: str) -> str:
        """What only Spark can evaluate."""
        return self.draw.choice(
            [
                f"{self.column(a, ('k',))} * {self.column(b, ('k',))} > 1",
                f"concat({self.column(a, ('s',))}, {self.column(b, ('s',))}) RLIKE '^2.*2'",
                f"({self.column(a, ('k',))} + {self.column(b, ('k',))}) % 2 = 0",
                "TRUE",
            ]
        )
