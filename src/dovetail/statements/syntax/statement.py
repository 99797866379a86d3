"""A query as a list of SELECTs: what each joins, under which conditions, and which WITH clauses it sees.

Everything points into the user's text.  Nothing here knows columns, types or Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlglot import Token, TokenType, exp

from dovetail.conditions.clauses import Clauses
from dovetail.conditions.join_kind import How
from dovetail.conditions.tokens import Item
from dovetail.errors import ArgumentError, StatementError, closest, in_statement, listing
from dovetail.statements.syntax.dialect import UnreadableError, read_query, tokens_of, uses_dialect
from dovetail.statements.syntax.grammar import Best, Compute, Extras, Near, Slice

Kind = Literal["plain", "asof", "bestmatch", "aggregate", "nearest", "spark"]

_HOWS: dict[tuple[str, str], How] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner",
    ("LEFT", ""): "left", ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti", ("", "ANTI"): "anti",
}  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """A table, a view or a subquery of FROM."""

    alias: str
    slice: Slice
    table: str | None
    """The name where the relation is a table of one name, without columns, samples or versions of its own."""
    separate: bool
    """Whether ``SELECT * FROM relation`` means the same: not where it looks at its neighbours (LATERAL)."""


@dataclass(frozen=True)
class Join:
    """A relation and how it joins those before it."""

    relation: Relation
    how: How
    kind: Kind
    """``spark`` for what only Spark can do, such as NATURAL or USING."""
    on: tuple[Slice, ...]
    best: Best | None
    comma: bool
    slice: Slice
    using: tuple[str, ...] = ()
    natural: bool = False
    matched: bool = False
    """Whether it is an as-of join in Spark's own spelling, with MATCH_CONDITION first in `on`."""
    compute: Compute | None = None
    """The aggregates of an aggregate join, which has no columns of its relation: `how` is ``semi``."""

    near: Near | None = None
    """How many rows a nearest join looks for."""

    @property
    def merges(self) -> bool:
        """Whether columns of both sides with the same name come out as one."""
        return bool(self.using) or self.natural


@dataclass(frozen=True)
class Star:
    """An asterisk that means all columns, or all of a relation."""

    offset: int
    """Where it begins, with the relation in front of it."""
    excepted: int | None
    """Where more exceptions can be named, if there are any."""
    alias: str | None = None


@dataclass(frozen=True)
class Scope:
    """A WITH clause as a SELECT sees it: the common table expressions in front of it."""

    recursive: bool
    tables: tuple[Slice, ...]
    names: tuple[str, ...]
    """As they are spelled where they are defined."""


