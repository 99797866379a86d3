"""The clauses that Dovetail adds behind FROM: windows, times, memory limits and shedding."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from sqlglot import TokenType
from sqlglot.parsers.spark import SparkParser

from dovetail.conditions.durations import is_unit
from dovetail.errors import in_statement
from dovetail.statements.syntax.grammar import Extras, Memory, Shed, Size, Slice, Time, Window

_NUMBER_AND_UNIT = re.compile(r"\d+(\.\d+)?[a-zµμ]+", re.IGNORECASE)
_LENGTH = "a length such as 10 SECONDS, 1 HOUR 30 MINUTES, or a number where the times are numbers"


class ClauseParser(SparkParser):
    """Spark's parser with methods that read a clause of the dialect from where it stands."""

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
        amount = self._amount("WITHIN MEMORY")
        policy, seed, results = None, None, None
        while self._curr:
            if policy is None and self._match_text_seq("POLICY"):
                policy = self._name("the name of a policy")
            elif seed is None and self._match_text_seq("SEED"):
                seed = self._whole_number("SEED")
            elif results is None and self._match_text_seq("RESULTS"):
                results = self._whole_number("RESULTS")
            else:
                break
        return Memory(at, amount, policy, seed, results)

    def _amount(self, words: str) -> Size:
        """A number of rows, or a size."""
        if not self._curr or not self._begins_number():
            self._fail("an amount of memory is missing", f"{words} 10000 ROWS, or a size such as {words} 64 MB")
        text = self._written()
        if re.fullmatch(r"\d+(\.\d+)?", text) and self._curr and re.fullmatch(r"(?i)[kmgt]?i?b", self._curr.text):
            text = f"{text} {self._written()}"
        elif re.fullmatch(r"\d+", text):
            self._match_text_seq("ROWS")
        return int(text) if text.isdecimal() else text

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
            words = next((words for words in _SHED_OPTIONS if self._match_text_seq(*words.split())), None)
            if words is None:
                break
            name, read = _SHED_OPTIONS[words]
            if name in found:
                self._fail(f"{words} stands twice", f"one {words}")
            found[name] = read(self, words)
        return Shed(at, harvest, found)

    def _fraction(self, words: str) -> float:
        return float(self._number(f"a number is missing behind {words}", f"a number, such as {words} 0.5"))

    def _choice(self, words: str) -> str:
        """A word, or words in quotes."""
        if self._match(TokenType.STRING):
            return str(self._prev.text)
        return self._name(f"a word behind {words}").lower()

    def _number(self, what: str, accepted: str) -> str:
        if not self._match(TokenType.NUMBER):
            self._fail(what, accepted)
        return str(self._prev.text)

    def _whole_number(self, words: str) -> int:
        text = self._number(what := f"a whole number is missing behind {words}", accepted := f"such as {words} 7")
        if not text.isdecimal():
            self._fail(what, accepted)
        return int(text)

    # --- wording ------------------------------------------------------------------------------------------

    def _next_is(self, *kinds: TokenType) -> bool:
        return bool(self._next) and self._next.token_type in kinds

    def _fail(self, what: str, accepted: str, hint: str | None = None) -> NoReturn:
        at = self._curr.start if self._curr else len(self.sql.rstrip())
        raise in_statement(self.sql, at, what, accepted=accepted, hint=hint)

    def _slice_from(self, first: int) -> Slice:
        """From the token number `first` to the last token read."""
        start = self._tokens[first].start if first < len(self._tokens) else len(self.sql)
        return Slice(start, max(self._prev.end + 1, start) if self._prev else start)


_SHED_OPTIONS: dict[str, tuple[str, Callable[[ClauseParser, str], Any]]] = {
    "THROTTLE": ("throttle", ClauseParser._fraction),
    "TARGET": ("target", lambda parser, words: parser._size()),
    "BOOST": ("boost", ClauseParser._fraction),
    "BASIC WINDOW": ("basic_window", lambda parser, words: parser._size()),
    "SAMPLE": ("sample_fraction", ClauseParser._fraction),
    "METHOD": ("method", ClauseParser._choice),
    "METRIC": ("metric", ClauseParser._choice),
    "HISTOGRAMS": ("histograms", ClauseParser._choice),
    "KEEP": ("keep", ClauseParser._choice),
    "MEMORY": ("memory", ClauseParser._amount),
    "SEED": ("seed", ClauseParser._whole_number),
}
"""Options of SHED: the argument that each is, and how its value is read."""
