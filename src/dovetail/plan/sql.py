"""The plan of a SQL statement: which joins Dovetail runs, and what each of them will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.plan import Plan
from dovetail.plan.selection import Travelling, columns_text, wide_line


@dataclass(frozen=True)
class JoinPlan:
    """A join of a SELECT that Dovetail runs."""

    family: str
    why: str
    plan: Plan


@dataclass(frozen=True)
class SelectPlan:
    """A SELECT of the statement: its line, the relations of its FROM, and who joins them."""

    line: int
    relations: tuple[str, ...]
    joins: tuple[JoinPlan, ...]
    why: str
    moved: tuple[str, ...] = ()
    """Conditions of WHERE that the joins evaluate."""
    travelling: Mapping[str, Travelling] = field(default_factory=dict)
    """The columns of each relation that the joins carry."""


@dataclass(frozen=True)
class StatementPlan:
    """What a statement will do; :meth:`text` puts it into words."""

    selects: tuple[SelectPlan, ...]
    streaming: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations of the joins that Dovetail runs."""
        return tuple(alias for select in self.selects for join in select.joins for alias in join.plan.inputs)

    @property
    def streams(self) -> frozenset[str]:
        """Those of them that are streams."""
        return frozenset(alias for select in self.selects for join in select.joins for alias in join.plan.streams)

    def text(self) -> str:
        """The plan as lines of text: each SELECT with FROM, in the order of the statement."""
        lines = [f"SQL statement, {'stream' if self.streaming else 'batch'}"]
        for select in sorted(self.selects, key=lambda select: select.line):
            where = f"  FROM in line {select.line}: {', '.join(select.relations)}"
            if not select.joins:
                lines.append(
                    f"{where}: Spark, because of this: {select.why}" if len(select.relations) > 1 else f"{where}: Spark"
                )
            for join in select.joins:
                lines.append(f"{where}: Dovetail ({join.family}): {join.why}")
                lines += [f"    {line}" for line in join.plan.text().splitlines()]
            if select.moved:
                lines.append(f"    from WHERE  {'; '.join(select.moved)}")
            if any(len(one.names) < one.of for one in select.travelling.values()):
                lines.append(f"    columns     {columns_text(select.travelling)}")
            wide = wide_line(
                {alias: one.of for alias, one in select.travelling.items() if len(one.names) == one.of},
                hint="in place of *",
            )
            if wide is not None:
                lines.append(f"  {wide}")
        lines.append("  all else: Spark")
        return "\n".join(lines)
