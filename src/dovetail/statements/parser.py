"""sqlglot's parser for Spark SQL, with the clauses that Dovetail adds.

The words of the dialect (BESTMATCH, DWINDOW, WITHIN MEMORY ...) are reserved only where they can begin its clauses, so
tables and columns may have these names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NoReturn

from sqlglot import TokenType, exp
from sqlglot.parsers.spark import SparkParser

from dovetail.conditions.durations import is_unit
from dovetail.errors import in_statement
from dovetail.statements.grammar import (
    Agreeing,
    Best,
    Criterion,
    Extras,
    Extreme,
    Memory,
    Ordered,
    Shed,
    Size,
    Slice,
    Time,
    Window,
)

_BEGINNINGS = (("BESTMATCH", "JOIN"), ("DWINDOW", "("), ("WITHIN", "MEMORY"), ("SHED", "HARVEST"), ("SHED", "RANDOM"))
_SIDES = ("LEFT", "RIGHT", "FULL", "INNER")
_EXTREMES = {"MINIMIZE": False, "MINIMISE": False, "MAXIMIZE": True, "MAXIMISE": True}
_NUMBER_AND_UNIT = re.compile(r"\d+(\.\d+)?[a-zµμ]+", re.IGNORECASE)
_LENGTH = "a length such as 10 SECONDS, 1 HOUR 30 MINUTES, or a number where the times are numbers"


class DovetailParser(SparkParser):
    """Spark's parser with the dialect's clauses; relations, joins, conditions and stars know their slice."""

    # --- slices -------------------------------------------------------------------------------------------

    def _slice_from(self, first: int) -> Slice:
        """From the token number `first` to the last token read."""
        start = self._tokens[first].start if first < len(self._tokens) else len(self.sql)
        return Slice(start, max(self._prev.end + 1, start) if self._prev else start)

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
        if any(self._match_text_seq(*words, advance=False) for words in _BEGINNINGS):
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
        self._match_text_seq("OUTER")
        if self._match_text_seq("BESTMATCH", "JOIN"):
            found: exp.Join | None = self._best_join(side)
        else:
            self._retreat(first)
            found = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if found is not None:
            found.meta["slice"] = self._slice_from(first)
            found.meta["comma"] = self._tokens[first].token_type is TokenType.COMMA
        return found

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

    def _extras(self) -> Extras:
        first = self._index
        windows: list[Window] = []
        times: list[Time] = []
        memory, shed = None, None
        while self._curr:
            if self._at_window():
                if windows:
                    self._fail(
                        "a second window clause", "windows that AND connects: WINDOW (A, B) = ... AND WINDOW ..."
                    )
                windows = self._windows()
                times = self._times() if self._match_text_seq("TIME") else []
            elif self._match_text_seq("WITHIN", "MEMORY"):
                if memory is not None:
                    self._fail("a second memory clause", "one WITHIN MEMORY")
                memory = self._memory()
            elif self._at_shed():
                if shed is not None:
                    self._fail("a second SHED clause", "one SHED")
                shed = self._shed()
            else:
                break
        at = self._slice_from(first) if windows or memory or shed else None
        return Extras(tuple(windows), tuple(times), memory, shed, at)

    def _at_window(self) -> bool:
        """Whether a window between inputs begins here; ``WINDOW name AS (...)`` is Spark's."""
        if self._match_text_seq("DWINDOW", advance=False):
            return True
        following = (TokenType.EQ, TokenType.L_PAREN, TokenType.BETWEEN)
        return self._curr.token_type is TokenType.WINDOW and self._next_is(*following)

    def _windows(self) -> list[Window]:
        found = [self._window()]
        while self._match(TokenType.AND):
            if not self._at_window():
                self._fail("a window is missing behind AND", "WINDOW (A, B) = 5 SECONDS or DWINDOW (A, B) = 5 SECONDS")
            found.append(self._window())
        return found

    def _window(self) -> Window:
        at, directed = self._curr.start, self._curr.text.upper() == "DWINDOW"
        self._advance()
        aliases = self._names() if self._match(TokenType.L_PAREN) else ()
        if directed and len(aliases) < 2:
            self._fail("a directed window without its inputs", "DWINDOW (A, B) = 5 SECONDS, in the order of time")
        if not directed and len(aliases) not in (0, 2):
            self._fail(
                f"a window between {len(aliases)} input(s)", "WINDOW (A, B) = 5 SECONDS, or WINDOW = 5 SECONDS for all"
            )
        if not directed and aliases and self._match(TokenType.BETWEEN):
            low = self._size()
            if not self._match(TokenType.AND):
                self._fail("the upper end is missing", "WINDOW (A, B) BETWEEN -1 SECOND AND 5 SECONDS")
            return Window(at, (low, self._size()), aliases, between=True)
        if not self._match(TokenType.EQ):
            self._fail("the length of the window is missing", "WINDOW = 1 HOUR or WINDOW (A, B) = 5 SECONDS")
        if directed and self._match(TokenType.L_PAREN):
            sizes = [self._size()]
            while self._match(TokenType.COMMA):
                sizes.append(self._size())
            self._close()
        else:
            sizes = [self._size()]
        return Window(at, tuple(sizes), aliases, directed, both_ways=directed and self._match_text_seq("BOTH", "WAYS"))

    def _names(self) -> tuple[str, ...]:
        names = [self._name("an alias")]
        while self._match(TokenType.COMMA):
            names.append(self._name("an alias"))
        self._close()
        return tuple(names)

    def _close(self) -> None:
        if not self._match(TokenType.R_PAREN):
            self._fail("a closing parenthesis is missing", ")")

    def _name(self, what: str) -> str:
        if not self._curr or self._curr.token_type not in {*self.ID_VAR_TOKENS, TokenType.IDENTIFIER}:
            self._fail(f"{what} is missing", "a name")
        self._advance()
        return self._prev.text

    def _times(self) -> list[Time]:
        found = []
        while True:
            at, first = self._curr.start if self._curr else len(self.sql), self._name("a time column")
            second = self._name("a column") if self._match(TokenType.DOT) else None
            found.append(Time(at, None, first) if second is None else Time(at, first, second))
            if not self._match(TokenType.COMMA):
                return found

    def _size(self) -> Size:
        """A length of time: numbers with units, or a single number."""
        self._match(TokenType.INTERVAL)
        words: list[str] = []
        while self._curr:
            unit = bool(words) and self._curr.token_type is not TokenType.STRING and is_unit(self._curr.text)
            if not unit and not self._begins_number():
                break
            words.append(self._written())
        text = " ".join(words).replace("- ", "-")
        if not re.search(r"\d", text):
            self._fail("a length is missing", _LENGTH)
        return int(text) if re.fullmatch(r"-?\d+", text) else text

    def _begins_number(self) -> bool:
        kinds = (TokenType.NUMBER, TokenType.STRING, TokenType.DASH)
        return self._curr.token_type in kinds or bool(_NUMBER_AND_UNIT.fullmatch(self._curr.text))

    def _written(self) -> str:
        """The next word as it is written; sqlglot makes three tokens of ``5s``, all at the same position."""
        token = self._curr
        text = token.text if token.token_type is TokenType.STRING else self.sql[token.start : token.end + 1]
        while self._curr and self._curr.start <= token.end:
            self._advance()
        return text

    def _memory(self) -> Memory:
        at = self._prev.start
        accepted = "WITHIN MEMORY 10000 ROWS, or a size such as WITHIN MEMORY 64 MB"
        if not self._curr or not self._begins_number():
            self._fail("an amount of memory is missing", accepted)
        text = self._written()
        if re.fullmatch(r"\d+(\.\d+)?", text) and self._curr and re.fullmatch(r"(?i)[kmgt]?i?b", self._curr.text):
            text = f"{text} {self._written()}"
        elif re.fullmatch(r"\d+", text):
            self._match_text_seq("ROWS")
        policy, seed = None, None
        while self._curr:
            if policy is None and self._match_text_seq("POLICY"):
                policy = self._name("the name of a policy")
            elif seed is None and self._match_text_seq("SEED"):
                seed = self._whole_number()
            else:
                break
        return Memory(at, int(text) if text.isdecimal() else text, policy, seed)

    def _at_shed(self) -> bool:
        """Whether a SHED clause begins here; a table may be called shed."""
        return any(self._match_text_seq("SHED", word, advance=False) for word in ("HARVEST", "RANDOM"))

    def _shed(self) -> Shed:
        at = self._curr.start
        self._match_text_seq("SHED")
        harvest = bool(self._match_text_seq("HARVEST"))
        if not harvest and not self._match_text_seq("RANDOM", "DROP"):
            self._fail("a way to shed is missing", "SHED HARVEST or SHED RANDOM DROP")
        found: dict[str, Any] = {}
        while self._curr:
            if "throttle" not in found and self._match_text_seq("THROTTLE"):
                found["throttle"] = float(self._number("a throttle is missing", "a number, such as THROTTLE 0.5"))
            elif "target" not in found and self._match_text_seq("TARGET"):
                found["target"] = self._size()
            elif "seed" not in found and self._match_text_seq("SEED"):
                found["seed"] = self._whole_number()
            else:
                break
        return Shed(at, harvest, **found)

    def _number(self, what: str, accepted: str) -> str:
        if not self._match(TokenType.NUMBER):
            self._fail(what, accepted)
        return str(self._prev.text)

    def _whole_number(self) -> int:
        accepted = "a whole number, such as SEED 7"
        text = self._number("a seed is missing", accepted)
        if not text.isdecimal():
            self._fail("a seed is missing", accepted)
        return int(text)

    # --- wording ------------------------------------------------------------------------------------------

    def _next_is(self, *kinds: TokenType) -> bool:
        return bool(self._next) and self._next.token_type in kinds

    def _fail(self, what: str, accepted: str, hint: str | None = None) -> NoReturn:
        at = self._curr.start if self._curr else len(self.sql.rstrip())
        raise in_statement(self.sql, at, what, accepted=accepted, hint=hint)
