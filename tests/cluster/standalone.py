"""A Spark standalone cluster on loopback: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyspark

from dovetail.columns import numba_cache
from dovetail.columns.numba_cache import unpacked_folder

SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cluster:
    """Where the master listens, and how a program gets there."""

    url: str
    place: Path
    python: Path
    """An interpreter that has the libraries and not Dovetail."""

    @property
    def home(self) -> Path:
        """A home without caches, settings or packages of ours."""
        (self.place / "home").mkdir(exist_ok=True)
        return self.place / "home"

    def environment(self) -> dict[str, str]:
        """Nothing of this process but what Java needs: no PYTHONPATH, no home with caches, no Spark settings."""
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "TMPDIR": str(self.place),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.place / "spill"),
        }

    def submit(
        self, *arguments: str, path: str | None = None, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """`spark-submit` with these arguments, the driver's PYTHONPATH beside them; what it says comes back as text."""
        said = self.place / "submit.log"
        # Into a file, not a pipe: workers hold on to what they inherit for a while.
        with said.open("w") as log:
            done = subprocess.run(
                [str(SPARK / "bin" / "spark-submit"), "--master", self.url, *arguments],
                env=self.environment() | ({"PYTHONPATH": path} if path else {}),
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=900,
                check=False,
            )
        return subprocess.CompletedProcess(done.args, done.returncode, said.read_text(errors="replace"), "")


def build_wheel(into: Path) -> Path:
    """The package as a wheel, built from this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(into.glob("dovetail_spark-*.whl"))


def warm(shipped: Path, home: Path) -> None:
    """Put the kernels that this checkout has compiled where workers with that home look for those of the package.

    They would find none there and compile them all, which takes minutes.
    """
    with patch.dict(os.environ, {"HOME": str(home)}):
        os.environ.pop("XDG_CACHE_HOME", None)
        folder = unpacked_folder(shipped / "dovetail" / "columns" / "numba_cache.py")
    assert folder is not None
    here = Path(numba_cache.__file__).parents[2]
    for kept in here.glob("dovetail/**/__pycache__/*.nb*"):
        copy = folder / kept.relative_to(here)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kept, copy)


def bare_python(place: Path) -> Path:
    """An interpreter with the libraries of this one.  A folder named in a .pth file brings no .pth files of its own,
    so what is installed here in editable form is not seen there."""
    venv.create(place, symlinks=True, with_pip=False)
    packages = next(place.glob("lib/python3*/site-packages"))
    (packages / "libraries.pth").write_text(f"{SPARK.parent}\n")
    return place / "bin" / "python"


@contextmanager
def standalone(place: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster that ends with the block, all its processes with it."""
    cluster = Cluster("", place, bare_python(place / "python"))
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = place / f"{name}.log"
        with log.open("w") as out:
            started.append(
                subprocess.Popen(
                    [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                    env={**cluster.environment(), "SPARK_DAEMON_MEMORY": "256m"},
                    cwd=place,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        log = start("master", "master.Master", *address)
        url = _said(log, r"Starting Spark master at (spark://[\d.:]+)")[0]
        for at in range(workers):
            folder = str(place / f"worker{at}")
            start(f"worker{at}", "worker.Worker", *address, "-c", "1", "-m", "1g", "-d", folder, url)
        _said(log, r"Registering worker", times=workers)
        yield Cluster(url, place, cluster.python)
    finally:
        for process in started:
            # The group has its executors, too.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _said(log: Path, pattern: str, *, times: int = 1, seconds: float = 300) -> list[str]:
    """What a log says, once it has said it often enough."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = re.findall(pattern, log.read_text(errors="replace"))
        if len(found) >= times:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{log.name} never said {pattern!r}:\n{log.read_text(errors='replace')[-3000:]}")
