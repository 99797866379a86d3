"""Runs the programs of a page, each page as one program, and compares what it prints with what the page shows.

A block of Python that prints is followed by a block of `text` with what it printed.  Three dots in that block stand for
anything on their line, and on a line of their own for any number of lines.

``python -m tests.docs.pages docs/theta.md ...`` writes what the programs print into the pages.  Lines with three dots
are kept where they still fit.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```\n(?:\n *```text\n(?P<output>.*?)^ *```\n)?",
    re.DOTALL | re.MULTILINE,
)


ELSEWHERE = ("kafka.md", "tables.md")
"""Pages whose programs need what is fetched first; tests/kafka and tests/lakes run them."""


def pages() -> list[Path]:
    """All pages that run here; the reference has docstrings, whose examples run as such."""
    found = [page for page in sorted((ROOT / "docs").glob("**/*.md")) if page.name not in ELSEWHERE]
    return [page for page in found if page.parent.name != "reference" or page.name == "index.md"]


@dataclass(frozen=True)
class Ran:
    """A block that has run: its line, what it printed, and what the page says of it (None: nothing)."""

    line: int
    printed: str
    shown: str | None
    block: re.Match[str]


def run(page: Path, names: dict[str, object]) -> Iterator[Ran]:
    """Run the blocks of a page, one after the other, in one namespace."""
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        with redirect_stdout(io.StringIO()) as out:
            # Blank lines in front make tracebacks show the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), names)
        shown = block["output"]
        if shown is not None:
            shown = tidied(re.sub(rf"^{block['indent']}", "", shown, flags=re.MULTILINE))
        yield Ran(line, tidied(out.getvalue()), shown, block)


def tidied(text: str) -> str:
    """Text without blanks at the ends of lines, and without blank lines at either end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def fits(printed: str, shown: str) -> bool:
    """Whether a page shows what was printed.

    Examples
    --------
    >>> fits("took 1.2 s, 7 rows", "took ... s, 7 rows"), fits("took 1.2 s, 8 rows", "took ... s, 7 rows")
    (True, False)
    >>> fits("a\\nb\\nc\\nd", "a\\n...\\nd"), fits("a\\nd", "a\\n...\\nd"), fits("a\\nb", "a\\n...\\nd")
    (True, True, False)
    """
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else r"[^\n]*".join(map(re.escape, line.split("..."))) + "\n"
        for line in shown.splitlines()
    ]
    return re.fullmatch("".join(lines), printed + "\n") is not None


def complaint(ran: Ran) -> str | None:
    """What is wrong with what a page shows of a block."""
    if ran.shown is None:
        return f"prints, and the page does not show it:\n{ran.printed}" if ran.printed else None
    if fits(ran.printed, ran.shown):
        return None
    return f"the page shows\n{ran.shown}\nand the block prints\n{ran.printed}"


def write(page: Path, names: dict[str, object]) -> None:
    """Put what the blocks print into the page."""
    text, out, done = page.read_text(encoding="utf-8"), [], 0
    for ran in run(page, names):
        if complaint(ran) is None:
            continue
        block = ran.block
        end = text.index("```\n", block.end("code")) + len("```\n")
        out.append(text[done:end])
        if ran.printed:
            indent = block["indent"]
            body = "".join(f"{indent}{line}".rstrip() + "\n" for line in ran.printed.splitlines())
            out.append(f"\n{indent}```text\n{body}{indent}```\n")
        done = block.end()
    page.write_text("".join(out) + text[done:], encoding="utf-8")


if __name__ == "__main__":
    import dovetail

    spark = dovetail.session(
        "pages",
        master="local[2]",
        driver_memory="2g",
        conf={"spark.sql.shuffle.partitions": 4, "spark.ui.showConsoleProgress": False},
    )
    for name in sys.argv[1:]:
        write(Path(name), {"__name__": "__main__", "spark": spark})
        print(f"wrote {name}")
    spark.stop()
