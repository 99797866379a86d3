"""A console that runs: the history, the thread that fills it, and the server that shows it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from dovetail.errors import ArgumentError, SetupError, is_whole
from dovetail.watch.access import Access
from dovetail.watch.collect import Collector
from dovetail.watch.server import Console
from dovetail.watch.store import Store

HISTORY = "history.sqlite3"
"""The name of the history beside the progress files."""
LOOPBACK = "127.0.0.1"


class Serving:
    """Reads progress files and serves what is in them, until it is stopped.

    Parameters
    ----------
    source
        A folder of progress files, or one of them.
    history
        The SQLite file; beside the progress files by default.
    host, port, token
        Where to listen, and what requests must bring; see :class:`dovetail.watch.access.Access`.
    days
        How long history is kept.
    interval
        Seconds between two looks at the files.
    """

    def __init__(
        self,
        source: Path,
        *,
        history: Path | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        token: str | None = None,
        days: float = 30.0,
        interval: float = 1.0,
    ) -> None:
        if not is_whole(port, least=0, most=65535):
            raise ArgumentError(f"port={port!r}", accepted="a whole number from 1 to 65535, or 0 for any that is free")
        if not isinstance(host, str) or not host:
            raise ArgumentError(f"host={host!r}", accepted="an address of this machine, such as 127.0.0.1 or 0.0.0.0")
        self.access = Access(host, token)
        path = history or (source.parent if source.is_file() else source) / HISTORY
        self._store = Store(path, days=days)
        try:
            self._console = Console(path, self.access, port, source)
        except OSError as error:
            self._store.close()
            raise SetupError(
                f"nothing can listen on {host}, port {port}: {error.strerror or error}",
                accepted="an address of this machine, and a port that is free",
                hint="port 0 takes any that is free",
            ) from None
        self._collector = Collector(self._store, source)
        self._collector.start(interval)
        self._thread = threading.Thread(target=self._console.serve_forever, name="dovetail-console", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is, with the token that it takes."""
        token = self.access.token
        return self._console.url if token is None else f"{self._console.url}?token={token}"

    def wait(self) -> None:
        """Wait until it is stopped, or a signal comes."""
        while self._thread.is_alive():
            self._thread.join(1)

    def stop(self) -> None:
        """Stop serving, and close the history."""
        self._console.shutdown()
        self._console.server_close()
        self._collector.stop()
        self._store.close()

    def __enter__(self) -> Serving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