@dataclass(frozen=True)
class Block:
    """A SELECT with FROM."""

    line: int
    slice: Slice
    """What follows FROM: relations and joins."""
    first: Relation
    joins: tuple[Join, ...]
    extras: Extras
    where: Slice | None
    conjuncts: tuple[Slice, ...]
    """The conditions that WHERE connects with AND."""
    stars: tuple[Star, ...]
    """Those of the select list."""
    stars_elsewhere: bool
    """Whether ``*`` also stands for all columns behind FROM, as in ``WHERE 15 IN (*)``."""
    hints: dict[str, tuple[str, ...]]
    hint: Slice | None
    """The comment with the hints."""
    scopes: tuple[Scope, ...]
    """From the outermost WITH to the innermost."""
    recursive: bool
    """Whether it is part of a recursive definition."""

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All of FROM, in order."""
        return (self.first, *(join.relation for join in self.joins))


@dataclass(frozen=True)
class Statement:
    """A query: its text, its SELECTs from the innermost to the outermost, and where its WITH is."""

    text: str
    blocks: tuple[Block, ...]
    opening: tuple[int, bool]
    """Where a common table expression can be put in front, and whether there is a WITH already."""
    words: Counter[str]
    """How often each word occurs in the text, in lower case."""
    defined: frozenset[str]
    """Names of the outermost WITH, in lower case."""
    unread: StatementError | None = None
    """Why the statement cannot be read here, although it uses no clause of the dialect: Spark may know better."""


def read_statement(text: str) -> Statement:
    """Read one query.

    Raises
    ------
    StatementError
        If the text is no query; the message shows the line and points at the position.

    Examples
    --------
    >>> text = "SELECT * FROM A LEFT JOIN B ON A.x < B.x AND A.k = B.k WHERE A.y > 0"
    >>> (block,) = read_statement(text).blocks
    >>> [relation.alias for relation in block.relations], block.joins[0].how
    (['A', 'B'], 'left')
    >>> [conjunct.of(text) for conjunct in (*block.joins[0].on, *block.conjuncts)]
    ['A.x < B.x', 'A.k = B.k', 'A.y > 0']
    """
    tokens = tokens_of(text) if isinstance(text, str) else []
    try:
        tree = read_query(text)
    except UnreadableError as error:
        if uses_dialect(tokens):
            raise
        return Statement(
            text, (), _opening(tokens), Counter(token.text.lower() for token in tokens), frozenset(), error
        )
    # sqlglot turns the pipe syntax into other queries, whose parts are no longer slices of the text.
    piped = any(token.token_type is TokenType.PIPE_GT for token in tokens)
    _refuse_misplaced(tree, text, piped=piped)
    try:
        blocks = () if piped else tuple(_blocks(tree, _Reader(text, tokens), (), recursive=False))
    except RecursionError:
        raise StatementError("the statement is nested too deeply to read", accepted="less nesting") from None
    given = tree.args.get("with_") if tokens[0].token_type is TokenType.WITH else None
    defined = frozenset(cte.alias.lower() for cte in given.expressions) if given else frozenset[str]()
    return Statement(text, blocks, _opening(tokens), Counter(token.text.lower() for token in tokens), defined)


def _opening(tokens: list[Token]) -> tuple[int, bool]:
    """Where a common table expression can be put in front, and whether there is a WITH already."""
    if tokens[0].token_type is not TokenType.WITH or len(tokens) < 3:
        return tokens[0].start, False
    behind = tokens[2] if tokens[1].token_type is TokenType.RECURSIVE else tokens[1]
    return behind.start, True


def check_frame_names(statement: Statement, names: Iterable[str]) -> None:
    """Refuse frames that are given under names that the statement does not use, or uses for something else."""
    given = tuple(names)
    for name in given:
        if name.lower() not in statement.words:
            raise ArgumentError(
                f"the statement does not name the table {name!r}",
                accepted="frames by the names of tables in the statement",
                hint=closest(name, statement.words),
            )
        if name.lower() in statement.defined:
            raise ArgumentError(f"WITH defines {name!r}, which is also given as a frame", accepted="one of the two")
    if len({name.lower() for name in given}) < len(given):
        raise ArgumentError(f"frames whose names differ only in case: {listing(given)}", accepted="names that differ")


def _blocks(node: exp.Expr, reader: _Reader, scopes: tuple[Scope, ...], *, recursive: bool) -> Iterator[Block]:
    """The SELECTs at and below a node, inner ones first."""
    given = node.args.get("with_")
    if isinstance(given, exp.With):
        looping = bool(given.args.get("recursive"))
        tables: list[Slice] = []
        names: list[str] = []
        for cte in given.expressions:
            seen = Scope(looping, tuple(tables), tuple(names))
            yield from _blocks(cte.this, reader, (*scopes, seen) if tables else scopes, recursive=recursive or looping)
            tables.append(cte.meta["slice"])
            names.append(cte.alias)
        scopes = (*scopes, Scope(looping, tuple(tables), tuple(names)))
    for key, value in node.args.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr) and key != "with_":
                yield from _blocks(child, reader, scopes, recursive=recursive)
    if isinstance(node, exp.Select) and _is_in_text(node):
        yield reader.block(node, scopes, recursive=recursive)


def _refuse_misplaced(tree: exp.Expr, text: str, *, piped: bool) -> None:
    """Refuse joins of the dialect where they would be lost: Spark would read ASOF as an alias, and join differently."""
    for node in tree.find_all(exp.Join, exp.Select):
        select = node.parent if isinstance(node, exp.Join) else node
        asof = str(node.args.get("method") or "").upper() == "ASOF"
        ours = asof or "best" in node.meta or "near" in node.meta or node.meta.get("extras")
        if ours and (piped or not isinstance(select, exp.Select) or not _is_in_text(select)):
            at = node.meta["slice"].start if "slice" in node.meta else 0
            raise in_statement(
                text, at, "a join of Dovetail in parentheses, before SELECT or in a pipe |>",
                accepted="SELECT ... FROM, followed by the join", hint="put it into a WITH clause and name that",
            )  # fmt: skip


def _is_in_text(node: exp.Select) -> bool:
    """Whether the parts of a SELECT are slices of the text; sqlglot makes up others, for TABLE and DESCRIBE."""
    source, joins, where = node.args.get("from_"), node.args.get("joins") or [], node.args.get("where")
    if source is None or "from_stop" not in node.meta or source.this is None or source.this.args.get("joins"):
        return False
    parts = [source, source.this, *joins, *(join.this for join in joins)]
    parts += [where, where.this] if where is not None else []
    return all(part is not None and "slice" in part.meta for part in parts)


class _Reader:
    """Nodes of the syntax tree to the values of this module."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._unnamed = 0

    def block(self, node: exp.Select, scopes: tuple[Scope, ...], *, recursive: bool) -> Block:
        source: exp.From = node.args["from_"]
        start = source.meta["slice"].start
        where = node.args.get("where")
        return Block(
            line=self._text.count("\n", 0, start) + 1,
            slice=Slice(source.this.meta["slice"].start, node.meta["from_stop"]),
            first=self.relation(source.this),
            joins=tuple(self.join(join) for join in node.args.get("joins") or []),
            extras=node.meta["extras"],
            where=None if where is None else where.meta["slice"],
            conjuncts=() if where is None else self.conjuncts(where.this.meta["slice"]),
            stars=tuple(self._stars(node)),
            stars_elsewhere=any(True for _ in self._all_columns(node, _clauses_behind_from(node))),
            hints=_hints(node.args.get("hint")),
            hint=node.args["hint"].meta.get("slice") if node.args.get("hint") else None,
            scopes=scopes,
            recursive=recursive,
        )

    def relation(self, node: exp.Expr) -> Relation:
        alias = node.args.get("alias")
        columns = bool(alias.args.get("columns")) if isinstance(alias, exp.TableAlias) else False
        extra = any(node.args.get(key) for key in ("sample", "pivots", "version", "when", "joins", "laterals"))
        simple = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.args.get("db")
        name = str(node.alias_or_name or "")
        if not name:
            self._unnamed += 1
            name = f"unnamed_{self._unnamed}"
        separate = isinstance(node, exp.Table | exp.Subquery | exp.Values)
        return Relation(
            alias=name,
            slice=node.meta["slice"],
            table=node.name if simple and not columns and not extra else None,
            separate=separate and not any(node.args.get(key) for key in ("pivots", "joins", "laterals")),
        )

    def join(self, node: exp.Join) -> Join:
        best = node.meta.get("best")
        method = str(node.args.get("method") or "").upper()
        how = _HOWS.get((str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()))
        if method == "ASOF" and how is None:
            raise in_statement(
                self._text, node.meta["slice"].start, f"ASOF {node.args.get('side')} {node.args.get('kind')} JOIN",
                accepted="ASOF [LEFT | RIGHT | FULL | SEMI | ANTI] JOIN",
            )  # fmt: skip
        odd = how is None or node.args.get("using") or node.args.get("pivots") or method != ""
        compute = node.meta.get("compute")
        kind: Kind = (
            "bestmatch"
            if best
            else "aggregate"
            if compute
            else "nearest"
            if "near" in node.meta
            else "asof"
            if method == "ASOF"
            else "spark"
            if odd
            else "plain"
        )
        condition = node.args.get("on")
        certain = isinstance(condition, exp.Boolean) and bool(condition.this)
        placed = condition is not None and "slice" in condition.meta and not certain
        match: Slice | None = node.meta.get("match")
        return Join(
            relation=self.relation(node.this),
            how=how or "full",
            kind=kind,
            on=(
                *((match,) if match else ()),
                *(self.conjuncts(condition.meta["slice"]) if condition and placed else ()),
            ),
            best=best,
            comma=bool(node.meta.get("comma")),
            slice=node.meta["slice"],
            using=tuple(column.name for column in node.args.get("using") or ()),
            natural=method == "NATURAL",
            matched=match is not None,
            compute=compute,
            near=node.meta.get("near"),
        )

    def conjuncts(self, at: Slice) -> tuple[Slice, ...]:
        """The conditions that the outermost ANDs of a condition connect."""
        inside = [token for token in self._tokens if at.start <= token.start and token.end < at.stop]
        items: list[Item] = []
        slices: list[Slice] = []
        for token in inside:
            if slices and token.start < slices[-1].stop:
                continue  # sqlglot turns 1L into three tokens over the same two characters
            after_dot = bool(items) and items[-1].kind is TokenType.DOT
            kind = TokenType.VAR if after_dot and token.token_type is not TokenType.NUMBER else token.token_type
            slices.append(Slice(token.start, token.end + 1))
            items.append(Item(kind, slices[-1].of(self._text), None, spaced=True))
        if not items:
            return ()
        return tuple(Slice(slices[span.start].start, slices[span.stop - 1].stop) for span in Clauses(items).conjuncts())

    def _stars(self, node: exp.Select) -> Iterator[Star]:
        for star in self._all_columns(node, node.expressions):
            at: Slice = star.meta["slice"]
            behind = at.of(self._text).find("(")
            excepted = at.start + behind + 1 if star.args.get("except_") and behind > 0 else None
            column = star.parent
            if isinstance(column, exp.Column):
                yield Star(self._start_of_qualifier(at.start), excepted, column.table)
            else:
                yield Star(at.start, excepted)

    def _all_columns(self, node: exp.Select, clauses: Iterable[exp.Expr]) -> Iterator[exp.Star]:
        """The asterisks of a SELECT itself that stand for columns."""
        for clause in clauses:
            for star in clause.find_all(exp.Star):
                counted = isinstance(star.parent, exp.Count)
                if not counted and star.find_ancestor(exp.Select) is node and "slice" in star.meta:
                    yield star

    def _start_of_qualifier(self, star: int) -> int:
        """Where ``a`` begins in ``a.*``."""
        at = next(number for number, token in enumerate(self._tokens) if token.start == star)
        return self._tokens[at - 2].start


def _clauses_behind_from(node: exp.Select) -> Iterator[exp.Expr]:
    for key, value in node.args.items():
        if key not in ("expressions", "with_", "from_", "joins", "laterals", "hint"):
            children = value if isinstance(value, list) else [value]
            yield from (child for child in children if isinstance(child, exp.Expr))


def _hints(node: exp.Expr | None) -> dict[str, tuple[str, ...]]:
    """Hints by name, in upper case, with the names in their parentheses."""
    found: dict[str, tuple[str, ...]] = {}
    for hint in node.expressions if node is not None else ():
        if isinstance(hint, exp.Expr):
            inside = tuple(one.name for one in hint.expressions if isinstance(one, exp.Expr))
            found[str(hint.name or hint.sql()).upper()] = inside
    return found
