"""The table of verdicts over all papers says what the page of each experiment says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "experiments").glob("*/README.md"))
ROW = re.compile(r"^\| (?:\[(\w+)\]\([^)]*\)|(all)) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)


def table() -> dict[str, tuple[int, ...]]:
    found = ROW.findall((ROOT / "docs" / "papers.md").read_text(encoding="utf-8"))
    return {paper or every: tuple(map(int, counts)) for paper, every, *counts in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_verdicts_are_those_of_the_page(page):
    text = page.read_text(encoding="utf-8")
    (told,) = re.findall(r"^(\d+) of (\d+) hold, (\d+) do not, (\d+) are undecided\.$", text, re.MULTILINE)
    hold, claims, fail, undecided = map(int, told)
    assert table()[page.parent.name] == (claims, hold, fail, undecided)
    assert claims == hold + fail + undecided


def test_the_last_row_is_the_sum():
    found = table()
    total = found.pop("all")
    assert len(found) == len(PAGES) == 5
    assert total == tuple(map(sum, zip(*found.values(), strict=True)))
