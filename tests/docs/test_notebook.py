"""The notebook in examples/ runs, and what its cells end with renders."""

from __future__ import annotations

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, object]) -> object:
    """Run a cell as a notebook does: the value of a last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_notebook(spark, capsys):
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    names: dict[str, object] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    spark.conf.set("spark.sql.repl.eagerEval.enabled", True)
    frame, pictures = shown[1], [shown[3], shown[4]]
    table = frame._repr_html_()
    spark.conf.unset("spark.sql.repl.eagerEval.enabled")
    assert "<table" in table
    assert table.count("<tr>") == 6  # a heading and five rows
    assert "theta join, batch" in capsys.readouterr().out
    assert all(picture._repr_png_().startswith(b"\x89PNG") for picture in pictures)
