"""The plan of an approximate join: the one place that decides how it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from dovetail.conditions.comparison import Comparison, Key, KeyType, Kind, build_step
from dovetail.conditions.components import components
from dovetail.conditions.forms import Equality, Predicate, Term
from dovetail.conditions.names import bare
from dovetail.errors import ArgumentError, PredicateError, listing
from dovetail.families.approx.encode import least_bytes
from dovetail.families.approx.spec import (
    FEWEST_RETURNED,
    GREEDY,
    PRINTED,
    ROW_BYTES,
    ApproxSpec,
    Edge,
    Options,
    cell_count,
    default_strata,
    in_parts,
)
from dovetail.plan.theta import Facts

RESERVED = "sampling"
"""The column next to the aliases that says how a result was sampled."""
SMALL = 1 << 20
"""Bytes of all inputs together up to which one task joins them sooner than their cells are counted and dealt out."""
USUAL_TEXT = 64
"""Bytes of a text or a nested value, where nobody knows them."""

_Equalities = list[tuple[Equality, KeyType]]
_KEEPS = {
    "exact": "every row; the query fails if they exceed the memory",
    "prob": "the rows whose join value the other input brings most often",
    "prob_hash": "the rows whose join value the other input brings most often",
    "arrpj": "the rows of join values with the most results for each row held",
    "raj": "a uniform sample of every input",
    "raj_hash": "a uniform sample of every stratum of every input, and never none of it",
    "prob_printed": "as printed in the paper: the rows whose join value the other input had brought most often by then",
    "prob_hash_printed": "as prob_printed, in queues by the hash of the join value",
    "raj_printed": "as printed in the paper, Algorithm 1: a reservoir of each input",
    "raj_hash_printed": "as printed in the paper, Algorithm 2: sub-reservoirs of sizes that hardly change once full",
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
    spec: ApproxSpec
    partitions: int
    """Shuffle partitions of a batch join: a cell is never divided, so more than cells would stay empty."""

    @property
    def balanced(self) -> bool:
        """Whether the rows of the cells are counted first, so that each gets memory in proportion."""
        return not self.streams and self.spec.cells > 1 and self.options.balance and self.options.memory is not None

    def text(self) -> str:
        """The plan as lines of text, most important first."""
        options = self.options
        kind = "stream" if self.streams else "batch"
        rows = [
            ("inputs", ", ".join(self.inputs)),
            ("memory", "unlimited" if options.memory is None else f"{options.memory}, {self._shares()}"),
            ("keeps", _KEEPS[options.policy] + self._parts()),
            ("random", f"seed {options.seed}"),
            ("output", self._output()),
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
        joined = {
            "join": "an approximate join",
            "inputs": ", ".join(self.inputs),
            "condition": bare(self.predicate.sql),
            "policy": options.policy,
            "memory": "" if options.memory is None else str(options.memory),
            "allocation": options.allocation,
            "number of strata": str(self.spec.strata),
            "number of cells": str(self.spec.cells),
        }
        if options.policy in PRINTED:
            # Checkpoints of the other policies know nothing of these.
            joined |= {"discard": str(options.discard), "ties": options.ties}
        return joined

    def _shares(self) -> str:
        if self.spec.cells == 1:
            return "all in one cell"
        how = "in proportion to their rows, which are counted first" if self.balanced else "in equal parts"
        return f"shared by {self.spec.cells} cells {how}"

    def _parts(self) -> str:
        """What a printed algorithm was told."""
        options = self.options
        said = [f"{self.spec.strata} parts of each input"] if in_parts(options.policy) else []
        said += [f"{options.discard} at once leave when memory is full"] if options.discard > 1 else []
        said += ["of equals the oldest leaves first"] if options.ties == "oldest" else []
        return "".join(f"; {part}" for part in said)

    def _output(self) -> str:
        """How many results to expect: nobody has counted rows or join values yet, so it is told for one row."""
        options = self.options
        if options.results is not None:
            each = "a micro-batch" if self.streams else "in all"
            return f"at most {options.results:,} results {each}, a uniform sample of what is found"
        if options.memory is None or options.policy == "exact":
            return "every result of the join; results= bounds them"
        per_row = "all rows held of the other input" if len(self.inputs) == 2 else "all held combinations of the others"
        if options.memory.unit == "rows":
            held = options.memory.amount // (len(self.inputs) * self.spec.cells)
            per_row += f", about {held ** (len(self.inputs) - 1):,} in its cell"
        if self.value[0]:
            per_row += " divided by the number of join values there"
        return f"for each row that arrives, {per_row}; results= bounds them"

    def _meets(self) -> str:
        parts = [" = ".join(key.sql for key in keys) for keys in zip(*self.value, strict=True)]
        checked = [bare(part.sql) for part in self.predicate.inequalities]
        checked += [bare(part.sql) for part in self.predicate.bands]
        if not parts:
            return f"{' AND '.join(checked)}, checked against every held row"
        value = bare(" AND ".join(parts))
        return f"{value}, by its value" + (f"; {' AND '.join(checked)} checked" if checked else "")

    def _routing(self) -> str:
        if self.spec.cells == 1:
            return f"all rows to one cell{self._why_one_cell()}"
        return f"the hash of the join value chooses one of {self.spec.cells} cells"

    def _why_one_cell(self) -> str:
        options = self.options
        if not self.value[0] or options.partitions is not None:
            return ""
        if cell_count(options.memory, len(self.inputs), None, options.results) == 1:
            return ": what is held is too little to be divided"
        return ": Spark takes the inputs for small"


def plan_approx(
    columns: Mapping[str, Sequence[str]], predicate: Predicate, facts: Facts, options: Options
) -> ApproxPlan:
    """Decide how an approximate join runs, or say why it cannot; `columns` are those of each input, by alias."""
    inputs = tuple(columns)
    _check_inputs(inputs, facts, options)
    value, kinds, left_over = _common_value(inputs, facts)
    edges = _edges(inputs, left_over, facts)
    _check_condition(inputs, value, edges, options)
    divided = bool(value[0]) and not _is_small(inputs, facts, options)
    cells = cell_count(options.memory, len(inputs), options.partitions, options.results) if divided else 1
    _check_cells(cells, value, inputs, options)
    _check_bytes(cells, facts, inputs, options)
    keys: list[list[Key]] = [list(dict.fromkeys(part)) for part in value]
    for edge in edges:
        for side, wanted in ((edge.point, edge.step.point_keys), (edge.box, edge.step.box_keys)):
            keys[side] += [key for key in dict.fromkeys(wanted) if key not in keys[side]]
    return ApproxPlan(
        inputs=inputs,
        streams=facts.streams,
        predicate=predicate,
        filters=tuple((f.alias, f.sql) for f in predicate.filters),
        rests=tuple(rest.sql for rest in facts.rests),
        options=options,
        value=value,
        spec=ApproxSpec(
            aliases=inputs,
            payload=tuple(len(names) for names in columns.values()),
            keys=tuple(tuple(part) for part in keys),
            value=tuple(tuple(keys[side].index(key) for key in part) for side, part in enumerate(value)),
            kinds=kinds,
            edges=edges,
            policy=options.policy,
            memory=options.memory,
            allocation=options.allocation,
            seed=options.seed,
            strata=options.strata or default_strata(options.policy),
            cells=cells,
            detail=options.detail,
            results=options.results,
            row_bytes=_expected_bytes(facts),
            discard=options.discard,
            ties=options.ties,
        ),
        partitions=min(cells, facts.shuffle_partitions),
    )


def _is_small(inputs: tuple[str, ...], facts: Facts, options: Options) -> bool:
    """Whether one cell is enough for inputs whose sizes are known; the user may have said how many there are."""
    known = all(alias in facts.sizes for alias in inputs)
    return options.partitions is None and known and sum(one.size for one in facts.sizes.values()) <= SMALL


def _check_inputs(inputs: tuple[str, ...], facts: Facts, options: Options) -> None:
    static = [alias for alias in inputs if alias not in facts.streams]
    if static and facts.streams:
        raise ArgumentError(
            f"the static input(s) {listing(static)} together with the stream(s) {listing(facts.streams)}",
            accepted="inputs that are all streams or all static",
            hint="a stream and a static table join in Spark without any state: stream.join(table, ...)",
        )
    if len(inputs) > 2 and options.policy in (*GREEDY, *PRINTED):
        raise ArgumentError(
            f"policy={options.policy!r} with {len(inputs)} inputs",
            accepted="two inputs, or policy='raj_hash', 'raj' or 'exact'",
            hint="with more inputs it is not clear whose arrivals a row should be kept for; the paper prints none",
        )
    for alias in inputs:
        if alias.casefold() == RESERVED:
            raise ArgumentError(
                f"the alias {alias!r} is the name of the column that describes the sample", accepted="another alias"
            )


def _common_value(
    inputs: tuple[str, ...], facts: Facts
) -> tuple[tuple[tuple[Key, ...], ...], tuple[Kind, ...], _Equalities]:
    """The keys in which all inputs are equal, and the equalities that they do not cover."""
    value: list[list[Key]] = [[] for _ in inputs]
    kinds: list[Kind] = []
    left_over: _Equalities = []
    for members in _equal_terms(list(facts.equalities)):
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


def _equal_terms(equalities: _Equalities) -> list[_Equalities]:
    """Equalities that are connected through their terms, one list for each set of terms that are all equal.

    The hash of the keys depends on the order of the lists and on the first term of each input, and stored state depends
    on the hash.  Both orders are those of one equality added after the other: its list moves to the end, and lists that
    it connects are taken in reverse.
    """
    lists = []
    for terms in components((equality.left, equality.right) for equality, _ in equalities):
        positions = [at for at, (equality, _) in enumerate(equalities) if equality.left in terms]
        lists.append((positions[-1], [equalities[at] for at in positions]))
    return [
        [*chain.from_iterable(reversed(_equal_terms(members[:-1]))), members[-1]]
        for _, members in sorted(lists, key=lambda entry: entry[0])
    ]


def _edges(inputs: tuple[str, ...], left_over: _Equalities, facts: Facts) -> tuple[Edge, ...]:
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
    if not value[0] and options.partitions not in (None, 1):
        raise ArgumentError(
            f"partitions={options.partitions} without a common join value",
            accepted="partitions=1: without an equality over all inputs every row may match any other",
        )
    memory = options.memory
    if memory is not None and memory.unit == "rows" and memory.amount < cells * len(inputs):
        raise ArgumentError(
            f"memory={memory.amount} for {len(inputs)} inputs in {cells} partition(s)",
            accepted=f"at least {cells * len(inputs)}: one row of every input in every partition",
        )
    if options.results is not None and options.results < FEWEST_RETURNED * cells:
        raise ArgumentError(
            f"results={options.results} in {cells} partition(s)",
            accepted=f"at least {FEWEST_RETURNED * cells}: {FEWEST_RETURNED} results of every partition",
        )


def _check_bytes(cells: int, facts: Facts, inputs: tuple[str, ...], options: Options) -> None:
    memory = options.memory
    if memory is None or memory.unit == "rows":
        return
    rows = {alias: least_bytes(facts.payload_types.get(alias, ())) + ROW_BYTES for alias in inputs}
    widest = max(rows, key=lambda alias: rows[alias])
    least = cells * len(inputs) * rows[widest]
    if memory.amount < least:
        raise ArgumentError(
            f"memory={str(memory)!r} for {len(inputs)} inputs in {cells} partition(s)",
            accepted=f"at least {least:,} bytes: one row of every input in every partition",
            hint=f"a held row of {widest!r} takes at least {rows[widest]:,} bytes, those of an index included",
        )


def _expected_bytes(facts: Facts) -> int:
    """What a held row of the widest input takes, with texts and nested values of a usual length."""
    return ROW_BYTES + max((least_bytes(kinds, text=USUAL_TEXT) for kinds in facts.payload_types.values()), default=0)
