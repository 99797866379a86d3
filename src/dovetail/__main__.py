"""``python -m dovetail`` is the command ``dovetail``."""

from dovetail.command.cli import app

if __name__ == "__main__":
    app(prog_name="dovetail")
