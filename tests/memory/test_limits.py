"""Joins of more rows than their workers may hold: they finish with the right answer, or refuse in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run(folder: Path, *joins: str, **limits: str) -> list[dict[str, Any]]:
    """How joins end in a session of their own whose workers are limited."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in limits.items()]
    paths = [str(ROOT / "src"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.limited", str(folder), *joins, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"join"')]


def refused_in_words(report: dict[str, Any], join: str) -> bool:
    said = report.get("failed", "")
    return said.startswith(f"a cell of {join} ") and "accepted:" in said and "hint:" in said
