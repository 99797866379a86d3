"""What `dovetail run` and `dovetail explain` do with a job file, and show meanwhile."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dovetail.command.signals import Stopped, stop_requests
from dovetail.command.view import batch_line, figure, run_view
from dovetail.jobs import Job
from dovetail.jobs.read import check_paths
from dovetail.plan.rendering import folded
from dovetail.watch.advice import target_note
from dovetail.watch.files import ProgressFile
from dovetail.watch.records import Record, tasks_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dovetail.jobs.build import BuiltJob

_WRITE_TASKS_EVERY = 1.0


def explain_job(console: Console, job: Job, log: Path, *, sample: bool = False) -> None:
    """Say what a job would do: its inputs, the plan of its join, its output.

    Runs nothing but schema inference, unless a sample is asked for.
    """
    _prepare(console, job)
    with _session(console, job, log) as spark:
        _explained(console, job, spark, sample=sample)


def run_job(console: Console, job: Job, log: Path) -> None:
    """Run a job to its end, or until the user stops it."""
    _prepare(console, job)
    with _session(console, job, log) as spark:
        from dovetail.jobs.build import BuiltJob

        built = BuiltJob(job, spark)
        _summary(console, job)
        with stop_requests() as stop, ProgressFile(job.name, job.mode, **built.described()) as run:
            (_run_stream if job.mode == "stream" else _run_batch)(console, built, run, stop)


def _prepare(console: Console, job: Job) -> None:
    """Make the data that the job wants made, and see that its inputs are there."""
    wanted = job.generate
    if wanted is not None and not Path(wanted.into).exists():
        from dovetail.datasets.files import write

        with console.status(f"Making the data set {wanted.dataset} ..."):
            folders = write(wanted.dataset, Path(wanted.into), **wanted.arguments)
        console.print(f"made {len(folders)} folders of data in {escape(wanted.into)}", soft_wrap=True)
    check_paths(job)


@contextmanager
def _session(console: Console, job: Job, log: Path) -> Iterator[SparkSession]:
    from dovetail.spark.runtime.quiet import quiet_session
    from dovetail.spark.runtime.session import SessionWarning

    chosen = {"spark.master": job.session.master, "spark.driver.memory": job.session.driver_memory}
    conf: dict[str, object] = {"spark.ui.showConsoleProgress": False, **job.session.conf}
    conf.update({key: value for key, value in chosen.items() if value is not None})
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # Under spark-submit or on Spark Connect the session is the submitter's, and so are its settings.
            warnings.simplefilter("ignore", SessionWarning)
            starting = quiet_session(f"dovetail {job.name}", log, conf=conf)
            with console.status("Starting Spark ..."):
                spark = stack.enter_context(starting)
        yield spark


def _summary(console: Console, job: Job) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for what, how in job.summary():
        table.add_row(Text(what, style="bold"), Text(how, overflow="fold"))
    console.print(table)


def _explained(console: Console, job: Job, spark: SparkSession, *, sample: bool) -> None:
    from dovetail.jobs.build import BuiltJob

    built = BuiltJob(job, spark)
    _summary(console, job)
    console.print()
    plan = built.plan(sample=sample)
    console.print(Text(folded(plan, console.width) if console.is_terminal else plan), soft_wrap=True)
    console.print()
    console.print(Text(f"columns: {built.schema()}"), soft_wrap=True)
    console.print("The inputs were counted, and samples of them joined." if sample else "Nothing has run.")


# ---------------------------------------------------------------------------------------------------------- batch


def _run_batch(console: Console, built: BuiltJob, run: ProgressFile, stop: threading.Event) -> None:
    began = time.perf_counter()
    pool = ThreadPoolExecutor(1)
    try:
        done = pool.submit(built.write)
        _wait(console, built, done, stop, run)
        if stop.is_set() and not _ended(console, built, done):
            run.status = "stopped"
            raise Stopped("stopped before the job was done; the next run starts over")
        done.result()
    finally:
        # Who interrupts twice does not wait.  The thread ends with the session.
        pool.shutdown(wait=False)
    run.status = "finished"
    seconds = time.perf_counter() - began
    counters = built.counters()
    run.write(
        {"kind": "batch", "batch": 0, "seconds": seconds, "results": counters.get("results"), "counters": counters}
    )
    if counters:
        _counters(console, counters)
    console.print(f"finished in {seconds:.1f} s")


def _ended(console: Console, built: BuiltJob, done: Future[None]) -> bool:
    """Cancel a batch job that is to stop; whether it came to its end before that."""
    console.print("stopping: the running tasks are cancelled")
    while not done.done():
        # Once is not enough: between two of its Spark jobs there is nothing to cancel.
        built.cancel()
        wait([done], timeout=1)
    return done.exception() is None


def _wait(console: Console, built: BuiltJob, done: Future[None], stop: threading.Event, run: ProgressFile) -> None:
    """Show and write the tasks of a batch job until it is done or to stop.

    The main thread waits, because signals reach it.
    """
    from dovetail.spark.queries import running_tasks

    written, last = (0, 0), time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        shown = progress.add_task("running", total=None)
        while not done.done() and not stop.wait(0.2):
            counted = running_tasks(built.spark)
            if counted is not None and counted[1]:
                finished, total = counted
                progress.update(shown, completed=finished, total=total, description=f"{finished} of {total} tasks")
                if counted != written and time.monotonic() - last > _WRITE_TASKS_EVERY:
                    written, last = counted, time.monotonic()
                    run.write(tasks_record(finished, total))


def _counters(console: Console, counters: Mapping[str, Any]) -> None:
    steps = counters if all(isinstance(value, dict) for value in counters.values()) else {"join": counters}
    for name, counts in steps.items():
        table = Table(box=box.SIMPLE, title=None if len(steps) == 1 else escape(str(name)), title_justify="left")
        table.add_column("counted")
        table.add_column("", justify="right")
        for key, value in counts.items():
            table.add_row(str(key), figure(value))
        console.print(table)


# --------------------------------------------------------------------------------------------------------- stream


def _run_stream(console: Console, built: BuiltJob, run: ProgressFile, stop: threading.Event) -> None:
    from dovetail.jobs.build import follow
    from dovetail.spark.runtime.failures import ANSWERS, is_jvm_gone

    records: list[Record] = [run.start]
    query = built.start()
    console.print(
        f"the stream runs; Ctrl-C stops it after its micro-batch; [bold]dovetail top[/] shows {run.path.name}"
    )
    waiting = Spinner("dots", "the first micro-batch runs; it starts Python workers, too")
    live = Live(waiting, console=console, refresh_per_second=4) if console.is_terminal else None

    def show(status: str | None = None) -> None:
        if live is not None:
            live.update(run_view(records, running=True, height=console.height, status=status))
        elif status is not None:
            console.print(status)

    warned = False

    def report(record: Record) -> None:
        nonlocal warned
        run.write(record)
        records.append(record)
        show()
        note = None if warned else target_note(run.start.get("target"), records[-20:])
        if note is not None:
            warned = True
            console.print(f"[yellow]{note}[/]; docs/shedding.md says what can", soft_wrap=True)
        if live is None:
            console.print(batch_line(record), soft_wrap=True)

    with live or nullcontext():
        told = False

        def stopping() -> bool:
            nonlocal told
            if stop.is_set() and not told:
                told = True
                show("stopping after this micro-batch")
            return told

        try:
            follow(query, report, stopping)
        except ANSWERS as error:
            # Under spark-submit the JVM is the submitter's, and the signal that ends this process may end it first.
            # Its micro-batch is then repeated, as after a second Ctrl-C.
            if not (stop.is_set() and is_jvm_gone(error)):
                raise
    if stop.is_set():
        run.status = "stopped"
        raise Stopped("stopped; the next run goes on from here")
    run.status = "finished"
    total = sum(record.get("results") or 0 for record in records)
    console.print(f"finished: {len(records) - 1} micro-batches, {total:,} results")
