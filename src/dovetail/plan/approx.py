"""The plan of an approximate join: the one place that decides how it runs."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dovetail.conditions.comparison import Comparison, Key, KeyType, Kind, build_step
from dovetail.conditions.forms import Equality, Predicate, Term
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, PredicateError, listing
from dovetail.families.approx.spec import STRATA, ApproxSpec, Edge, Options, cell_count
from dovetail.plan.theta import Facts

RESERVED = "sampling"
"""The column beside the aliases that says how a result was sampled."""

_TWO = ("prob", "prob_hash", "arrpj")
_KEEPS = {
    "exact": "every row; the query fails if they exceed the memory",
    "prob": "the rows whose join value the other input brings most often",
    "prob_hash": "the rows whose join value the other input brings most often",
    "arrpj": "the rows of join values with the most results for each row held",
    "raj": "a uniform sample of every input",
    "raj_hash": "a uniform sample of every stratum of every input, and never none of it",
}


@dataclass(frozen=True)
class ApproxPlan:
    """What a call will do; :meth:`text` puts it into words."""

    inputs: tuple[str, ...]
    streams: frozenset[str]
    predicate: Predicate
    filters: tuple[tuple[str, str], ...]
    rests: tuple[str, ...]
    options: Options
    value: tuple[tuple[Key, ...], ...]
    """For each input the keys that make up the common join value."""
    keys: tuple[tuple[Key, ...], ...]
    kinds: tuple[Kind, ...]
    edges: tuple[Edge, ...]
    cells: int
    partitions: int
    """Shuffle partitions of a batch join: a cell is never divided, so more than cells would stay empty."""

    @property
    def balanced(self) -> bool:
        """Whether the rows of the cells are counted first, so that memory can follow them."""
        return not self.streams and self.cells > 1 and self.options.balance and self.options.memory is not None

    def spec(self, payload: tuple[int, ...], types: tuple[tuple[pa.DataType, ...], ...]) -> ApproxSpec:
        """The kernel's description of the join, for inputs with so many columns of these types."""
        options = self.options
        return ApproxSpec(
            aliases=self.inputs,
            payload=payload,
            keys=self.keys,
            value=tuple(
                tuple(self.keys[at].index(key) for key in keys) for at, keys in enumerate(self.value)
            ),
            kinds=self.kinds,
            edges=self.edges,
            policy=options.policy,
            memory=options.memory,
            allocation=options.allocation,
            seed=options.seed,
            strata=options.strata or STRATA,
            cells=self.cells,
            types=types,
            detail=options.detail,
        )  # fmt: skip

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        options = self.options
        kind = "stream" if self.streams else "batch"
        rows = [
            ("inputs", ", ".join(self.inputs)),
            ("memory", "unlimited" if options.memory is None else f"{options.memory}, {self._shares()}"),
            ("keeps", _KEEPS[options.policy]),
            ("random", f"seed {options.seed}"),
            ("meets", self._meets()),
            ("routing", self._routing()),
        ]
        rows += [("first", f"{alias} keeps rows where {bare(sql)}") for alias, sql in self.filters]
        if self.rests:
            rows.append(("then", f"Spark evaluates {bare(' AND '.join(self.rests))} on what the kernel finds"))
        head = f"approximate join, {kind}, policy={options.policy!r}"
        return "\n".join([head, *[f"  {name:<10}  {text}" for name, text in rows]])

    def identity(self) -> dict[str, str]:
        """What a stream may not change between two runs on one checkpoint; the first seed goes on in any case."""
        options = self.options
        return {
            "join": "an approximate join",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "policy": options.policy,
            "memory": "" if options.memory is None else str(options.memory),
            "allocation": options.allocation,
            "number of strata": str(options.strata or STRATA),
            "number of cells": str(self.cells),
        }

    def _shares(self) -> str:
        if self.cells == 1:
            return "all in one cell"
        how = "in proportion to their rows, which are counted first" if self.balanced else "in equal parts"
        return f"shared by {self.cells} cells {how}"

    def _meets(self) -> str:
        parts = [" = ".join(key.sql for key in keys) for keys in zip(*self.value, strict=True)]
        checked = [bare(part.sql) for part in self.predicate.inequalities]
        checked += [bare(part.sql) for part in self.predicate.bands]
        if not parts:
            return f"{' AND '.join(checked)}, checked against every held row"
        value = bare(" AND ".join(parts))
        return f"{value}, by its value" + (f"; {' AND '.join(checked)} checked" if checked else "")

    def _routing(self) -> str:
        return (
            f"the hash of the join value chooses one of {self.cells} cells" if self.value[0] else "all rows to one cell"
        )


def plan_approx(inputs: tuple[str, ...], predicate: Predicate, facts: Facts, options: Options) -> ApproxPlan:
    """Decide how an approximate join runs, or say why it cannot."""
    _check_inputs(inputs, facts, options)
    value, kinds, left_over = _common_value(inputs, facts)
    edges = _edges(inputs, left_over, facts)
    _check_condition(inputs, value, edges, options)
    cells = cell_count(options.memory, len(inputs), options.cells) if value[0] else 1
    _check_cells(cells, value, inputs, options)
    keys: list[list[Key]] = [list(dict.fromkeys(part)) for part in value]
    for edge in edges:
        for side, wanted in ((edge.point, edge.step.point_keys), (edge.box, edge.step.box_keys)):
            keys[side] += [key for key in dict.fromkeys(wanted) if key not in keys[side]]
    return ApproxPlan(
        inputs=inputs,
        streams=facts.streams,
        predicate=predicate,
        filters=tuple((f.alias, f.sql) for f in predicate.filters),
        rests=tuple(rest.sql for rest in predicate.rests),
        options=options,
        value=value,
        keys=tuple(tuple(part) for part in keys),
        kinds=kinds,
        edges=edges,
        cells=cells,
        partitions=min(cells, facts.shuffle_partitions),
    )


