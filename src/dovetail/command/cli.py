"""The command line: ``dovetail demo``, ``run``, ``explain``, ``top``, ``watch``, ``state``, ``warm`` and so on."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from dovetail.command.signals import Stopped, terminable
from dovetail.errors import ArgumentError, DovetailError, JobError, visible

_CODES = "Exit codes: 0 done, 1 the job failed, 2 wrong usage or job file, 130 stopped with Ctrl-C or SIGTERM."
FAILED, USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="dovetail",
    help="The joins Apache Spark lacks.",
    epilog=_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ModeChoice(StrEnum):
    """How a job runs."""

    batch = "batch"
    stream = "stream"


JobFile = Annotated[Path, typer.Argument(help="The job file, in YAML; docs/jobs.md describes it.", show_default=False)]
Variables = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A value for ${NAME} in the job file.", show_default=False),
]
ModeOption = Annotated[
    ModeChoice | None, typer.Option("--mode", help="Run it so, instead of as the file says.", show_default=False)
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import import_module
        from importlib.metadata import PackageNotFoundError, version

        try:
            spark = f"PySpark {version('pyspark')}"
        except PackageNotFoundError:
            # One that spark-submit brings has no metadata; asking it would load it.
            spark = "no PySpark installed"
        # By its name: the package stands above its modules, none of which imports it.
        typer.echo(f"dovetail {import_module('dovetail').__version__} ({spark})")
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
    report: Annotated[
        Path | None,
        typer.Option(help="Where the HTML report with the figures goes (dovetail-demo.html).", show_default=False),
    ] = None,
) -> None:
    """Run four joins on made-up data, one beside Spark's own, and leave three to change."""
    # Here and not above: --help and --version need neither Spark nor the compiler.
    from dovetail.columns.numba_cache import always_compiled
    from dovetail.command import demo as acts
    from dovetail.spark.runtime.quiet import quiet_session

    sizes = acts.Sizes.of(rows, quick=quick)
    place = tempfile.TemporaryDirectory(prefix="dovetail-demo-")
    with _reporting("dovetail-demo-") as log, always_compiled(), place as folder:
        acts.run(
            Console(),
            lambda: quiet_session("dovetail-demo", log, conf=acts.CONF),
            Path(folder),
            sizes,
            report=report or Path("dovetail-demo.html"),
        )


@app.command(epilog=_CODES)
def run(
    job: JobFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and explain the job; run nothing.")] = False,
    mode: ModeOption = None,
    once: Annotated[bool, typer.Option("--once", help="Let a stream take what is there, and end.")] = False,
    variables: Variables = None,
) -> None:
    """Run a job file: sources, a join, a sink, in batch or as a stream.

    A stream shows its micro-batches while it runs.  Ctrl-C lets the current one end and stops the stream; started
    again, it goes on where it stopped.  A second Ctrl-C stops at once.
    """
    from dovetail.command import running
    from dovetail.jobs import read_job

    values = _assignments(variables)
    with _reporting("dovetail-run-") as log:
        read = read_job(job, variables=values, mode=mode.value if mode else None, once=once)
        if dry_run:
            running.explain_job(Console(), read, log)
            return
        try:
            running.run_job(Console(), read, log)
        except Stopped as stopped:
            Console().print(str(stopped))
            raise typer.Exit(INTERRUPTED) from None


@app.command(epilog=_CODES)
def explain(
    job: JobFile,
    mode: ModeOption = None,
    variables: Variables = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Count the inputs and join samples of them, to tell rows and seconds.")
    ] = False,
) -> None:
    """Explain a job file: its inputs, the plan of its join, its output.  Runs nothing without --sample."""
    from dovetail.command import running
    from dovetail.jobs import read_job

    values = _assignments(variables)
    with _reporting("dovetail-explain-") as log:
        read = read_job(job, variables=values, mode=mode.value if mode else None)
        running.explain_job(Console(), read, log, sample=sample)


@app.command()
def top(
    name: Annotated[
        str | None, typer.Argument(help="A job or a progress file; the newest run by default.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the run as it is, and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Watch a running job: rates, lag, state, throttle, recall, results."""
    from dovetail.command import top as watching

    with _interruptible():
        try:
            watching.watch(Console(), name, once=once, interval=interval)
        except DovetailError as error:
            _fail(str(error), None, USAGE)
        except OSError as error:
            _fail(str(error), None, FAILED)


@app.command()
def watch(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|URL]",
            help="A progress file, a folder of them, or the address of another console; the state folder by default.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 for any port that is free.")] = 4050,
    host: Annotated[
        str | None,
        typer.Option(help="Let others in, at this address of the machine; they need the token.", show_default=False),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DOVETAIL_TOKEN", help="What others must bring; made and printed unless given.", show_default=False
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(help="The SQLite file of the history; beside the progress files.", show_default=False),
    ] = None,
    days: Annotated[float, typer.Option(min=0.1, max=3650, help="How long history is kept.")] = 30.0,
) -> None:
    """Show all runs in the browser, with their history: rates, latency, state, throttle, recall, warnings."""
    from dovetail.command import watch as watching

    with _interruptible():
        try:
            watching.run(Console(), source, host=host, port=port, token=token, history=history, days=days)
        except DovetailError as error:
            _fail(str(error), None, USAGE)
        except (OSError, sqlite3.Error) as error:
            _fail(str(error), None, FAILED)


