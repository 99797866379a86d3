"""The files of a checkpoint as Spark lays them down: what was planned, what was committed, and where state lies.

Spark has no call that makes a checkpoint.  What is written here are the files that it would have written itself, made
from those of another checkpoint: one version of each log, checked by name, and refused where Spark has moved on.

Nothing in them is trusted.  They are read as text and JSON, what they do not say as Spark does is refused, and so is a
link, through which a copy would take in files from anywhere.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from dovetail.errors import ArgumentError, CheckpointError

PARTITIONS = "spark.sql.shuffle.partitions"
"""The setting under which a checkpoint keeps its number of state partitions."""
UNFINISHED = "unfinished: dovetail was laying this checkpoint down when it ended; remove the folder\n"
"""What stands in place of the query's id until all else is there.  Spark reads it first, and refuses to start."""
_METADATA = "metadata"
_NO_OFFSET = "-"
"""Spark's line for a source of which nothing has been read."""


def local_folder(path: str | Path, argument: str) -> Path:
    """The folder of a checkpoint on a file system that this process sees; refuses others."""
    if not isinstance(path, str | Path) or not str(path):
        raise ArgumentError(f"{argument}={path!r}", accepted="the folder of a checkpoint, as text or Path")
    text = str(path)
    found = urlparse(text)
    if len(found.scheme) > 1 and found.scheme != "file":
        raise ArgumentError(
            f"{argument}={text!r} is on {found.scheme}:",
            accepted="a folder that this machine sees, such as a mounted one",
            hint="copy the checkpoint to such a folder, go on from the copy, and copy what comes out",
        )
    return Path(unquote(found.path) if found.scheme == "file" else text).absolute()


@dataclass(frozen=True)
class CheckpointFiles:
    """The checkpoint of a query that has ended."""

    folder: Path

    def committed(self) -> int:
        """The last micro-batch that was committed; refuses a folder without any."""
        numbers = _numbers(self.folder / "commits")
        if not numbers:
            raise CheckpointError(
                f"no micro-batch has been committed in {self.folder}",
                accepted="the checkpoint of a query that has run",
            )
        return numbers[-1]

    def query(self) -> str:
        """The id of the query, which stays: sinks recognise by it what they have written."""
        file = self.folder / _METADATA
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["id"])
        except (ValueError, LookupError, TypeError, RecursionError, OSError) as error:
            raise CheckpointError(
                f"{file} is no id of a query", accepted="a whole checkpoint", hint=_said(file)
            ) from error

    def settings(self, batch: int) -> dict[str, str]:
        """The settings that a micro-batch was planned with."""
        _, about, _ = _offsets(self.folder / "offsets" / str(batch))
        return {str(name): str(value) for name, value in _conf(about).items()}

    def watermark(self, batch: int) -> int | None:
        """The watermark that a micro-batch had, in microseconds; None where there was none."""
        _, about, _ = _offsets(self.folder / "offsets" / str(batch))
        found = about.get("batchWatermarkMs", 0)
        if not isinstance(found, int) or found >= 1 << 53:
            raise _not_sparks(self.folder / "offsets" / str(batch), f"the watermark {str(found)[:40]!r}")
        return found * 1000 if found > 0 else None

    def sources(self, batch: int) -> int:
        """How many sources a micro-batch has read."""
        _, _, offsets = _offsets(self.folder / "offsets" / str(batch))
        return len(offsets)

    def check(self) -> int:
        """Refuse what cannot be carried on; return the last committed micro-batch."""
        batch = self.committed()
        self.query()
        file = self.folder / "commits" / str(batch)
        version, *rest = _lines(file)
        if version == "v1" and not rest:
            raise _not_sparks(file, "one line")
        if version != "v1" or _object(file, rest[0]).get("stateUniqueIds"):
            raise CheckpointError(
                f"{file} is of version {version!r}, in which Spark names every file of state",
                accepted="a checkpoint of version 'v1'",
                hint="spark.sql.streaming.stateStore.checkpointFormatVersion decides it",
            )
        _conf(_offsets(self.folder / "offsets" / str(batch))[1])
        _refuse_links(self.folder)
        planned = _numbers(self.folder / "offsets")[-1]
        if planned > batch:
            # A sink that has it already would skip it, and nothing would bring the new state to what it has.
            raise CheckpointError(
                f"micro-batch {planned} was planned in {self.folder} and not committed",
                accepted="a checkpoint whose last micro-batch is committed",
                hint="start the old query once more with trigger(availableNow=True), which does it and ends",
            )
        return batch

    def begin(self, into: Path) -> None:
        """Make the new folder, which nothing can start from until :meth:`finish`."""
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise CheckpointError(
                f"{into} exists", accepted="a folder that does not exist yet, or an empty one",
                hint=_said(into / _METADATA),
            )  # fmt: skip
        into.mkdir(parents=True, exist_ok=True)
        (into / _METADATA).write_text(UNFINISHED, encoding="utf-8")

    def copy_logs(self, into: Path, batch: int, partitions: int, sources: list[int | None] | None = None) -> None:
        """What was read and committed: the new query goes on from there, in so many partitions.

        `sources` has for each source of the new query its number in the old one; a new source begins at its beginning.
        """
        passed = shutil.ignore_patterns("*.crc", "*.tmp")
        for name in ("sources", "offsets", "commits"):
            if (self.folder / name).is_dir() and (name != "sources" or sources is None):
                shutil.copytree(self.folder / name, into / name, ignore=passed)
        if sources is not None:
            # Spark numbers sources in the order of the inputs, in the folders of their logs as in the lines of offsets.
            for number, before in enumerate(sources):
                if before is not None and (self.folder / "sources" / str(before)).is_dir():
                    place = self.folder / "sources" / str(before)
                    shutil.copytree(place, into / "sources" / str(number), ignore=passed)
            for known in _numbers(into / "offsets"):
                _reorder(into / "offsets" / str(known), sources)
        file = into / "offsets" / str(batch)
        version, about, rest = _offsets(file)
        _conf(about)[PARTITIONS] = str(partitions)
        file.write_text("\n".join([version, json.dumps(about, separators=(",", ":")), *rest]), encoding="utf-8")

    def finish(self, into: Path) -> None:
        """Give the new folder the id of the query, which makes it one that can be started."""
        new = into / f".{_METADATA}.new"
        shutil.copyfile(self.folder / _METADATA, new)
        new.replace(into / _METADATA)


