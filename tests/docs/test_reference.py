"""The reference has every public name, once, and describes parameters once."""

from __future__ import annotations

import doctest
import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

import dovetail
from dovetail.plots import charts

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"^::: dovetail\.([\w.]+)$", re.MULTILINE)


def test_every_public_name_is_there_once():
    found = Counter(name for page in PAGES for name in DIRECTIVE.findall(page.read_text(encoding="utf-8")))
    # A module has no page of its own: its charts stand under its heading.
    wanted = {name for name in dovetail.__all__ if name != "plot"} | {f"plots.charts.{name}" for name in charts.__all__}
    assert found == Counter(wanted)


def test_the_first_page_lists_every_public_name():
    page = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page))
    errors = {name for name in dovetail.__all__ if name.endswith("Error")} - {"DovetailError"}
    assert set(dovetail.__all__) - errors <= listed


def test_no_other_page_has_a_table_of_parameters():
    for page in (ROOT / "docs").glob("**/*.md"):
        assert "| parameter |" not in page.read_text(encoding="utf-8"), page.name


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def as_markdown(hooks):
    return hooks.as_markdown


def test_the_examples_of_the_hooks(hooks):
    assert doctest.testmod(hooks) == doctest.TestResults(failed=0, attempted=2)


def test_references_become_links(as_markdown):
    text = "Takes :func:`sql`.\n\nSee Also\n--------\nsql, metrics : Both.\nlost : Unknown.\n"
    wanted = (
        "Takes [`sql`][dovetail.sql].\n\nSee Also\n--------\n"
        "- [`sql`][dovetail.sql], [`metrics`][dovetail.metrics]: Both.\n- `lost`: Unknown.\n"
    )
    assert as_markdown(text, frozenset({"sql", "metrics"})) == wanted


def test_a_type_stays_plain(as_markdown):
    text = "frame : :class:`pyspark.sql.DataFrame`\n    A frame.\n"
    assert as_markdown(text, frozenset()) == "frame : DataFrame\n    A frame.\n"


def test_terms_become_a_list_of_definitions_and_blank_lines_of_output_vanish(as_markdown):
    assert as_markdown("``a``, ``b``\n    What.\n", frozenset()) == "\n``a``, ``b``\n:   What.\n"
    assert as_markdown("    ``a`` (default)\n        what;", frozenset()) == "\n    ``a`` (default)\n    :   what;"
    assert as_markdown(">>> f()\n+-+\n<BLANKLINE>\n", frozenset()) == ">>> f()\n+-+\n"
