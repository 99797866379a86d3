"""``python -m dovetail`` is the command ``dovetail``."""

from __future__ import annotations

import sys

from dovetail.errors import missing_extra

# What the extra `cli` installs.
_PACKAGES = ("pydantic", "rich", "typer", "yaml")


def main() -> None:
    """Run the command, or say what it lacks: its packages are not among those that joins need."""
    try:
        from dovetail.command.cli import app
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        print(missing_extra(f"the command dovetail needs {error.name}, which is not installed", "cli"), file=sys.stderr)
        sys.exit(2)
    app(prog_name="dovetail")


if __name__ == "__main__":
    main()
