"""Fetches Java archives by their Maven coordinates, through the Apache Ivy that PySpark ships; no Maven is needed.

    python scripts/fetch_jars.py kafka-broker
    python scripts/fetch_jars.py --pin kafka-broker org.apache.kafka:kafka_2.13:4.3.1

The first form prints the archives of a set, one path a line; those that are not in the cache are fetched.  A file below
``requirements/jars`` lists the coordinates and the SHA-256 of every archive of the set, and each use checks them.  The
second form writes that file: it resolves the dependencies of the coordinates, less what PySpark brings itself for sets
that Spark loads.

Ivy asks Maven Central unless a file of settings, named by ``IVY_SETTINGS``, says otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

PINS = Path(__file__).resolve().parents[1] / "requirements" / "jars"
PATIENCE = 3600
"""Seconds for Ivy: a limit for hangs, not for slow lines."""
_FIELD = "[organisation]~[module]~[revision]~[artifact].[ext]"
_BESIDE_SPARK = ("kafka-connector", "delta", "iceberg")


class UnreachableError(Exception):
    """Maven did not give the archives: no way to it, or it does not have them."""


class UnknownSetError(Exception):
    """There is no file of this name."""


class ChecksumError(Exception):
    """An archive is not the one that was pinned."""


@dataclass(frozen=True)
class Jar:
    """One pinned archive."""

    group: str
    module: str
    revision: str
    sha256: str = ""

    @property
    def coordinates(self) -> str:
        """As Maven writes them."""
        return f"{self.group}:{self.module}:{self.revision}"

    @property
    def file(self) -> str:
        """Its name in the cache."""
        return f"{self.group}~{self.module}~{self.revision}.jar"


# ----------------------------------------------------------------------------------------------------------------------
# Sets of archives
# ----------------------------------------------------------------------------------------------------------------------


def fetch(name: str) -> list[Path]:
    """Give the archives of a set, in the order of its file; fetch those that are missing, check all of them.

    Raises
    ------
    UnreachableError
        In one line, if Maven cannot be reached.
    ChecksumError
        If an archive is another one than was pinned.
    """
    jars, place = pinned(name), cache()
    missing = [jar for jar in jars if not (place / jar.file).is_file()]
    if missing:
        _fetch(missing, place)
    for jar in jars:
        found = digest(place / jar.file)
        if found != jar.sha256:
            raise ChecksumError(f"{place / jar.file} has the SHA-256 {found}, {PINS / name}.txt says {jar.sha256}")
    return [place / jar.file for jar in jars]


def for_spark(name: str, spark: str | None = None, *, exactly: bool = False) -> str:
    """The set of a kind for this version of Spark, or for the newest one before it that has any unless `exactly`.

    Examples
    --------
    >>> for_spark("kafka-connector", "4.3.1")
    'kafka-connector-4.2'
    """
    wanted = _numbers(spark or version("pyspark"))[:2]
    there = {_numbers(file.stem.rpartition("-")[2]): file.stem for file in PINS.glob(f"{name}-*.txt")}
    fitting = [number for number in there if number == wanted or (number < wanted and not exactly)]
    if not fitting:
        raise UnreachableError(f"requirements/jars has no {name} for Spark {'.'.join(map(str, wanted))}")
    return there[max(fitting)]


def pinned(name: str) -> list[Jar]:
    """What the file of a set lists."""
    file = PINS / f"{name}.txt"
    if not file.is_file():
        known = ", ".join(sorted(one.stem for one in PINS.glob("*.txt")))
        raise UnknownSetError(f"there is no set {name!r} in {PINS}; there are: {known}")
    lines = file.read_text(encoding="ascii").splitlines()
    jars = []
    for line in lines:
        if line and not line.startswith("#"):
            coordinates, _, sha256 = line.partition(" sha256:")
            jars.append(Jar(*coordinates.split(":"), sha256=sha256))
    return jars


def cache() -> Path:
    """Where archives are kept: in the user's folder of caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "jars"


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _fetch(jars: list[Jar], place: Path) -> None:
    """Fetch exactly these, without their dependencies."""
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        found = _ivy(jars, Path(folder), transitive=False)
        for jar in jars:
            if jar.file not in found:
                raise UnreachableError(f"Maven has no archive for {jar.coordinates}")
            # At once or not at all: several processes may fetch into one cache.
            found[jar.file].replace(place / jar.file)


