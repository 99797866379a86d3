"""A standalone cluster on this machine: a master, and a worker whose executors have one core each."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import dovetail as dt

WORKERS = 4
"""The paper's machine has two cores with four processors; so many processes share the products."""

_PATIENCE = 900
"""Seconds without a sign of life after which a process counts as lost: two cores may be busy with something else."""

_LOOPBACK = "127.0.0.1"
_SPARK = Path(pyspark.__file__).parent
_HERE = Path(__file__).resolve().parent


@cache
def session(partitions: int) -> SparkSession:
    """The session on the cluster, which starts at the first call and ends with this process.

    Parameters
    ----------
    partitions
        The tasks of a stage.
    """
    place = Path(tempfile.mkdtemp(prefix="prefap-cluster-"))
    path = os.pathsep.join([str(_HERE), str(Path(dt.__file__).parents[1])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    started: list[subprocess.Popen[bytes]] = []
    # Nothing else ends a process in a session of its own when this one is told to end.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    atexit.register(_end, started, place)
    url = _start(place, path, started)
    spark = dt.session(
        "prefap",
        master=url,
        driver_memory="1g",
        conf={
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.cores.max": WORKERS,
            "spark.executor.cores": 1,
            "spark.executor.memory": "600m",
            "spark.executorEnv.PYTHONPATH": path,
            # A table of so many rows is so many tasks, and so is a stage behind a shuffle.
            "spark.default.parallelism": partitions,
            "spark.sql.shuffle.partitions": partitions,
            "spark.network.timeout": f"{_PATIENCE}s",
            "spark.scheduler.minRegisteredResourcesRatio": 1.0,
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_PATIENCE}s",
        },
    )
    atexit.register(spark.stop)  # runs before _end
    return spark


def _start(place: Path, path: str, started: list[subprocess.Popen[bytes]]) -> str:
    """Start the master and the worker; where the master listens."""
    address = ("--host", _LOOPBACK, "--port", "0", "--webui-port", "0")
    # Neither asks for more than a little heap; executors have their own.
    environment = {
        **os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": _LOOPBACK, "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(place / "spill"), "SPARK_MASTER_OPTS": f"-Dspark.worker.timeout={_PATIENCE}",
    }  # fmt: skip

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = place / f"{name}.log"
        with log.open("w") as out:
            started.append(
                subprocess.Popen(
                    [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *address, *arguments],
                    env=environment,
                    cwd=place,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    log = start("master", "master.Master")
    url = _said(log, r"Starting Spark master at (spark://[\d.:]+)")
    start("worker", "worker.Worker", "-c", str(WORKERS), "-m", f"{WORKERS}g", "-d", str(place / "work"), url)
    _said(log, r"(Registering worker)")
    return url


def _said(log: Path, pattern: str, seconds: float = _PATIENCE) -> str:
    """What a log says, once it has said it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.2)
    raise TimeoutError(f"{log.name} never said {pattern!r}:\n{log.read_text(errors='replace')[-3000:]}")


def _end(started: list[subprocess.Popen[bytes]], place: Path) -> None:
    for process in started:
        # The group has the executors, too.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shutil.rmtree(place, ignore_errors=True)
