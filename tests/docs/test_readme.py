"""The code blocks of the README run, in order, as one program, and print what it shows."""

from __future__ import annotations

from tests.docs.pages import ROOT, complaint, run


def test_readme_runs(spark, broadcasts):
    ran = list(run(ROOT / "README.md", {"__name__": "__main__", "spark": spark}))
    assert ran, "README.md has no Python code block"
    wrong = [f"README.md:{one.line}: {said}" for one in ran if (said := complaint(one))]
    assert not wrong, "\n\n".join(wrong)
