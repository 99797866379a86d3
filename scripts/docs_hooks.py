"""Hooks of the documentation site: reports outside docs/ become pages, so that links to them work on the site too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ("benchmarks/*.md", "chaos/README.md", "experiments/*/README.md")
UP = re.compile(r"\]\((?:\.\./)+(?=benchmarks/|chaos/|experiments/)")
BACK = re.compile(r"\]\(((?:\.\./)+)docs/")


def on_files(files: Files, config: Any) -> Files:
    """Add the reports of benchmarks and experiments at their own paths."""
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
    return UP.sub("](", markdown)
