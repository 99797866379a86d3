"""Asks PyPI which of the pinned packages have known vulnerabilities.

    python scripts/audit.py [requirements.txt]

pip-audit does the asking; uv fetches and runs it without installing it, so it is no dependency of its own.  By itself
pip-audit passes a package that it could not look up; here that is a failure, with a message of its own.
Exit codes: 0 nothing known, 1 vulnerabilities, 2 the audit could not be done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TOOL = "pip-audit>=2.9,<3"


def audit(requirements: Path, found: Path) -> str:
    """Run pip-audit; its report goes to `found`, what it says comes back."""
    command = [
        sys.executable, "-m", "uv", "tool", "run", "--from", TOOL, "pip-audit", "--requirement", str(requirements),
        "--no-deps", "--disable-pip", "--format", "json", "--output", str(found), "--progress-spinner", "off",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr


def verdict(report: dict[str, Any]) -> tuple[list[str], int]:
    """What to print about a report, and the exit code."""
    packages = report["dependencies"]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, "
        + (f"mended in {', '.join(flaw['fix_versions'])}" if flaw["fix_versions"] else "not mended yet")
        for one in packages
        for flaw in one.get("vulns", ())
    ]
    if lines:
        return [*lines, f"audit: {len(lines)} known vulnerabilities"], 1
    if skipped:
        few = ", ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        return [
            f"audit: NOT DONE for {len(skipped)} of {len(packages)} packages ({few})",
            "audit: PyPI's data on them cannot be reached from here; run it where https://pypi.org answers",
        ], 2
    return [f"audit: no known vulnerability in {len(packages)} packages"], 0


def main() -> int:
    """Audit the file named on the command line."""
    requirements = Path(sys.argv[1] if len(sys.argv) > 1 else "requirements.txt")
    with tempfile.TemporaryDirectory(prefix="dovetail-audit-") as folder:
        found = Path(folder) / "report.json"
        said = audit(requirements, found)
        if not found.is_file():
            last = said.strip().splitlines()[-1:] or ["pip-audit said nothing"]
            print(f"audit: NOT DONE, pip-audit could not be fetched or run: {last[0]}", file=sys.stderr)
            return 2
        lines, code = verdict(json.loads(found.read_text(encoding="utf-8")))
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
