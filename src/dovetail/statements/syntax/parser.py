"""sqlglot's parser for Spark SQL, with the clauses that Dovetail adds.

The words of the dialect (BESTMATCH, DWINDOW, WITHIN MEMORY ...) are reserved only where they can begin its clauses, so
tables and columns may have these names.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

from sqlglot import TokenType, exp

from dovetail.statements.syntax.clause_parser import ClauseParser
from dovetail.statements.syntax.grammar import Agreeing, Best, Compute, Criterion, Extreme, Near, Ordered, Slice

_BEGINNINGS = (
    ("BESTMATCH", "JOIN"), ("DWINDOW", "("), ("WITHIN", "MEMORY"), ("SHED", "HARVEST"), ("SHED", "RANDOM"),
    ("MATCH_CONDITION", "("), ("AGGREGATE", "JOIN"),
)  # fmt: skip
_SIDES = ("LEFT", "RIGHT", "FULL", "INNER")
_KINDS = ("OUTER", "SEMI", "ANTI")
_EXTREMES = {"MINIMIZE": False, "MINIMISE": False, "MAXIMIZE": True, "MAXIMISE": True}


class DovetailParser(ClauseParser):
    """Spark's parser with the dialect's clauses; relations, joins, conditions and stars know their slice."""

    # --- slices -------------------------------------------------------------------------------------------

    def _parse_from(self, *args: Any, **options: Any) -> exp.From | None:
        first = self._index
        found = super()._parse_from(*args, **options)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_table(self, *args: Any, **options: Any) -> exp.Expr | None:
        first = self._index
        found = super()._parse_table(*args, **options)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_cte(self) -> Any:
        first = self._index
        found = super()._parse_cte()
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_where(self, skip_where_token: bool = False) -> exp.Where | None:
        first = self._index
        found = super()._parse_where(skip_where_token)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_disjunction(self) -> exp.Expr | None:
        first = self._index
        found = super()._parse_disjunction()
        if found is not None:
            # The same node comes back through several levels; the outermost has the whole condition.
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_star_ops(self) -> exp.Expr | None:
        star = self._prev
        found = super()._parse_star_ops()
        if found is not None:
            found.meta["slice"] = Slice(star.start, self._prev.end + 1)
        return found

    def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
        first = self._index
        found = super()._parse_with(skip_with_token)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
        return found

    def _parse_hint(self) -> exp.Hint | None:
        start = self._curr.start if self._curr else 0
        found = super()._parse_hint()
        if found is not None:
            found.meta["slice"] = Slice(start, self.sql.find("*/", start) + 2)
        return found

    # --- joins --------------------------------------------------------------------------------------------

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if any(self._match_text_seq(*words, advance=False) for words in _BEGINNINGS) or self._at_nearest():
            return None
        return super()._parse_table_alias(alias_tokens)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        first = self._index
        side = self._prev.text.upper() if self._match_texts(_SIDES) else ""
        kind = self._prev.text.upper() if self._match_texts(_KINDS) else ""
        if kind in ("", "OUTER") and self._match_text_seq("BESTMATCH", "JOIN"):
            found: exp.Join | None = self._best_join(side)
        elif kind in ("", "OUTER") and self._match_text_seq("AGGREGATE", "JOIN"):
            found = self._aggregate_join(side)
        elif kind in ("", "OUTER") and self._at_nearest():
            found = self._nearest_join(side)
        elif (side or kind) and self._match_text_seq("ASOF", "JOIN", advance=False):
            # Spark has the side in front of ASOF, DuckDB behind it.
            found = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
            if found is not None:
                found.set("side", "" if side == "INNER" else side)
                found.set("kind", kind)
        else:
            self._retreat(first)
            found = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
            found.meta["match"] = self._match_condition(found.meta["slice"])
            found.meta["comma"] = self._tokens[first].token_type is TokenType.COMMA
        return found

    def _match_condition(self, within: Slice) -> Slice | None:
        """What the parentheses behind MATCH_CONDITION hold."""
        inside = [token for token in self._tokens if within.start <= token.start < within.stop]
        depth, start = 0, None
        for before, token in pairwise(inside):
            if before.token_type is TokenType.MATCH_CONDITION and start is None:
                start = token.end + 1
            if start is not None:
                depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
                if depth == 0:
                    return Slice(start, token.start)
        return None

    def _best_join(self, side: str) -> exp.Join:
        relation = self._parse_table()
        if relation is None:
            self._fail("a relation is missing behind BESTMATCH JOIN", "the name of a table, or a subquery")
        if not self._match(TokenType.ON):
            self._fail("ON is missing behind BESTMATCH JOIN", "ON R.x minAttrDist S.x, R.y minAttrDist S.y")
        criteria = [self._criterion()]
        while self._match(TokenType.COMMA):
            criteria.append(self._criterion())
        join = exp.Join(this=relation, side=side if side != "INNER" else "")
        join.meta["best"] = Best(tuple(criteria), keep=self._match_text_seq("KEEP", "UNMATCHED"))
        return join

    def _aggregate_join(self, side: str) -> exp.Join:
        if side not in ("", "LEFT", "INNER"):
            self._fail(f"{side} AGGREGATE JOIN", "[LEFT | INNER] AGGREGATE JOIN: the rows on the left come out")
        relation = self._parse_table()
        if relation is None:
            self._fail("a relation is missing behind AGGREGATE JOIN", "the name of a table, or a subquery")
        if relation.alias.upper() == "COMPUTE" == self._prev.text.upper() and not self._next_is_condition():
            # Without ON, aggregates follow the relation at once: this was no name for it.
            relation.set("alias", None)
            self._retreat(self._index - 1)
        condition = None
        if self._match(TokenType.ON):
            condition = self._parse_disjunction()
            if condition is None:
                self._fail("a condition is missing behind ON", "ON q.k = t.k AND q.x <= t.x")
        if not self._match_text_seq("COMPUTE"):
            self._fail("COMPUTE is missing behind AGGREGATE JOIN", "COMPUTE count(*) AS n, avg(q.x) AS mean")
        computed = [self._computed()]
        while self._match(TokenType.COMMA):
            computed.append(self._computed())
        # Only the left side has columns in the result, as in a semi join.
        join = exp.Join(this=relation, side="LEFT", kind="SEMI", on=condition)
        join.meta["compute"] = Compute(tuple(computed), keep=side != "INNER")
        return join

    def _next_is_condition(self) -> bool:
        return bool(self._curr) and self._curr.token_type is TokenType.ON

    def _at_nearest(self) -> bool:
        """Whether ``NEAREST JOIN`` or ``NEAREST 3 JOIN`` begins here; a table may be called nearest."""
        words = [token.text.upper() for token in self._tokens[self._index : self._index + 3]]
        return words[:2] == ["NEAREST", "JOIN"] or (words[:1] == ["NEAREST"] and words[2:] == ["JOIN"])

    def _nearest_join(self, side: str) -> exp.Join:
        self._match_text_seq("NEAREST")
        k = 1 if self._match_text_seq("JOIN", advance=False) else self._whole_number("NEAREST")
        self._match_text_seq("JOIN")
        if side not in ("", "LEFT", "INNER"):
            self._fail(f"{side} NEAREST JOIN", "[LEFT | INNER] NEAREST 3 JOIN: the rows on the left look for others")
        relation = self._parse_table()
        if relation is None:
            self._fail("a relation is missing behind NEAREST JOIN", "the name of a table, or a subquery")
        condition = self._parse_disjunction() if self._match(TokenType.ON) else None
        if condition is None:
            self._fail("ON is missing behind NEAREST JOIN", "ON HYPOT(r.x - s.x, r.y - s.y), and r.k = s.k beside it")
        ties = "all"
        if self._match_text_seq("TIES"):
            ties = self._choice("TIES")
        join = exp.Join(this=relation, side="LEFT" if side == "LEFT" else "", on=condition)
        join.meta["near"] = Near(k, ties)
        return join

    def _computed(self) -> tuple[str, Slice]:
        first = self._index
        if self._parse_disjunction() is None:
            self._fail("an aggregate is missing", "an aggregate with a name, such as avg(q.x) AS mean")
        at = self._slice_from(first)
        if not self._match(TokenType.ALIAS):
            self._fail("AS is missing behind an aggregate", "an aggregate with a name, such as avg(q.x) AS mean")
        return self._name("the name of a column"), at

    def _criterion(self) -> Criterion:
        if self._curr and self._curr.text.upper() in _EXTREMES and not self._next_is(TokenType.DOT):
            largest = _EXTREMES[self._curr.text.upper()]
            self._advance()
            return Extreme(self._operand(), largest)
        left = self._operand()
        if self._match(TokenType.EQ):
            return Agreeing(left, self._operand())
        if not self._curr or self._curr.token_type not in self.ID_VAR_TOKENS:
            self._fail(
                "the name of an order is missing",
                "R.x minAttrDist S.x (also subset, youngest or a registered order), an equality, "
                "MINIMIZE or MAXIMIZE with an expression",
                hint="criteria of a best-match join are separated by commas",
            )
        order, at = self._curr.text, self._curr.start
        self._advance()
        return Ordered(left, order, self._operand(), at)

    def _operand(self) -> Slice:
        first = self._index
        if self._parse_bitwise() is None:
            self._fail("an expression is missing", "a column or an expression over the inputs, such as R.x")
        return self._slice_from(first)

    # --- clauses behind FROM --------------------------------------------------------------------------------

    def _parse_query_modifiers(self, this: Any) -> Any:
        if isinstance(this, exp.Select) and this.args.get("from_") is not None and "from_stop" not in this.meta:
            for join in self._parse_joins():
                this.append("joins", join)
            this.meta["from_stop"] = self._prev.end + 1
            for lateral in iter(self._parse_lateral, None):
                this.append("laterals", lateral)
            this.meta["extras"] = self._extras()
        return super()._parse_query_modifiers(this)