def pin(name: str, coordinates: list[str]) -> None:
    """Resolve coordinates with all they need, and write the file of the set."""
    roots = [Jar(*one.split(":")) for one in coordinates]
    with tempfile.TemporaryDirectory() as folder:
        found = _ivy(roots, Path(folder), transitive=True)
        beside = name.startswith(_BESIDE_SPARK)
        lines = []
        for file in sorted(found):
            group, module, revision = file.removesuffix(".jar").split("~")
            jar = Jar(group, module, revision)
            if not (beside and jar.coordinates not in coordinates and _in_spark(module)):
                lines.append(f"{jar.coordinates} sha256:{digest(found[file])}")
    made = f"# python scripts/fetch_jars.py --pin {name} {' '.join(coordinates)}"
    PINS.mkdir(parents=True, exist_ok=True)
    (PINS / f"{name}.txt").write_text("\n".join([made, *lines, ""]), encoding="ascii")


# ----------------------------------------------------------------------------------------------------------------------
# Ivy
# ----------------------------------------------------------------------------------------------------------------------


def _spark_jars() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise UnreachableError("PySpark is not installed, and its Ivy fetches the archives")
    return Path(found.origin).parent / "jars"


def _in_spark(module: str) -> bool:
    """Whether PySpark has a version of an archive."""
    return any(re.fullmatch(rf"{re.escape(module)}-\d.*\.jar", file.name) for file in _spark_jars().iterdir())


def java() -> str:
    """The Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise UnreachableError("there is no Java to run Ivy with: set JAVA_HOME")
    return found


def _ivy(jars: list[Jar], folder: Path, *, transitive: bool) -> dict[str, Path]:
    """Resolve and copy; the files by the names that they have in the cache."""
    wanted = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.module)} rev={quoteattr(jar.revision)} "
        f'transitive="{str(transitive).lower()}" conf="default->{"default" if transitive else "master"}"/>'
        for jar in jars
    )
    # What was asked for wins over what another one of them depends on.
    wanted += "".join(
        f"<override org={quoteattr(jar.group)} module={quoteattr(jar.module)} rev={quoteattr(jar.revision)}/>"
        for jar in jars
    )
    description = folder / "ivy.xml"
    description.write_text(
        '<ivy-module version="2.0"><info organisation="dovetail" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>',
        encoding="utf-8",
    )
    (ivy,) = _spark_jars().glob("ivy-*.jar")
    command = [java(), f"-Divy.default.ivy.user.dir={folder / 'ivy'}", "-cp", str(ivy), "org.apache.ivy.Main"]
    if settings := os.environ.get("IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-ivy", str(description), "-types", "jar", "bundle", "-retrieve", str(folder / "jars" / _FIELD)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"Ivy did not run: {error}") from error
    said = done.stdout + done.stderr
    missing = sorted(set(re.findall(r":: (\S+#\S+: not found)", said)))
    failed = sorted(set(re.findall(r"\[FAILED *\] (\S+)", said)))
    if done.returncode or missing or failed:
        reason = re.search(r"(?:\w+\.)+(?:UnknownHost|Connect|SSL\w*|SocketTimeout)Exception[^\n]*", said)
        what = "; ".join(missing or failed) or (said.strip().splitlines() or ["nothing"])[-1].strip()
        raise UnreachableError(f"Maven did not give {what}{f' ({reason.group().strip()})' if reason else ''}")
    found = {}
    for file in (folder / "jars").iterdir():
        group, module, revision, _ = file.name.split("~")
        found[f"{group}~{module}~{revision}.jar"] = file
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Fetch Java archives by their Maven coordinates.")
    parser.add_argument("name", help="the set: the name of a file below requirements/jars, without its ending")
    parser.add_argument("coordinates", nargs="*", help="with --pin: group:module:version")
    parser.add_argument("--pin", action="store_true", help="resolve the coordinates and write the file of the set")
    given = parser.parse_args()
    try:
        if given.pin:
            pin(given.name, given.coordinates)
        for file in fetch(given.name):
            print(file)
    except (UnreachableError, UnknownSetError, ChecksumError) as error:
        print(f"fetch_jars: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
