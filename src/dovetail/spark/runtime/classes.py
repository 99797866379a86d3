"""The JVM's classes as it left them the last time: half of its start is loading and verifying those of Spark.

Java keeps loaded classes in an archive if it is asked to (class data sharing, Java 13 and newer), and maps the archive
into memory at its next start.  `dovetail warm` has one made, `dovetail.session` starts the JVM with it.  With Spark 4.3
and Java 17 the session then takes 5.5 s of processor time instead of 10.4, and a first join 9.4 s instead of 13.1.

The JVM checks the archive itself.  One that was made by another Java or with other jars is ignored.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pyspark

_SHARING = ("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-XX:+AutoCreateSharedArchive")
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""An archive that does not fit is no reason to speak: the JVM starts as it would without one."""


def archive(java: int) -> Path:
    """The archive for this PySpark and that version of Java; it need not exist."""
    told = f"{pyspark.__file__} {pyspark.__version__} {os.environ.get('SPARK_HOME', '')} {java} {sys.platform}"
    return _cache() / f"classes-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def _cache() -> Path:
    """The folder of this user for what can be made again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dovetail"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail"


def sharing_options(java: int, options: str) -> str:
    """The options with which the JVM takes its classes from the archive; none where there is nothing to take.

    Parameters
    ----------
    java
        The major version of the Java that starts.
    options
        What the JVM is told anyway: a user who says something about sharing decides alone.
    """
    if any(word in options for word in _SHARING):
        return ""
    try:
        file = archive(java)
        usable = file.is_file() and file.stat().st_uid == os.getuid()
    except (OSError, RuntimeError, AttributeError):
        return ""  # nobody's home, or a system without owners of files
    return f'"-XX:SharedArchiveFile={file}" -Xshare:auto {_SILENT}' if usable else ""


def recording_options(file: Path) -> str:
    """The options with which the JVM writes the archive when it ends."""
    return f'"-XX:ArchiveClassesAtExit={file}" {_SILENT}'
