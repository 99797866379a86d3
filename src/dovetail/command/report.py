"""An HTML report in one file: headings, text, tables, bars and pictures, without scripts and without the network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.plots.picture import Picture

_STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --pale: #59636e; --line: #d1d9e0; --page: #fff; --card: #f6f8fa;
  --bar: #2c6fbb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --pale: #9aa4b0; --line: #3a424d; --page: #16191e;
  --card: #20252c; --bar: #6aa5e8; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 54rem;
  margin: 2.5rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 2rem; line-height: 1.15; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; line-height: 1.25; margin: 2.5rem 0 .5rem; }
.lead { font-size: 1.1rem; color: var(--pale); }
figcaption { color: var(--pale); font-size: .9rem; margin-top: .4rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: right; }
th { color: var(--pale); font-weight: 600; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 9rem; }
pre { background: var(--card); padding: .75rem; overflow-x: auto; border-radius: .4rem; font-size: .85rem; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .75rem; margin: .5rem 0; }
summary { cursor: pointer; font-weight: 600; }
figure { margin: 1rem 0; }
img { width: 100%; background: white; border-radius: .4rem; padding: .5rem; border: 1px solid var(--line); }
.bar { margin: .6rem 0; }
.bar div { display: flex; align-items: center; gap: .6rem; }
.bar span { background: var(--bar); height: 1.4rem; border-radius: .25rem; min-width: 3px; flex: none; }
.bar:first-child span { background: var(--pale); }
"""


class Report:
    """The parts of a report, in order.

    Parameters
    ----------
    title
        The heading of the page.

    Examples
    --------
    >>> report = Report("A run")
    >>> report.text("All is <well>.")
    >>> "<p>All is &lt;well&gt;.</p>" in report.html()
    True
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        """Begin a part."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def lead(self, text: str) -> None:
        """Add the paragraph that says what the page is."""
        self._parts.append(f'<p class="lead">{escape(text)}</p>')

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Add lines that keep their breaks."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def details(self, title: str, code: str) -> None:
        """Add lines of code that open when asked for."""
        self._parts.append(f"<details><summary>{escape(title)}</summary><pre>{escape(code)}</pre></details>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        cells = [f"<tr>{''.join(f'<th>{escape(one)}</th>' for one in head)}</tr>"]
        cells += [f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in row)}</tr>" for row in rows]
        self._parts.append(f'<div class="scroll"><table>{"".join(cells)}</table></div>')

    def bars(self, values: Sequence[tuple[str, float, str]]) -> None:
        """Add bars: what each is, how long, and the words beside it; the first is what others are held against."""
        most = max(value for _, value, _ in values)
        bars = [
            f'<div class="bar">{escape(label)}<div><span style="width: {75 * value / most:.1f}%"></span>'
            f"<b>{escape(said)}</b></div></div>"
            for label, value, said in values
        ]
        self._parts.append(f"<div>{''.join(bars)}</div>")

    def picture(self, picture: Picture, caption: str) -> None:
        """Add a picture; the file holds all of it."""
        self._parts.append(f"<figure>{picture.html()}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """The page."""
        title = escape(self.title)
        head = (
            '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{title}</title><style>{_STYLE}</style>"
        )
        body = "\n".join(self._parts)
        return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n'

    def write(self, path: Path) -> None:
        """Write the page."""
        path.write_text(self.html(), encoding="utf-8")