def take_state(loaded: Path, into: Path, operator: int, batch: int) -> None:
    """Take over the state that a query of one micro-batch and one operator has left, as that of a micro-batch."""
    source, target = loaded / "state" / "0", into / "state" / str(operator)
    target.parent.mkdir(exist_ok=True)
    for file in source.rglob("*.crc"):
        file.unlink()
    partitions = [place for place in source.iterdir() if place.name.isdigit()]
    for place in partitions:
        snapshot = place / "1.zip"
        if not snapshot.is_file():
            raise CheckpointError(
                f"{place} has no snapshot of its state", accepted="RocksDB's state store, without changelogs",
            )  # fmt: skip
        # A version of state is the number of the micro-batch that begins with it.
        snapshot.rename(place / f"{batch + 1}.zip")
    [about] = (source / "_metadata" / "v2").iterdir()
    version, text = about.read_text(encoding="utf-8").split("\n", 1)
    stored = json.loads(text)
    stored["operatorInfo"]["operatorId"] = operator
    for store in stored["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = [
            _moved(file, f"/{loaded.relative_to(into)}/state/0/", f"/state/{operator}/")
            for file in store["stateSchemaFilePaths"]
        ]
    about.write_text(f"{version}\n{json.dumps(stored, separators=(',', ':'))}", encoding="utf-8")
    source.rename(target)


def _moved(file: str, before: str, after: str) -> str:
    """A file as Spark spells it, in its new folder; what comes before that may be spelled in any way.

    Examples
    --------
    >>> _moved("file:/a%20b/new/.loading/1/state/0/_stateSchema/x", "/.loading/1/state/0/", "/state/1/")
    'file:/a%20b/new/state/1/_stateSchema/x'
    """
    folder, found, name = file.rpartition(before)
    if not found:
        raise CheckpointError(f"{file} is not below {before}", accepted="state as Spark 4.1 to 4.3 lay it down")
    return f"{folder}{after}{name}"


def _offsets(file: Path) -> tuple[str, dict[str, Any], list[str]]:
    """The version of a file of offsets, its settings, and the offsets."""
    version, *lines = _lines(file)
    if version != "v1" or not lines:
        raise CheckpointError(
            f"{file} is of version {version[:40]!r}", accepted="offsets of version 'v1'",
            hint="spark.sql.streaming.offsetLog.formatVersion decides it",
        )  # fmt: skip
    return version, _object(file, lines[0]), lines[1:]


def _lines(file: Path) -> list[str]:
    """The lines of a log file."""
    try:
        return file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _not_sparks(file, f"nothing that can be read ({error})") from error


def _object(file: Path, line: str) -> dict[str, Any]:
    """A line that is a JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _not_sparks(file, f"the line {line[:40]!r}")
    return found


def _conf(about: dict[str, Any]) -> dict[str, Any]:
    """The settings in a line of offsets."""
    found = about.get("conf")
    if not isinstance(found, dict):
        raise CheckpointError("the offsets have no settings", accepted="a whole checkpoint")
    return found


def _not_sparks(file: Path, found: str) -> CheckpointError:
    return CheckpointError(
        f"{file} has {found}", accepted="a file as Spark writes it", hint="put the checkpoint back from a copy",
    )  # fmt: skip


def _refuse_links(folder: Path) -> None:
    """Refuse links in what would be copied: they may lead anywhere, and Spark makes none."""
    for name in (_METADATA, "sources", "offsets", "commits"):
        place = folder / name
        for file in (place, *(place.rglob("*") if place.is_dir() else ())):
            if file.is_symlink():
                raise CheckpointError(
                    f"{file} is a link", accepted="a checkpoint whose files lie within its folder",
                    hint="copy the checkpoint with what its links lead to, as cp -rL does, and go on from the copy",
                )  # fmt: skip


def _reorder(file: Path, sources: list[int | None]) -> None:
    """Write the offsets of a micro-batch again, for other sources."""
    version, about, offsets = _offsets(file)
    if any(before is not None and before >= len(offsets) for before in sources):
        raise _not_sparks(file, f"offsets of {len(offsets)} sources")
    lines = [_NO_OFFSET if before is None else offsets[before] for before in sources]
    file.write_text("\n".join([version, json.dumps(about, separators=(",", ":")), *lines]), encoding="utf-8")


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    # Spark's numbers are 64-bit integers; the files of other names are not its own.
    names = (file.name for file in folder.iterdir())
    return sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 19)


def _said(file: Path) -> str | None:
    """Whether a file says that a checkpoint is unfinished."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return "an earlier attempt was cut off there; remove the folder" if text == UNFINISHED else None