@app.command()
def state(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a streaming query.", show_default=False)],
    cells: Annotated[bool, typer.Option("--cells", help="List the largest cells.")] = False,
    samples: Annotated[int, typer.Option(min=0, max=1000, help="Rows of each cell and input to show.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object.")] = False,
) -> None:
    """Show what a streaming join holds: rows, bytes, times, skew, and what goes next.  The query may run meanwhile."""
    from dovetail.command import state as looking

    with _reporting("dovetail-state-") as log:
        looking.run(Console(), checkpoint, log, cells=cells, samples=samples, as_json=as_json)


@app.command()
def migrate(
    old: Annotated[str, typer.Argument(help="The checkpoint of a query that has stopped.", show_default=False)],
    new: Annotated[str, typer.Argument(help="The checkpoint to make, a folder that is not there.", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="State partitions of the new checkpoint.", show_default=False),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(help="A job file whose join has changed since the checkpoint was written.", show_default=False),
    ] = None,
    variables: Variables = None,
) -> None:
    """Make a checkpoint from which a streaming join goes on where it stopped, in other partitions or changed.

    The old checkpoint is only read.  A window join is then started with partitions= as many, or in a session with as
    many shuffle partitions.  With --job it is made for the join of that file, and what has changed is printed.
    """
    from dovetail.command import migrate as moving

    if partitions is None and job is None:
        _fail("neither --partitions nor --job says what is to change", None, USAGE)
    values = _assignments(variables)
    with _reporting("dovetail-migrate-") as log:
        if job is None:
            moving.run(Console(), old, new, partitions or 1, log)
            return
        from dovetail.jobs import read_job

        moving.change(Console(), old, new, read_job(job, variables=values, mode="stream"), partitions, log)


@app.command()
def warm(
    classes: Annotated[
        bool, typer.Option(help="Keep the classes of the JVM as well: 200 MB in the user's cache folder.")
    ] = True,
) -> None:
    """Compile every kernel into the cache, so that no first join waits for it, and let the next JVM start faster."""
    from dovetail.command import warm as warming

    with _reporting("dovetail-warm-") as log:
        warming.run(Console(), log, classes=classes)


@app.command()
def ship(
    archive: Annotated[Path, typer.Argument(help="The file to make, such as dovetail.zip.", show_default=False)],
    cpu: Annotated[str, typer.Option(help="The processor of the cluster, by LLVM's name.")] = "generic",
) -> None:
    """Make one file for a cluster: the package, and its kernels compiled for the processors there."""
    from dovetail.command import ship as shipping

    with _reporting("dovetail-ship-"):
        shipping.run(Console(), archive, cpu)


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks of the checkout, such as theta.", show_default=False)
    ] = None,
    rows: Annotated[int, typer.Option(min=1_000, max=20_000_000, help="Rows of each side of the comparison.")] = 40_000,
) -> None:
    """Measure: the benchmarks of a checkout, or else a small comparison with Spark's own join."""
    from dovetail.command import bench as measuring

    with _reporting("dovetail-bench-") as log:
        measuring.run(Console(), names or [], rows, log)


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="The data set, such as cameras or trades.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where the folders of its tables go.", show_default=False)],
) -> None:
    """Write a made-up data set as Parquet files, to try things on."""
    from dovetail.datasets.files import write

    try:
        for one in write(name, folder):
            typer.echo(one)
    except DovetailError as error:
        _fail(str(error), None, USAGE)
    except OSError as error:
        _fail(str(error), None, FAILED)


def _assignments(given: list[str] | None) -> dict[str, str]:
    pairs = [one.partition("=") for one in given or []]
    for name, equals, _ in pairs:
        if not equals or not name.strip():
            raise typer.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--set")
    return {name.strip(): value for name, _, value in pairs}


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        with terminable():
            yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _reporting(prefix: str) -> Iterator[Path]:
    """A log file for Spark; failures become messages and exit codes, and keep the log if there is anything in it."""
    from dovetail.spark.runtime.failures import SPARK_ERRORS, brief

    failures: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=".log")
    log = Path(name)
    try:
        open(handle, "wb").close()  # noqa: PTH123 - the handle is open already
        with terminable():
            yield log
    except (JobError, ArgumentError) as error:
        log.unlink(missing_ok=True)
        _fail(str(error), None, USAGE)
    except DovetailError as error:
        _fail(str(error), log, FAILED)
    except failures as error:
        _fail(brief(error), log, FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", log, INTERRUPTED)
    except typer.Exit:
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)


def _fail(message: str, log: Path | None, code: int) -> NoReturn:
    """Say what went wrong, keep the log if there is anything in it, and end."""
    errors = Console(stderr=True)
    errors.print(f"[bold red]dovetail:[/] {escape(visible(message))}", soft_wrap=True, highlight=False)
    if log is not None and log.exists():
        if log.stat().st_size:
            errors.print(f"Spark's own messages are in {escape(str(log))}", soft_wrap=True)
        else:
            log.unlink()
    raise typer.Exit(code)
