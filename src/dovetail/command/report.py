"""An HTML report in one file: headings, text, tables and pictures, without scripts and without the network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.plots.picture import Picture

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #8884; padding: .25rem .75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
pre { background: #8882; padding: .75rem; overflow-x: auto; border-radius: .25rem; }
img { max-width: 100%; background: white; border-radius: .25rem; }
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

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        """Add lines that keep their breaks."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        cells = [f"<tr>{''.join(f'<th>{escape(one)}</th>' for one in head)}</tr>"]
        cells += [f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in row)}</tr>" for row in rows]
        self._parts.append(f"<table>{''.join(cells)}</table>")

    def picture(self, picture: Picture, caption: str) -> None:
        """Add a picture; the file holds all of it."""
        self._parts.append(f"<figure>{picture.html()}<figcaption>{escape(caption)}</figcaption></figure>")

    def html(self) -> str:
        """The page."""
        title = escape(self.title)
        head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        body = "\n".join(self._parts)
        return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n{body}\n</body></html>\n'

    def write(self, path: Path) -> None:
        """Write the page."""
        path.write_text(self.html(), encoding="utf-8")
