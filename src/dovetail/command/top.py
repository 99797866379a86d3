"""What `dovetail top` shows: the progress file of a run, as it grows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.live import Live

from dovetail.command.view import run_view
from dovetail.errors import ArgumentError, closest, listing
from dovetail.watch.files import files, follow, is_running, no_progress_file, read_records, state_folder
from dovetail.watch.records import Record


def watch(console: Console, name: str | None, *, once: bool, interval: float) -> None:
    """Show a run until it ends; `once`, or where there is no terminal, as it is now."""
    file = choose(name)
    if once or not console.is_terminal:
        records = read_records(file)
        console.print(run_view(records, running=is_running(records)))
        return
    with Live(console=console, screen=False, auto_refresh=False) as live:
        for records in follow(file, interval):
            live.update(run_view(records, running=is_running(records), height=console.height), refresh=True)


def choose(name: str | None) -> Path:
    """The file of a run: by its path, by the name of its job, or the newest, those that run first."""
    if name is not None and Path(name).is_file():
        if _head(Path(name)) is None:
            raise no_progress_file(Path(name))
        return Path(name)
    heads = [(file, head) for file in files() if (head := _head_of_any(file)) is not None]
    jobs = [str(head.get("job")) for _, head in heads]
    if name is not None:
        heads = [(file, head) for file, head in heads if head.get("job") == name]
    if not heads:
        given = f"no run of {name!r} has left progress" if name is not None else "no run has left any progress"
        raise ArgumentError(
            f"{given} in {state_folder()}", accepted=f"a job that runs or ran: {listing(set(jobs))}",
            hint=(closest(name, jobs) if name else None) or "start one with: dovetail run job.yaml",
        )  # fmt: skip
    running = [file for file, _ in heads if is_running(read_records(file))]
    return running[0] if running else heads[0][0]


def _head(file: Path) -> Record | None:
    records = read_records(file)
    return records[0] if records and records[0].get("kind") == "start" else None


def _head_of_any(file: Path) -> Record | None:
    """The same of a file that somebody else may have put into the folder."""
    try:
        return _head(file)
    except (ArgumentError, OSError):
        return None
