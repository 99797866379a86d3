"""What `dovetail watch` does: a page of all runs, until it is interrupted."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dovetail.watch.collect import check_source
from dovetail.watch.remote import SCHEMES, Remote
from dovetail.watch.serving import LOOPBACK, Serving


def run(
    console: Console,
    source: str | None,
    *,
    host: str | None,
    port: int,
    token: str | None,
    history: Path | None,
    days: float,
) -> None:
    """Serve the page, and say where it is."""
    remote = Remote(source) if source is not None and source.startswith(SCHEMES) else None
    place = check_source(None if source is None else Path(source)) if remote is None else remote.folder
    with ExitStack() as running:
        if remote is not None:
            remote.start(interval=1.0)
            running.callback(remote.stop)
        address = host or LOOPBACK
        serving = running.enter_context(
            Serving(place, history=history, host=address, port=port, token=token, days=days)
        )
        console.print(Text(f"watching {place if remote is None else remote.name}"), soft_wrap=True)
        console.print(Text(f"the page is at {serving.url}", style="bold"), soft_wrap=True)
        if not serving.access.open:
            console.print("others can reach it, over plain HTTP: whoever has the token can read", soft_wrap=True)
        console.print("Ctrl-C ends it; what is watched goes on", soft_wrap=True)
        # Where it goes to a file or a pipe, the address would otherwise come with the end.
        console.file.flush()
        serving.wait()
