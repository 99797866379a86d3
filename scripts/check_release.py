"""Whether a tag may be released: the version, the changelog and the address of the project agree with it.

``python scripts/check_release.py v1.2.3`` says what is wrong and exits with 1; ``--notes`` prints its part of the
changelog.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def version_in(init: str) -> str:
    """The version that the package names."""
    found = re.search(r'^__version__ = "([^"]+)"$', init, re.MULTILINE)
    return found[1] if found else "(none)"


def notes_of(version: str, changelog: str) -> str:
    r"""The changelog's section of a version; empty where it has none.

    Examples
    --------
    >>> notes_of("1.0", "## [Unreleased]\n\n## [1.0] - 2026-01-01\n\n- A.\n\n## [0.9] - 2025-01-01\n\n- B.\n")
    '- A.'
    """
    section = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    found = re.search(section, changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def problems(tag: str, *, init: str, changelog: str, repository: str) -> list[str]:
    """What keeps a tag from being released, in sentences.

    Examples
    --------
    >>> problems("v2", init='__version__ = "1"', changelog="", repository="https://host/OWNER/x")[0]
    'the tag v2 is not v1, the version in src/dovetail/__init__.py'
    """
    version = version_in(init)
    found = []
    if tag != f"v{version}":
        found.append(f"the tag {tag} is not v{version}, the version in src/dovetail/__init__.py")
    if not notes_of(version, changelog):
        found.append(f"CHANGELOG.md has no section '## [{version}] - date' with anything in it")
    if "OWNER" in repository:
        found.append(f"repository = {repository!r} in pyproject.toml is still the placeholder")
    return found


def main(arguments: list[str]) -> int:
    """Check a tag, or print its notes."""
    tag = arguments[-1]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if "--notes" in arguments:
        print(notes_of(tag.removeprefix("v"), changelog))
        return 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = problems(
        tag,
        init=(ROOT / "src" / "dovetail" / "__init__.py").read_text(encoding="utf-8"),
        changelog=changelog,
        repository=project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"],
    )
    for problem in found:
        print(f"not released: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python scripts/check_release.py [--notes] TAG")
    sys.exit(main(sys.argv[1:]))
