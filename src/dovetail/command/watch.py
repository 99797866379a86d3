"""What `dovetail watch` does: a page of all runs, until it is interrupted."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from dovetail.errors import ArgumentError
from dovetail.watch.collect import check_source
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
    if source is not None and source.startswith(("http://", "https://")):
        raise ArgumentError(
            f"{source} is an address",
            accepted="a progress file, or a folder of them",
            hint="a program that calls dt.listen(spark, port=...) serves this page itself: open its address",
        )
    place = check_source(None if source is None else Path(source))
    with Serving(place, history=history, host=host or LOOPBACK, port=port, token=token, days=days) as serving:
        console.print(Text(f"watching {place}"), soft_wrap=True)
        console.print(Text(f"the page is at {serving.url}", style="bold"), soft_wrap=True)
        if not serving.access.open:
            console.print("others can reach it, over plain HTTP: whoever has the token can read", soft_wrap=True)
        console.print("Ctrl-C ends it; what is watched goes on", soft_wrap=True)
        # Where it goes to a file or a pipe, the address would otherwise come with the end.
        console.file.flush()
        serving.wait()
