"""The code blocks of the README run, in order, as one program."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_readme_runs(spark):
    text = README.read_text(encoding="utf-8")
    # A block may stand inside a list, so its fence may be indented; the code keeps its own indentation.
    blocks = list(re.finditer(r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```", text, re.DOTALL | re.MULTILINE))
    assert blocks, "README.md has no Python code block"
    names: dict[str, object] = {"__name__": "__main__", "spark": spark}
    for block in blocks:
        line = text.count("\n", 0, block.start("code"))
        code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        # Blank lines in front make tracebacks show the line of the README.
        exec(compile("\n" * line + code, str(README), "exec"), names)
