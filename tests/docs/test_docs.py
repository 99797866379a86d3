"""The code blocks of the pages in docs/ run, each page as one program of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import Ran, complaint, pages, run, write

import dovetail

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages()
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#\s]+)")


def named(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/")


def test_there_are_pages():
    assert {named(page) for page in PAGES} >= {"how-it-works", "theta", "reference/index"}


@pytest.fixture
def _settings_of_its_own(spark):
    """A page may set the number of partitions of its session, which the next page has here, too."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.in_turns(n=12)
@pytest.mark.parametrize("page", PAGES, ids=named)
@pytest.mark.usefixtures("_settings_of_its_own")
# As users have it: small inputs are broadcast.
def test_page_runs_and_prints_what_it_shows(page, spark, broadcasts):
    ran = list(run(page, {"__name__": "__main__", "spark": spark}))
    assert ran, f"{page.name} has no Python code block"
    wrong = [f"{page.name}:{one.line}: {said}" for one in ran if (said := complaint(one))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(
    ("printed", "shown", "said"),
    [
        ("a", "a", None),
        ("", None, None),
        ("a 1.5 s\nb", "a ... s\nb", None),
        ("a\nb\nc", "a\n...", None),
        ("a", None, "does not show it"),
        ("a", "b", "the block prints"),
        ("a\nb", "a", "the block prints"),
        ("", "a", "the block prints"),
    ],
)
def test_what_a_page_shows_is_compared(printed, shown, said):
    found = complaint(Ran(1, printed, shown, None))
    assert found is None if said is None else said in found


def test_what_blocks_print_is_written_into_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("A.\n\n```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nprint(3)\n```\n", encoding="utf-8")
    write(page, {})
    assert [complaint(one) for one in run(page, {})] == [None, None]
    assert page.read_text(encoding="utf-8").count("```text") == 2


def test_every_class_of_errors_is_explained():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    for name in dovetail.__all__:
        found = getattr(dovetail, name)
        if isinstance(found, type) and issubclass(found, dovetail.DovetailError):
            assert f"`dt.{name}`" in page


def test_the_messages_in_troubleshooting_exist():
    """Each message that the page quotes stands in the source, between its dots word for word."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = text[text.index("## Messages of Dovetail") : text.index("## Messages of Spark")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    quoted = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) > 30
    source = "".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.py")))
    # A message may stand in two neighbouring literals, and has values where the page has dots.
    source = re.sub(r'"\s*f?"', "", source)
    for message in quoted:
        if message.startswith(("job.yaml", "SQL, line", "on, line", "dt.")):
            continue
        for part in filter(str.strip, message.split("...")):
            assert part.strip() in source, message


def test_the_tests_named_in_guarantees_exist():
    """A guarantee without the test that shows it is a wish."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 40
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in named if (ROOT / file).is_file()}
    missing = [f"{file}::{test}" for file, test in named if f"\ndef {test}(" not in sources.get(file, "")]
    missing += [file for file in re.findall(r"`(tests/[\w/]+\.py)`", text) if not (ROOT / file).is_file()]
    assert not missing
    for table in re.split(r"\n(?=## )", text)[1:]:
        rows = [line for line in table.splitlines() if line.startswith("|")][2:]
        for row in rows:
            # Nothing to show is said in every column, or a test shows it.
            said = [cell.strip() for cell in row.strip("|").split("|")][1:-1]
            idle = bool(said) and all(cell.startswith("there are none") for cell in said)
            assert "`tests/" in row or idle, row


BENCHMARK = re.compile(r"\]\(((?:\.\./)*benchmarks/\w+\.md)\)")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=named)
def test_figures_stand_in_the_benchmarks_that_the_page_names(page):
    """Seconds and ratios with a decimal point, in a paragraph or a row of a table that links to a benchmark."""
    text = page.read_text(encoding="utf-8")
    for part in re.split(r"\n\n|(?<=\|)\n", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
        reports = [(page.parent / link).read_text(encoding="utf-8") for link in BENCHMARK.findall(part)]
        figures = re.findall(r"\b\d+\.\d+\b(?= s\b| GiB| x\b)", part) if reports else []
        missing = [figure for figure in figures if not any(figure in report for report in reports)]
        assert not missing, part


def test_figures_are_found():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert len(re.findall(r"\d+\.\d+ s .*benchmarks/", index)) >= 4


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").glob("**/*.md")), *sorted(ROOT.glob("*.md"))], ids=named)
def test_links_lead_somewhere(page):
    missing = [
        link["path"]
        for link in LINK.finditer(page.read_text(encoding="utf-8"))
        if not (page.parent / link["path"]).exists()
    ]
    assert not missing
