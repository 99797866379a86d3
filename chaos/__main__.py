"""The commands: ``python -m chaos kill``, ``python -m chaos break`` and ``python -m chaos soak``."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from chaos.breaking import Scene, break_one
from chaos.families import GROUPS, REPEATED
from chaos.faults import FAULTS
from chaos.inputs import write_inputs
from chaos.killing import HungError, Hunt, batches, plan
from chaos.rereading import files_by_batch, write_again
from chaos.soak import draw, soak
from chaos.verify import verify
from chaos.victim import place_of

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
# A log file has no width of its own, and a table of 80 characters would break every word.
console = Console(log_path=False, width=None if sys.stdout.isatty() else 140)

KILLED = ("driver", "executor", "worker")
COLUMNS = ("family", *(f"{kind}s" for kind in KILLED), "amid a batch", "starts", "batches", "rows", "verdict")
"""Of the table: kills by kind, those during a micro-batch of the family, and the outcome."""


@app.callback()
def main() -> None:
    """Streams under fire, and streams that run for long."""


@app.command()
def kill(
    seed: Annotated[int, typer.Option(help="Decides the input and every kill.")] = 1,
    kills: Annotated[int, typer.Option(help="Kills over all groups; more rounds follow until there are as many.")] = 51,
    files: Annotated[int, typer.Option(help="Input files, each a micro-batch.")] = 16,
    rows: Annotated[int, typer.Option(help="Rows of an input file.")] = 40,
    group: Annotated[list[int] | None, typer.Option(help="Only these groups of families, by number.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Leave checkpoints, sinks and logs in this folder.")] = None,
) -> None:
    """Kill drivers, executors and Python workers while streams run; then check that every row is there once."""
    # Child processes must end with this one, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = keep or Path(tempfile.mkdtemp(prefix="dovetail-chaos-"))
    try:
        right = _kill(place, seed, kills, files, rows, group or list(range(len(GROUPS))))
    finally:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)
    raise typer.Exit(0 if right else 1)


def _kill(place: Path, seed: int, kills: int, files: int, rows: int, groups: list[int]) -> bool:
    began = time.monotonic()
    table = Table(*COLUMNS, title="Streams under fire")
    struck, right = 0, True
    write_inputs(place / "inputs", seed=seed, files=files, rows=rows)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} kills"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("killing", total=kills)
        turn = 0
        while turn < len(groups) or struck < kills:
            at = groups[turn % len(groups)]
            # The last groups make up for those whose input ended before all their kills.
            wanted = max(3, -(-(kills - struck) // max(1, len(groups) - turn)))
            hunt = Hunt(place / f"run{turn}", place / "inputs", GROUPS[at], say=progress.console.log)
            try:
                # A group has the same plan whether it runs alone or with the others.
                hunt.run(plan(seed, at + len(GROUPS) * (turn // len(groups)), wanted))
            except HungError as error:
                progress.console.log(f"[red]{error}")
                right, ended = False, False
            else:
                ended = True
            finally:
                hunt.clean()
            struck += hunt.kills.total()
            progress.update(task, completed=struck)
            for family in GROUPS[at]:
                own = place_of(hunt.place, family)
                calm = _calm(hunt, family, progress) if ended and family in REPEATED else None
                verdict = verify(family, place / "inputs", own / "out", calm)
                right &= verdict.right
                table.add_row(
                    family, *(str(hunt.kills[kind]) for kind in KILLED),
                    str(hunt.amid[family]), str(hunt.starts), str(batches(own)), str(verdict.rows),
                    f"{'' if verdict.right else '[red]'}{verdict}",
                )  # fmt: skip
            turn += 1
    console.print(table)
    minutes = (time.monotonic() - began) / 60
    console.print(f"{struck} kills in {minutes:.1f} minutes; replay with --seed {seed} --kills {kills}")
    return right


@app.command("break")
def break_things(
    faults: Annotated[str, typer.Option(help="Which, with commas between them; all by default.")] = "all",
    seed: Annotated[int, typer.Option(help="Decides the input, and what is hit where there are several.")] = 1,
    files: Annotated[int, typer.Option(help="Input files, each a micro-batch.")] = 12,
    rows: Annotated[int, typer.Option(help="Rows of an input file.")] = 40,
    group: Annotated[list[int] | None, typer.Option(help="Only these groups of families, by number.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Leave checkpoints, sinks and logs in this folder.")] = None,
) -> None:
    """Break disks, state files, clocks and inputs under streams: the right answer, or one message and nothing wrong."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = list(FAULTS) if faults == "all" else [name.strip() for name in faults.split(",")]
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        console.print(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}", soft_wrap=True)
        raise typer.Exit(2)
    place = keep or Path(tempfile.mkdtemp(prefix="dovetail-chaos-"))
    try:
        right = _break(place, names, seed, files, rows, group or list(range(len(GROUPS))))
    finally:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)
    raise typer.Exit(0 if right else 1)


