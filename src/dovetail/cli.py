"""The command line: ``dovetail demo``, ``dovetail --version``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from dovetail.errors import DovetailError

app = typer.Typer(
    name="dovetail",
    help="The joins Apache Spark lacks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        import dovetail

        typer.echo(f"dovetail {dovetail.__version__} (PySpark {version('pyspark')})")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """The joins Apache Spark lacks."""


@app.command()
def demo(
    rows: Annotated[
        int | None,
        typer.Option(min=4_000, max=20_000_000, help="Rows of each side of the large join (400000; quick: 40000)."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller tables and a shorter stream.")] = False,
) -> None:
    """Run three joins on made-up data: a small one, a large one beside Spark's own, and a stream."""
    # Here and not above: --help and --version need neither Spark nor the compiler.
    from dovetail import demo as acts
    from dovetail.spark.quiet import SPARK_ERRORS, quiet_session

    failures: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
    sizes = acts.Sizes.of(rows, quick=quick)
    handle, name = tempfile.mkstemp(prefix="dovetail-demo-", suffix=".log")
    log = Path(name)
    try:
        open(handle, "wb").close()  # noqa: PTH123 - the handle is open already
        with tempfile.TemporaryDirectory(prefix="dovetail-demo-") as folder:
            acts.run(Console(), lambda: quiet_session("dovetail-demo", log, conf=acts.CONF), Path(folder), sizes)
    except DovetailError as error:
        _fail(str(error), log)
    except failures as error:
        _fail(_brief(error), log)
    except KeyboardInterrupt:
        _fail("interrupted", log)
    log.unlink(missing_ok=True)


def _brief(error: Exception) -> str:
    """The first lines of a message; those of Spark carry the traces of two languages after them."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return "\n".join(lines[:3])


def _fail(message: str, log: Path) -> NoReturn:
    """Say what went wrong, keep the log if there is anything in it, and end with exit code 1."""
    errors = Console(stderr=True)
    errors.print(f"[bold red]dovetail:[/] {escape(message)}")
    if log.stat().st_size:
        errors.print(f"Spark's own messages are in {escape(str(log))}", soft_wrap=True)
    else:
        log.unlink()
    raise typer.Exit(1)
