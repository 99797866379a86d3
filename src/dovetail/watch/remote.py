"""Progress files of another machine: copied from its console, as they grow, into a folder here."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from dovetail.errors import ArgumentError, SetupError, is_whole
from dovetail.watch.files import make_private, remove_oldest, state_folder
from dovetail.watch.server import FEED, FEED_FILE, PIECE

LOGGER = logging.getLogger("dovetail.watch")

SCHEMES = ("http://", "https://")
_NAME = re.compile(r"(?!\.)[\w.-]{1,200}\.jsonl")
_LONGEST_LIST = 1_000_000
_LONGEST_FILE = 50_000_000
"""Bytes of one file that are copied; a run goes on in another file long before."""
_PATIENCE = 10.0
_ACCEPTED = "the address that dovetail watch or dt.listen(spark, port=...) printed on the other machine"


class Remote:
    """Copies what another console reads.

    Parameters
    ----------
    address
        Where it is, with its token: ``http://driver:4050/?token=...``.
    folder
        Where the copies go; a folder of this address below the state folder by default.
    """

    def __init__(self, address: str, folder: Path | None = None) -> None:
        try:
            parts = urlsplit(address)
            named = parts.hostname is not None and (parts.port is None or parts.port > 0)
        except ValueError:
            named = False
        if not address.startswith(SCHEMES) or not named:
            raise ArgumentError(
                f"{address} is not an address", accepted=_ACCEPTED, hint="http://driver:4050/?token=..."
            )
        self.name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._token = parse_qs(parts.query).get("token", [""])[0]
        self.folder = folder or state_folder() / "remote" / re.sub(r"[^\w.-]+", "_", self.name)
        self._opener: OpenerDirector = build_opener(_NoRedirects)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, interval: float) -> None:
        """Copy once, so that a wrong address is told at once, and then every so many seconds in a thread."""
        try:
            self.poll()
        except HTTPError as error:
            raise self._refused(error.code) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise SetupError(
                f"{self.name} does not answer as a console: {getattr(error, 'reason', error)}",
                accepted=_ACCEPTED,
                hint="it listens on loopback unless it was told host=, and then only its own machine reaches it",
            ) from None
        self._thread = threading.Thread(target=self._loop, args=(interval,), name="dovetail-remote", daemon=True)
        self._thread.start()

    def _refused(self, code: int) -> SetupError:
        if code == 401:
            hint = "the whole address, with ?token=..., is what it printed; in a shell, between quotes"
            return SetupError(f"{self.name} wants its token", accepted=_ACCEPTED, hint=hint)
        return SetupError(
            f"{self.name} answers {code} where a console has its files",
            accepted=_ACCEPTED,
            hint="is it of this version of dovetail?",
        )

    def stop(self) -> None:
        """Stop copying; an answer that is on its way is not waited for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(1)

    def _loop(self, interval: float) -> None:
        told = False
        while not self._stop.wait(interval):
            try:
                self.poll()
                told = False
            except (URLError, HTTPException, OSError, ValueError) as error:
                # It may be back in a while; what was copied is here.
                if not told:
                    LOGGER.warning("%s does not answer: %s", self.name, getattr(error, "reason", error))
                told = True

    def poll(self) -> None:
        """Copy what is new."""
        make_private(self.folder)
        new = False
        for name, size in self._listed():
            file = self.folder / name
            have = file.stat().st_size if file.exists() else 0
            new |= not file.exists()
            if size < have:
                # Another file of this name.
                file.unlink()
                have = 0
            while have < min(size, _LONGEST_FILE) and not self._stop.is_set():
                piece = self._get(f"{FEED_FILE}?name={quote(name)}&from={have}", PIECE)
                if not piece:
                    break
                with file.open("ab") as opened:
                    opened.write(piece)
                have += len(piece)
        if new:
            remove_oldest(self.folder)

    def _listed(self) -> Iterator[tuple[str, int]]:
        """Names and sizes of the files there; whatever is not one is left out."""
        try:
            answer: Any = json.loads(self._get(FEED, _LONGEST_LIST))
        except RecursionError:
            raise ValueError("no list of files") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("files"), list):
            raise ValueError("no list of files")
        for entry in answer["files"]:
            if isinstance(entry, dict):
                name: Any = entry.get("name")
                size: Any = entry.get("size")
                if isinstance(name, str) and _NAME.fullmatch(name) and is_whole(size, least=0):
                    yield name, int(size)

    def _get(self, path: str, longest: int) -> bytes:
        request = Request(self.name + path)
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with self._opener.open(request, timeout=_PATIENCE) as answer:
            body: bytes = answer.read(longest + 1)
        if len(body) > longest:
            raise ValueError("an answer longer than any of a console")
        return body


class _NoRedirects(HTTPRedirectHandler):
    """The token goes to the address that was given, and to no other."""

    def redirect_request(self, *args: Any, **keywords: Any) -> None:
        """Follow nothing."""
