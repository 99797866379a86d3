"""The notebook in examples/ runs, what its cells end with renders, and nothing of it is red."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def sources() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, object]) -> object:
    """Run a cell as a notebook does: the value of a last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_notebook(spark, capsys, broadcasts):
    names: dict[str, object] = {}
    shown = [run_cell(source, names) for source in sources()]
    tables = [frame._repr_html_() for frame in (shown[2], shown[4])]
    spark.conf.unset("spark.sql.repl.eagerEval.enabled")
    for table, named in zip(tables, (["a.id", "a.value", "b.id", "b.value"], ["trade.ts", "quote.bid"]), strict=True):
        assert table.count("<tr>") == 6  # a heading and five rows
        # Fields of the structs under their names.
        assert all(f"<th>{name}</th>" in table for name in named)
    said = capsys.readouterr().out
    assert "theta join, batch" in said
    assert "|-- value: double" in said
    assert all(picture._repr_png_().startswith(b"\x89PNG") for picture in (shown[5], shown[6]))


RENDERED = """
from tests.docs.test_notebook import run_cell, sources

names = {}
for source in sources():
    shown = run_cell(source, names)
    for form in ("_repr_html_", "_repr_png_"):
        getattr(shown, form, lambda: None)()
names["spark"].stop()
"""


@pytest.mark.slow
def test_a_notebook_shows_nothing_red():
    """What a session of its own, its JVM and its workers write to the standard error, a notebook shows in red."""
    root = NOTEBOOK.parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", RENDERED],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
