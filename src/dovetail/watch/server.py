"""The page over HTTP: files that never change, the figures as JSON, and metrics for Prometheus.

It reads and nothing else: GET and HEAD.  What a request names is looked up in a table of answers, or among the names of
the progress files, so no path from outside reaches the file system.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sqlite3
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dovetail.errors import SetupError
from dovetail.watch.access import COOKIE, Access
from dovetail.watch.advice import docs_address
from dovetail.watch.exposition import exposition
from dovetail.watch.files import files as progress_files
from dovetail.watch.history import RANGES, overview, run_details
from dovetail.watch.store import reading

LOGGER = logging.getLogger("dovetail.watch")

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FEED, FEED_FILE = "/api/files", "/api/file"
"""Where another console finds the progress files, and a piece of one."""
PIECE = 1_000_000
"""Bytes of a file in one answer, at most."""

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_PATIENCE = 10.0
"""Seconds that a client has to send its request, and to take the answer."""

Query = dict[str, list[str]]
Answer = tuple[HTTPStatus, bytes, str]


class Console(ThreadingHTTPServer):
    """Serves a history.

    Parameters
    ----------
    history
        The SQLite file.
    access
        Where to listen, and who may read.
    port
        0 for any that is free.
    source
        The progress files, a folder or one of them, that other consoles may copy; none by default.
    """

    daemon_threads = True
    # A second console on the port should fail, and not share it.
    allow_reuse_port = False

    def __init__(self, history: Path, access: Access, port: int, source: Path | None = None) -> None:
        self.history = history
        self.source = source
        self.access = access
        if ":" in access.host:
            self.address_family = socket.AF_INET6
        static = files("dovetail.watch") / "static"
        self.static = {path: ((static / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
        super().__init__((access.host, port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self.access.host}]" if ":" in self.access.host else self.access.host
        return f"http://{host}:{self.server_address[1]}/"

    def progress_files(self) -> dict[str, Path]:
        """The progress files by their names, the newest first."""
        if self.source is None:
            return {}
        several = [self.source] if self.source.is_file() else progress_files(self.source)
        return {file.name: file for file in several}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong while answering; a browser that leaves early is nothing to speak of."""
        LOGGER.debug("a request from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: Console
    timeout = _PATIENCE
    # A short answer leaves in one piece; the end of a long one does not wait 40 ms for the receipt of its beginning.
    wbufsize = -1
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"
    server_version = "dovetail"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _answer(self) -> None:
        access = self.server.access
        if not access.answers_to(self.headers.get("Host")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this server does not answer to that name\n", _TEXT)
            return
        try:
            asked = urlsplit(self.path)
            query = parse_qs(asked.query, max_num_fields=10)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, b"the address cannot be read\n", _TEXT)
            return
        given = query.get("token", [""])[0]
        if asked.path == "/" and access.token is not None and given and access.is_token(given):
            # From here on the cookie brings it, and it stays out of the address bar.
            cookie = f"{COOKIE}={access.cookie_value()}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.SEE_OTHER, b"", _TEXT, {"Location": "/", "Set-Cookie": cookie})
            return
        if not access.admits(self.headers.get("Authorization"), self.headers.get("Cookie")):
            text = b"open the address that dovetail watch printed, with its token, or send it as a bearer\n"
            self._send(HTTPStatus.UNAUTHORIZED, text, _TEXT, {"WWW-Authenticate": "Bearer"})
            return
        self._send(*self._look_up(asked.path, query))

    def _look_up(self, path: str, query: Query) -> Answer:
        if path in self.server.static:
            return HTTPStatus.OK, *self.server.static[path]
        if path == FEED:
            return _feed(self.server.progress_files())
        if path == FEED_FILE:
            return _piece(self.server.progress_files(), query)
        answer = _ANSWERS.get(path)
        if answer is None:
            return HTTPStatus.NOT_FOUND, b"there is no such page\n", _TEXT
        try:
            with reading(self.server.history) as sql:
                return answer(sql, query)
        except SetupError as error:
            return HTTPStatus.NOT_IMPLEMENTED, f"{error}\n".encode(), _TEXT
        except sqlite3.Error:
            LOGGER.debug("the history could not be read", exc_info=True)
            return HTTPStatus.SERVICE_UNAVAILABLE, b"the history cannot be read at the moment\n", _TEXT

    def _send(self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the library cannot read, or a method that is not answered, without repeating any of it."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self.close_connection = True
        self._send(status, f"{status.phrase}\n".encode(), _TEXT, {"Allow": "GET, HEAD", "Connection": "close"})

    def log_message(self, format: str, *args: Any) -> None:
        """Log quietly: an address may have the token in it."""


def _overview(sql: sqlite3.Connection, query: Query) -> Answer:
    return _json(overview(sql, time.time()) | {"docs": docs_address()})


def _run(sql: sqlite3.Connection, query: Query) -> Answer:
    number, span = query.get("id", [""])[0], query.get("range", ["15m"])[0]
    if not (number.isascii() and number.isdigit() and len(number) < 15) or span not in RANGES:
        text = f"accepted: id= the number of a run, range= one of {', '.join(RANGES)}\n"
        return HTTPStatus.BAD_REQUEST, text.encode(), _TEXT
    found = run_details(sql, int(number), RANGES[span], time.time())
    return (
        (HTTPStatus.NOT_FOUND, b"there is no such run\n", _TEXT)
        if found is None
        else _json(found | {"docs": docs_address()})
    )


def _metrics(sql: sqlite3.Connection, query: Query) -> Answer:
    return HTTPStatus.OK, *exposition(sql, time.time())


def _feed(several: dict[str, Path]) -> Answer:
    listed = []
    for name, file in several.items():
        with contextlib.suppress(FileNotFoundError):
            listed.append({"name": name, "size": file.stat().st_size})
    return _json({"files": listed})


def _piece(several: dict[str, Path], query: Query) -> Answer:
    name, offset = query.get("name", [""])[0], query.get("from", ["0"])[0]
    if not (offset.isascii() and offset.isdigit() and len(offset) < 15):
        return HTTPStatus.BAD_REQUEST, b"accepted: name= a file of the list, from= a number of bytes\n", _TEXT
    try:
        with several[name].open("rb") as opened:
            opened.seek(int(offset))
            return HTTPStatus.OK, opened.read(PIECE), "application/octet-stream"
    except (KeyError, FileNotFoundError):
        return HTTPStatus.NOT_FOUND, b"there is no such file\n", _TEXT


def _json(answer: dict[str, Any]) -> Answer:
    # Numbers in JSON are finite; anything else would stop the page.
    return HTTPStatus.OK, json.dumps(answer, allow_nan=False, separators=(",", ":")).encode(), _JSON


_ANSWERS: dict[str, Callable[[sqlite3.Connection, Query], Answer]] = {
    "/api/runs": _overview,
    "/api/run": _run,
    "/metrics": _metrics,
}
