"""``dovetail ship``: the package as one file for a cluster, with its kernels compiled for the processors there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rich.console import Console

from dovetail.columns.shipped import add_kernels
from dovetail.errors import ArgumentError, SetupError

_PACKED = (".py", ".properties", ".typed")


def run(console: Console, target: Path, cpu: str) -> None:
    """Make the archive; a file that is there already is replaced once the new one is whole."""
    if not re.fullmatch(r"[A-Za-z0-9_.+-]+", cpu):
        raise ArgumentError(
            f"--cpu {cpu!r} is no name of a processor",
            accepted="a name of LLVM's, such as generic, x86-64-v3, skylake-avx512 or neoverse-n1",
        )
    if not target.parent.is_dir():
        raise ArgumentError(f"{target}: there is no folder {target.parent}", accepted="a file in a folder that exists")
    with tempfile.TemporaryDirectory(prefix="dovetail-ship-") as folder:
        place = Path(folder)
        archive = place / target.name
        pack(archive)
        with console.status(f"Compiling the kernels for {cpu} ..."):
            compiled = compile_from(archive, place / "cache", cpu)
        kernels = add_kernels(archive, compiled, cpu)
        moved = target.with_name(f".{target.name}.part")
        moved.write_bytes(archive.read_bytes())
        moved.replace(target)
    console.print(f"{target}: the package and {kernels} kernels compiled for {cpu}.", soft_wrap=True)
    console.print(f"spark-submit --py-files {target.name} program.py", highlight=False)


def pack(archive: Path) -> None:
    """The modules of this package as an archive."""
    package = Path(__file__).parents[1]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for file in sorted(package.rglob("*")):
            if file.suffix in _PACKED:
                opened.write(file, file.relative_to(package.parent))


def compile_from(archive: Path, cache: Path, cpu: str) -> Path:
    """Have another process compile the kernels of the archive; return the folder in which Numba keeps them."""
    cache.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {
        "PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(cache), "HOME": str(cache),
        "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "",
    }  # fmt: skip
    command = [sys.executable, "-c", "from dovetail.command.cli import app; app()", "warm", "--no-classes"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=cache)
    folders = [place for place in cache.rglob("dovetail-*") if place.is_dir()]
    if done.returncode or len(folders) != 1:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise SetupError(f"the kernels could not be compiled for {cpu}: {said}", accepted="a processor that LLVM knows")
    return folders[0]
