"""Compiled kernels that travel with the package, so that a worker of a cluster compiles nothing.

An archive made by ``dovetail ship`` has, beside the package, a folder with what Numba keeps for each kernel and the
name of the processor that it was compiled for.  A worker that imports the package from the archive unpacks them where
its own would be.  Numba looks at the processor, at Python's version and its own, and at the source: what does not fit
is compiled as it would be without the archive.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

KERNELS = "dovetail_kernels"
"""The folder of compiled kernels in an archive."""
CPU = f"{KERNELS}/cpu"
"""The entry with the name of the processor."""
STAMP = 1_000_000_000
"""When source files of an archive were changed last, for Numba: their content is in the name of their folder."""
_SUFFIXES = (".nbi", ".nbc")


def add_kernels(archive: Path, compiled: Path, cpu: str) -> int:
    """Put what Numba has kept in `compiled` into an archive; return how many kernels that are."""
    files = sorted(file for file in compiled.rglob("*") if file.suffix in _SUFFIXES)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(CPU, cpu)
        for file in files:
            opened.write(file, f"{KERNELS}/{file.relative_to(compiled).as_posix()}")
    return sum(file.suffix == ".nbi" for file in files)


def unpack_kernels(archive: Path, folder: Path) -> None:
    """Lay the compiled kernels of an archive where Numba looks for those of `folder`, and choose their processor.

    To be called before Numba is imported, which reads its settings then.
    """
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if name.startswith(f"{KERNELS}/") and name != CPU]
        if not names:
            return
        if "numba" not in sys.modules and "NUMBA_CPU_NAME" not in os.environ:
            os.environ["NUMBA_CPU_NAME"] = opened.read(CPU).decode()
            os.environ.setdefault("NUMBA_CPU_FEATURES", "")
        for name in names:
            inner = PurePosixPath(name).relative_to(KERNELS)
            if inner.is_absolute() or ".." in inner.parts or inner.suffix not in _SUFFIXES:
                continue
            file = folder / inner
            if not file.exists():
                _write(file, opened.read(name))


def _write(file: Path, content: bytes) -> None:
    """Write a file whole or not at all: other workers may do the same at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=file.parent)
    with open(handle, "wb") as opened:  # noqa: PTH123 - a descriptor, not a path
        opened.write(content)
    Path(written).replace(file)


def write_source(file: Path, text: str) -> None:
    """Write a source file whole or not at all, as old as those for which kernels were compiled elsewhere."""
    _write(file, text.encode("utf-8"))
    os.utime(file, (STAMP, STAMP))
