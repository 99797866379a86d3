"""The JVM of a session that Dovetail starts: what of its chatter reaches the screen, and who may end it.

PySpark starts a JVM that inherits the standard error of the program, and passes on what its Python workers print.
Some lines in there obey no log setting and mean nothing to a user.  They are taken out on the way; everything else
arrives as it was written.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

from py4j.java_gateway import java_import  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_ANNOUNCED = b"WARNING: Using incubator modules: jdk.incubator.vector"
"""The JVM's own announcement of the vector module that Spark asks for."""
_STATE_WORKER = (
    b"Starting Streaming TransformWithStateInPandas Python worker",
    b"Streaming TransformWithStateInPandas Python worker ",
)
"""How PySpark 4.3 begins the lines with which the worker of a stateful operator reports that all is well."""
_NOISE = (_ANNOUNCED, *_STATE_WORKER)
_LOOKED_UP = ("org.apache.spark.api.python.PythonUtils", "org.apache.spark.api.python.SimplePythonFunction")
"""Classes whose short names PySpark looks up each time it passes a list or a function to the JVM, which then seeks
them in every jar for every package that PySpark has imported whole.  Imported by name they are found at once: it takes
0.12 ms in place of 0.26, twenty times for a join."""
_CHUNK = 1 << 16
_LAST_WORDS = 2.0
"""Seconds in which what a JVM said before it ended has been passed on."""


class Screen:
    r"""Takes lines that mean nothing to a user out of a stream of bytes.

    What cannot become such a line passes at once: a progress bar has no end of line.

    Examples
    --------
    >>> screen = Screen()
    >>> screen.passed(b"Starting Streaming Transf")
    b''
    >>> screen.passed(b"ormWithStateInPandas Python worker.\n\n12:00:00 ERROR Task: it")
    b'12:00:00 ERROR Task: it'
    >>> screen.passed(b" failed\n")
    b' failed\n'
    """

    def __init__(self) -> None:
        self._held = b""
        """The beginning of a line that may be noise."""
        self._within = False
        """Whether the beginning of the present line has passed."""
        self._blank = False
        """Whether an empty line belongs to the noise before it."""

    def passed(self, data: bytes) -> bytes:
        """What of the bytes so far is for the screen."""
        lines = (self._held + data).splitlines(keepends=True)
        self._held = b""
        return b"".join(map(self._line, lines))

    def rest(self) -> bytes:
        """What is held at the end of the stream."""
        held, self._held = self._held, b""
        return held

    def _line(self, line: bytes) -> bytes:
        ends = line.endswith((b"\n", b"\r"))
        if self._within:
            self._within = not ends
            return line
        if not ends and any(noise.startswith(line) or line.startswith(noise) for noise in _NOISE):
            self._held = line
            return b""
        blank, self._blank = self._blank, False
        if blank and line in (b"\n", b"\r\n"):
            return b""
        if line.startswith(_NOISE):
            self._blank = line.startswith(_STATE_WORKER)
            return b""
        self._within = not ends
        return line


class _Launch(dict[str, Any]):
    """Arguments of the JVM's process.  PySpark puts a `preexec_fn` of its own among them, and ours runs after it.

    A process that begins with SIGTERM ignored keeps ignoring it, the JVM included.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "preexec_fn":

            def both() -> None:
                value()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)

            super().__setitem__(key, both)
        else:
            super().__setitem__(key, value)


def start_jvm(settings: Mapping[str, str], *, sheltered: bool) -> None:
    """Start the JVM for a session with these settings, unless this process has one.

    Parameters
    ----------
    settings
        The settings; those of the JVM itself, such as its memory, have an effect only here.
    sheltered
        Whether SIGTERM leaves the JVM alone, as Ctrl-C does in PySpark.  A service manager sends it to all processes
        of a service at once, and a micro-batch whose JVM dies cannot end.  The JVM ends with this process in any
        case: it waits for the end of its standard input.
    """
    if SparkContext._gateway is not None:
        return
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    arguments: dict[str, Any] = _Launch() if sheltered else {}
    screened = _screened_error()
    if screened is not None:
        arguments["stderr"], passing = screened
    try:
        gateway = launch_gateway(conf, arguments)  # type: ignore[no-untyped-call]
    except BaseException:
        if screened is not None:
            os.close(arguments["stderr"])
            passing.join(_LAST_WORDS)
        raise
    if screened is not None:
        os.close(arguments["stderr"])
    for name in _LOOKED_UP:
        java_import(gateway.jvm, name)
    SparkContext._ensure_initialized(gateway=gateway)


def end_jvm() -> None:
    """End the JVM of this process and wait until it is gone; a session must have been stopped before."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        process.stdin.close()
        process.wait()


def _screened_error() -> tuple[int, threading.Thread] | None:
    """A file descriptor whose bytes reach the standard error of this process through a screen, and who passes them."""
    try:
        target = os.fdopen(os.dup(2), "wb", 0)
    except OSError:
        return None  # a program without a standard error, such as a service: there is no screen
    source, sink = os.pipe()
    passing = threading.Thread(target=_pass_on, args=(source, target), name="dovetail-stderr", daemon=True)
    passing.start()
    return sink, passing


def _pass_on(source: int, target: BinaryIO) -> None:
    screen = Screen()
    with os.fdopen(source, "rb", 0) as said, target:
        while data := said.read(_CHUNK):
            _written(target, screen.passed(data))
        _written(target, screen.rest())


def _written(target: BinaryIO, data: bytes) -> None:
    """Write all of it, or what can be written: a JVM that nobody listens to must not stop for that."""
    try:
        while data:
            data = data[target.write(data) :]
    except (OSError, ValueError):
        return
