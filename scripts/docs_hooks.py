"""Hooks of the documentation site.

Reports outside docs/ become pages, so that links to them work on the site too; the address of the repository comes from
pyproject.toml; docstrings, which are written for Python and Sphinx, become Markdown.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from griffe import Attribute, Extension, Function, Object
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ("benchmarks/*.md", "benchmarks/*.svg", "chaos/README.md", "experiments/*/README.md")
# docs/ is the root of the site: one step up less than in the repository.
UP = re.compile(r"\]\(\.\./((?:\.\./)*)(?=benchmarks/|chaos/|experiments/)")
BACK = re.compile(r"\]\(((?:\.\./)+)docs/")


def on_config(config: Any) -> Any:
    """Link to the repository, whose address stands in one place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    config.repo_url = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    config.repo_name = config.repo_url.rstrip("/").rpartition("/")[2]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the reports of benchmarks and experiments, and their plots, at their own paths."""
    for pattern in REPORTS:
        for path in sorted(ROOT.glob(pattern)):
            made = File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
            # Pages of the site link to them; the navigation has no place for each.
            made.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(made)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """In the repository docs/ is a folder of its own; on the site it is the root."""
    if page.file.src_uri.startswith(("benchmarks/", "chaos/", "experiments/")):
        return BACK.sub(r"](\1", markdown)
    return UP.sub(r"](\1", markdown)


TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
TAGS = re.compile(r"<[^>]+>")
LONG = re.compile(r"<code>([^<\s]{23,})</code>")
# After a slash, an underscore or two colons.
BETWEEN = re.compile(r"(?<=[/_])|(?<=::)")
SHORT = re.compile(r"<code>([^<\s]{1,22})</code>")


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Let each cell of a table know its heading: a narrow screen shows rows as cards (docs/assets/site.css)."""
    return TABLE.sub(lambda found: with_labels(found[0]), html)


def with_labels(table: str) -> str:
    """A table whose cells carry the words of their column.

    Examples
    --------
    >>> with_labels("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>")
    '<table><tr><th>a</th><th>b</th></tr><tr><td data-label="a">1</td><td data-label="b">2</td></tr></table>'
    """
    labels = [TAGS.sub("", label).strip() for label in re.findall(r"<th\b[^>]*>(.*?)</th>", table, re.DOTALL)]

    def row(found: re.Match[str]) -> str:
        numbers = iter(range(len(labels)))
        return re.sub("<td", lambda cell: f'<td data-label="{labels[next(numbers)]}"', found[0])

    table = ROW.sub(row, table)
    # A short name stays whole; a long one, such as that of a test, breaks between its words.
    table = SHORT.sub(r'<code class="short">\1</code>', table)
    return LONG.sub(lambda found: f"<code>{BETWEEN.sub(r'<wbr>', found[1])}</code>", table)


# ------------------------------------------------------------------------------------------------- the API reference

ROLE = re.compile(r":(?:func|class|meth|mod):`~?(?:(?P<package>dovetail|pyspark)\.)?(?P<name>[\w.]+)`")
# The type of a parameter, or of what comes back, is code already.
TYPE = re.compile(rf"^(?P<before>(?:\w+ : )?){ROLE.pattern}$", re.MULTILINE)
SEE_ALSO = re.compile(r"^(?P<head>See Also\n-+\n)(?P<lines>(?:.+\n?)+)", re.MULTILINE)
TERM = re.compile(r"^( *)(``[^\n]+)\n\1 {4}(?=\S)", re.MULTILINE)


def as_markdown(text: str, public: frozenset[str]) -> str:
    """A numpydoc docstring whose references are links to the pages of the reference.

    Examples
    --------
    >>> as_markdown("Takes :func:`dovetail.sql`, a :class:`pyspark.sql.DataFrame`.", frozenset({"sql"}))
    'Takes [`sql`][dovetail.sql], a `DataFrame`.'
    """

    def link(name: str) -> str:
        return f"[`{name}`][dovetail.{name}]" if name in public else f"`{name.rpartition('.')[2]}`"

    def listed(found: re.Match[str]) -> str:
        lines = [line.partition(" : ") for line in found["lines"].strip().splitlines()]
        items = [f"- {', '.join(link(name) for name in names.split(', '))}: {what}" for names, _, what in lines]
        return found["head"] + "\n".join(items) + "\n"

    text = TYPE.sub(lambda found: found["before"] + found["name"].rpartition(".")[2], text)
    text = ROLE.sub(lambda found: link(found["name"]), text)
    text = SEE_ALSO.sub(listed, text)
    # A blank line ends expected output; doctest needs a word for it, a reader does not.
    text = re.sub(r"^<BLANKLINE>\n?", "", text, flags=re.MULTILINE)
    return TERM.sub(r"\n\1\2\n\1:   ", text)


class Docstrings(Extension):
    """Griffe's extension: every docstring of the package as Markdown, once it is loaded."""

    def on_object(self, *, obj: Object, loader: Any, **kwargs: Any) -> None:
        """Rewrite one docstring, and show the value of a default that has a name."""
        if isinstance(obj, Function):
            for parameter in obj.parameters:
                constant = obj.module.members.get(str(parameter.default))
                if isinstance(constant, Attribute) and constant.value is not None:
                    parameter.default = constant.value
        if obj.docstring is not None:
            root = ROOT / "src" / "dovetail" / "__init__.py"
            names = frozenset(re.findall(r'^    "(\w+)",$', root.read_text(encoding="utf-8"), re.MULTILINE))
            obj.docstring.value = as_markdown(obj.docstring.value, names)
