"""How a user (Ctrl-C) or a service manager (SIGTERM) ends a command."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):  # noqa: N818 - not an error: the user asked for it
    """The user ended a job, and it has stopped; the message says what that means for the next run."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts like Ctrl-C.  By itself it would end the process without a word, its progress file open."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can have handlers
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set.  The second one interrupts at once.

    PySpark's own handler of Ctrl-C would cancel the running micro-batch and let the query fail.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        # A JVM that is not ours may end with the same signal; py4j would log a trace for every call from now on.
        logging.disable(logging.CRITICAL)

    logged = logging.root.manager.disable
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        logging.disable(logged)
