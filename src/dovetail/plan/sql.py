"""The plan of a SQL statement: which joins Dovetail takes, and what each of them will do."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.plan import Plan


@dataclass(frozen=True)
class Taken:
    """A join that Dovetail takes out of a SELECT."""

    family: str
    why: str
    plan: Plan


@dataclass(frozen=True)
class Part:
    """A SELECT of the statement: its line, the relations of its FROM, and who joins them."""

    line: int
    relations: tuple[str, ...]
    taken: tuple[Taken, ...]
    why: str
    moved: tuple[str, ...] = ()
    """Conditions of WHERE that the joins have taken over."""


@dataclass(frozen=True)
class StatementPlan:
    """What a statement will do; :meth:`text` puts it into words."""

    parts: tuple[Part, ...]
    streaming: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """The relations of the joins that Dovetail takes."""
        return tuple(alias for part in self.parts for one in part.taken for alias in one.plan.inputs)

    @property
    def streams(self) -> frozenset[str]:
        """Those of them that are streams."""
        return frozenset(alias for part in self.parts for one in part.taken for alias in one.plan.streams)

    def text(self) -> str:
        """The plan as lines of text: each SELECT with FROM, in the order of the statement."""
        lines = [f"SQL statement, {'stream' if self.streaming else 'batch'}"]
        for part in sorted(self.parts, key=lambda one: one.line):
            where = f"  FROM in line {part.line}: {', '.join(part.relations)}"
            if not part.taken:
                lines.append(
                    f"{where}: Spark, because of this: {part.why}" if len(part.relations) > 1 else f"{where}: Spark"
                )
            for one in part.taken:
                lines.append(f"{where}: Dovetail ({one.family}): {one.why}")
                lines += [f"    {line}" for line in one.plan.text().splitlines()]
            if part.moved:
                lines.append(f"    from WHERE  {'; '.join(part.moved)}")
        lines.append("  all else: Spark")
        return "\n".join(lines)
