"""``python -m fuzz --minutes 60``: every target for as long, led by what it covers of the code.

Each target is a process of its own under atheris, which changes inputs that are right and keeps those that reach new
code.  An input that is a fault is kept in ``build/fuzz`` and named; ``python -m fuzz --again FILE`` gives it to its
target again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

KEPT = Path("build/fuzz")


def lead(name: str, arguments: list[str]) -> None:
    """Run one target under atheris; does not come back."""
    import atheris

    # Not the kernels: Numba cannot compile what atheris has added.  Packages are told by name, module by module.
    source = Path(__file__).resolve().parents[1] / "src"
    files = [file for part in ("columns", "families") for file in (source / "dovetail" / part).rglob("*.py")]
    kernels = [".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for file in files]
    with atheris.instrument_imports(include=["dovetail", "sqlglot", "yaml"], exclude=kernels):
        from fuzz.targets import check

    atheris.Setup([f"fuzz {name}", *arguments], lambda data: check(name, data))
    atheris.Fuzz()


def main(
    minutes: Annotated[float, typer.Option(help="How long, over all targets.")] = 6.0,
    only: Annotated[str, typer.Option(help="Targets, with commas between them.")] = "",
    jobs: Annotated[int, typer.Option(help="Targets at once.")] = 2,
    again: Annotated[Path | None, typer.Option(help="Only give this kept input to its target.")] = None,
) -> None:
    """Look for inputs that break something."""
    from fuzz.targets import TARGETS, check, seeds

    if again is not None:
        check(again.name.split("-")[0], again.read_bytes())
        print("nothing happened")
        return
    names = [name.strip() for name in only.split(",")] if only else list(TARGETS)
    KEPT.mkdir(parents=True, exist_ok=True)

    def run(name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            for number, data in enumerate(seeds(name)):
                (Path(folder) / f"seed{number}").write_bytes(data)
            seconds = max(1, round(60 * minutes * min(jobs, len(names)) / len(names)))
            options = [f"-max_total_time={seconds}", "-timeout=60", "-max_len=20000", "-rss_limit_mb=4096"]
            options += [f"-artifact_prefix={KEPT}/{name}-", "-verbosity=1", "-print_final_stats=1", folder]
            command = [sys.executable, "-m", "fuzz", "--lead", name, *options]
            with (KEPT / f"{name}.log").open("wb") as log:
                code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        text = (KEPT / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        tried = [line.split()[-1] for line in text.splitlines() if line.startswith("stat::number_of_executed_units")]
        print(
            f"{name:<10} {tried[0] if tried else '?':>10} inputs in {seconds} s: {'FAULT' if code else 'none broke'}",
            flush=True,
        )
        if code:
            print(f"           see {KEPT}/{name}.log", flush=True)
        return name if code else ""

    with ThreadPoolExecutor(jobs) as pool:
        faulty = [name for name in pool.map(run, names) if name]
    raise typer.Exit(1 if faulty else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--lead"]:
        lead(sys.argv[2], sys.argv[3:])
    else:
        typer.run(main)