def _check_inputs(inputs: tuple[str, ...], facts: Facts, options: Options) -> None:
    static = [alias for alias in inputs if alias not in facts.streams]
    if static and facts.streams:
        raise ArgumentError(
            f"the static input(s) {listing(static)} beside the stream(s) {listing(facts.streams)}",
            accepted="inputs that are all streams or all static",
            hint="a stream and a static table join in Spark without any state: stream.join(table, ...)",
        )
    if len(inputs) > 2 and options.policy in _TWO:
        raise ArgumentError(
            f"policy={options.policy!r} with {len(inputs)} inputs",
            accepted="two inputs, or policy='raj_hash', 'raj' or 'exact'",
            hint="with more inputs it is not clear whose arrivals a row should be kept for",
        )
    for alias in inputs:
        if alias.casefold() == RESERVED:
            raise ArgumentError(
                f"the alias {alias!r} is the name of the column that describes the sample", accepted="another alias"
            )


def _common_value(
    inputs: tuple[str, ...], facts: Facts
) -> tuple[tuple[tuple[Key, ...], ...], tuple[Kind, ...], list[tuple[Equality, KeyType]]]:
    """The keys that all inputs are equal in, and the equalities that they do not cover."""
    value: list[list[Key]] = [[] for _ in inputs]
    kinds: list[Kind] = []
    left_over: list[tuple[Equality, KeyType]] = []
    for members in _classes(facts.equalities):
        chosen: dict[str, Term] = {}
        for equality, _ in members:
            for term in (equality.left, equality.right):
                chosen.setdefault(term.alias, term)
        types = {kind for _, kind in members}
        if len(types) > 1 or set(chosen) != set(inputs):
            left_over += members
            continue
        (kind,) = types
        for at, alias in enumerate(inputs):
            value[at].append(Key(chosen[alias].sql, kind.ddl, alias))
        kinds.append(kind.kind)
        left_over += [
            (equality, kind)
            for equality, kind in members
            if equality.left != chosen[equality.left.alias] or equality.right != chosen[equality.right.alias]
        ]
    return tuple(tuple(keys) for keys in value), tuple(kinds), left_over


def _classes(equalities: tuple[tuple[Equality, KeyType], ...]) -> list[list[tuple[Equality, KeyType]]]:
    """Equalities that hang together through their terms."""
    found: list[tuple[set[Term], list[tuple[Equality, KeyType]]]] = []
    for equality, kind in equalities:
        terms, members = {equality.left, equality.right}, [(equality, kind)]
        apart = []
        for other_terms, other_members in found:
            if terms & other_terms:
                terms |= other_terms
                members = [*other_members, *members]
            else:
                apart.append((other_terms, other_members))
        found = [*apart, (terms, members)]
    return [members for _, members in found]


def _edges(inputs: tuple[str, ...], left_over: list[tuple[Equality, KeyType]], facts: Facts) -> tuple[Edge, ...]:
    edges = []
    for at, a in enumerate(inputs):
        for further, b in enumerate(inputs[at + 1 :], start=at + 1):
            equalities = [(e, kind) for e, kind in left_over if {e.left.alias, e.right.alias} == {a, b}]
            comparisons: list[tuple[Comparison, KeyType]] = [
                (c, kind) for c, kind in facts.comparisons if {c.left.alias, c.right.alias} == {a, b}
            ]
            if equalities or comparisons:
                step = build_step(equalities, comparisons, left=frozenset((a,)), how="inner")
                edges.append(Edge(step, *((further, at) if step.swapped else (at, further))))
    return tuple(edges)


def _check_condition(
    inputs: tuple[str, ...], value: tuple[tuple[Key, ...], ...], edges: tuple[Edge, ...], options: Options
) -> None:
    if value[0]:
        return
    if options.policy not in ("raj", "exact"):
        raise PredicateError(
            f"policy={options.policy!r} needs a join value that all inputs have in common",
            accepted="an equality that reaches every input in one type, such as A.k = B.k AND B.k = C.k",
            hint="policy='raj' also takes bands, inequalities and chains of different equalities; "
            "CAST brings the sides of an equality to one type",
        )
    reached = {0}
    for _ in inputs:
        for edge in edges:
            if edge.point in reached or edge.box in reached:
                reached |= {edge.point, edge.box}
    if len(reached) < len(inputs):
        apart = [alias for at, alias in enumerate(inputs) if at not in reached]
        raise PredicateError(
            f"no condition connects {listing(apart)} with {inputs[0]!r}",
            accepted="an equality, a band or an inequality for every input",
        )


def _check_cells(cells: int, value: tuple[tuple[Key, ...], ...], inputs: tuple[str, ...], options: Options) -> None:
    if not value[0] and options.cells not in (None, 1):
        raise ArgumentError(
            f"cells={options.cells} without a common join value",
            accepted="cells=1: without an equality over all inputs every row may match any other",
        )
    memory = options.memory
    if memory is not None and memory.unit == "rows" and memory.amount < cells * len(inputs):
        raise ArgumentError(
            f"memory={memory.amount} for {len(inputs)} inputs in {cells} cell(s)",
            accepted=f"at least {cells * len(inputs)}: one row of every input in every cell",
        )