def _break(place: Path, names: list[str], seed: int, files: int, rows: int, groups: list[int]) -> bool:
    began = time.monotonic()
    table = Table("fault", "queries", "failed", "starts", "what they said", "verdict", title="Broken on purpose")
    write_inputs(place / "inputs", seed=seed, files=files, rows=rows)
    right = True
    for name, at in [(name, at) for name in names for at in groups]:
        lacking = FAULTS[name].lacking()
        if lacking is not None:
            table.add_row(name, "", "", "", "", f"not run: {lacking}")
            continue
        choice = random.Random(f"{seed}/{name}/{at}").random()
        scene = Scene(place / f"{name}{at}", place / "inputs", GROUPS[at], choice, say=console.log)
        try:
            found = break_one(FAULTS[name], scene)
        except HungError as error:
            table.add_row(name, str(len(GROUPS[at])), "", str(scene.lives), "", f"[red]{error}")
            right = False
            continue
        right &= found.right
        wrong = [*found.faults, *(f"{family}: {v}" for family, v in found.verdicts.items() if not v.right)]
        verdict = f"[red]{'; '.join(wrong)}" if wrong else "nothing lost, nothing twice"
        failed = "yes" if found.failed else "no"
        table.add_row(name, str(len(GROUPS[at])), failed, str(found.lives), found.message[:200], verdict)
        console.log(f"{name}, group {at}: {'failed, mended, ' if found.failed else ''}{verdict}")
    console.print(table)
    console.print(f"{len(names)} faults in {(time.monotonic() - began) / 60:.1f} minutes; replay with --seed {seed}")
    return right


@app.command("soak")
def long_run(
    minutes: Annotated[float, typer.Option(help="How long the streams run.")] = 10.0,
    rate: Annotated[int, typer.Option(help="Rows a second of each input.")] = 1000,
    tolerance: Annotated[float, typer.Option(help="Growth that counts as none, as a part of the median.")] = 0.05,
    picture: Annotated[Path | None, typer.Option(help="Where the plot goes, a PNG file.")] = None,
) -> None:
    """Run streams at a constant rate, and see whether memory and state stay flat."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="dovetail-soak-") as place, Progress(*columns, console=console) as progress:
        task = progress.add_task("soaking", total=minutes * 60)
        found = soak(minutes, rate, Path(place), lambda passed: progress.update(task, completed=passed))
    if picture is not None:
        draw(found, picture)
        console.print(f"drawn in {picture}")
    table = Table("series", "median", "growth over the second half", "95 % interval", "verdict", title="Long run")
    verdicts = found.judged(tolerance)
    for one in verdicts:
        interval = f"{one.low:+,.1f} to {one.high:+,.1f}"
        growth = f"{one.growth:+,.1f} {one.unit}"
        verdict = "flat" if one.flat else "[red]grows"
        table.add_row(one.name, f"{one.median:,.1f} {one.unit}", growth, interval, verdict)
    console.print(table)
    console.print(
        f"{len(found.seconds)} samples in {minutes:g} minutes; {found.rows:,} rows in, {found.batches} micro-batches"
    )
    raise typer.Exit(0 if all(one.flat for one in verdicts) else 1)


def _calm(hunt: Hunt, family: str, progress: Progress) -> Path:
    """The sink of a run without kills that read the same files in the same micro-batches."""
    task = progress.add_task(f"{family}, once more without kills", total=0)
    place = hunt.place / "calm" / place_of(hunt.place, family).name
    write_again(hunt.inputs, files_by_batch(place_of(hunt.place, family) / "checkpoint"), place / "inputs")
    again = Hunt(place, place / "inputs", (family,))
    try:
        again.run([])
    finally:
        again.clean()
    progress.remove_task(task)
    return place_of(place, family) / "out"


if __name__ == "__main__":
    app()
