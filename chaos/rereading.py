"""Which files each micro-batch of a query read, and the same rows again in the same micro-batches.

A driver that dies after one of its sources has noted a file, and before the micro-batch is noted, leaves that file to
the next micro-batch, which then has two files of this source and one of each other: from there on the inputs are out of
step, as they would be if the others were late.  What a join keeps under overload depends on what has come by then, so
the run that it is compared with, in which nothing is killed, must read the same files in the same micro-batches: two
files with the rows of one are read by two tasks, whose rows reach a join in two parts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import unquote, urlparse

from chaos.inputs import AT_ONCE, write_padded


def files_by_batch(checkpoint: Path) -> list[dict[str, list[str]]]:
    """For each micro-batch that read something: its files, in their order, by the folder of their source."""
    sources = sorted((checkpoint / "sources").iterdir(), key=lambda folder: int(folder.name))
    noted = [_noted(source) for source in sources]
    before = [-1] * len(sources)
    found: list[dict[str, list[str]]] = []
    for number in sorted(int(log.name) for log in (checkpoint / "commits").iterdir() if log.name.isdigit()):
        # A version, what holds for all sources, and then one line for each.
        lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2:]
        ends = [before[at] if line == "-" else json.loads(line)["logOffset"] for at, line in enumerate(lines)]
        read: dict[str, list[str]] = {}
        for at, end in enumerate(ends):
            for entry in range(before[at] + 1, end + 1):
                for path in noted[at].get(entry, []):
                    read.setdefault(path.parent.name, []).append(path.name)
        if read:
            found.append(read)
        before = ends
    return found


def _noted(source: Path) -> dict[int, list[Path]]:
    """The files that a source has noted, by the number of the entry."""
    found: dict[int, dict[Path, None]] = {}
    for log in source.iterdir():
        if log.name.startswith(".") or log.suffix == ".tmp":
            continue
        # A compact file repeats the entries before it.
        for line in log.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            path = Path(unquote(urlparse(entry["path"]).path))
            found.setdefault(entry["batchId"], {})[path] = None
    return {number: sorted(paths) for number, paths in found.items()}


def write_again(inputs: Path, read: list[dict[str, list[str]]], folder: Path) -> None:
    """Write inputs of which each micro-batch has the files that were read in one; blank files fill up the others."""
    at_once = max(len(names) for batch in read for names in batch.values())
    for place in sorted(one for one in inputs.iterdir() if one.is_dir()):
        if not any(place.name in batch for batch in read):
            shutil.copytree(place, folder / place.name)
            continue
        names = [name for batch in read for name in (batch.get(place.name, []) + [""] * at_once)[:at_once]]
        texts = {name: (place / name).read_text(encoding="ascii").strip() if name else "" for name in names}
        write_padded(folder / place.name, [texts[name] for name in names])
    (folder / AT_ONCE).write_text(str(at_once), encoding="ascii")
