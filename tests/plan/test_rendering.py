"""A plan as notebooks and terminals show it."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from dovetail.plan.rendering import Shown, show

PLAN = """\
theta join, batch, how='inner'
  inputs      R, S
  join        R with S
    where     ABS(R.id - S.id) <= 3 AND R.t < '<b>'
    kernel    range: sorted points, one run for each box
  FROM in line 1: A, B: Spark"""


class Rows(HTMLParser):
    """The texts of the cells of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.rows[-1][-1] += data


def test_every_line_is_a_row_with_its_label_beside_its_words():
    page = Rows()
    page.feed(Shown(PLAN)._repr_html_())
    assert page.open == []
    assert page.rows == [
        ["theta join, batch, how='inner'"],
        ["inputs", "R, S"],
        ["join", "R with S"],
        ["where", "ABS(R.id - S.id) <= 3 AND R.t < '<b>'"],
        ["kernel", "range: sorted points, one run for each box"],
        ["FROM in line 1: A, B: Spark"],
    ]


def test_no_colour_of_its_own_so_that_light_and_dark_pages_both_read():
    styles = re.findall(r"(?:^|[;\"])(color|background[a-z-]*):([^;\"]+)", Shown(PLAN)._repr_html_())
    assert set(styles) == {("background", "none")}


@pytest.mark.parametrize("shell", [None, object()])
def test_ipython_gets_the_table_and_everyone_else_the_text(shell, monkeypatch, capsys):
    displayed = []
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))
    show(PLAN)
    if shell is None:
        assert capsys.readouterr().out == PLAN + "\n"
    else:
        assert displayed == [Shown(PLAN)]
        assert repr(displayed[0]) == PLAN
        assert capsys.readouterr().out == ""
