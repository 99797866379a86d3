"""The processes of a Spark application that this process started, by their role."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Literal

import psutil

Kind = Literal["driver", "executor", "worker"]

_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "daemon"


def find(root: int, kind: Kind) -> list[int]:
    """Process ids below `root`, oldest first.

    The driver is its JVM.  Executors are JVMs of their own.  Python workers are the children of the daemons that fork
    them; the daemon is not one.
    """
    below = _below(root)
    if kind == "driver":
        return [p.pid for p in below if _is_java(p) and _EXECUTOR not in _words(p)]
    if kind == "executor":
        return [p.pid for p in below if _is_java(p) and _EXECUTOR in _words(p)]
    daemons = {p.pid for p in below if _is_daemon(p)}
    # Forked workers have their daemon's words; what tells them is their parent.
    return [p.pid for p in below if _is_daemon(p) and _parent(p) in daemons]


def kill(pid: int) -> bool:
    """Kill without warning; whether there was something to kill."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_session(session: int) -> None:
    """Kill what is left of the session of a process that we started: its orphans belong to it still."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session and pid != os.getpid():
                kill(pid)


def _below(root: int) -> list[psutil.Process]:
    try:
        found = psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return sorted(found, key=lambda process: process.pid)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return ""


def _is_java(process: psutil.Process) -> bool:
    words = _words(process)
    return "java" in words.partition(" ")[0] and "org.apache.spark" in words


def _is_daemon(process: psutil.Process) -> bool:
    words = _words(process)
    return "-m" in words and _DAEMON in words and not _is_java(process)


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None
