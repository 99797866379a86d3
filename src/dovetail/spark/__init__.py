"""The only folder that imports PySpark; whether there is one that Dovetail can run on is asked here, before any import.

A worker's daemon chooses where it imports PySpark from, so this must not import it for the daemon.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from dovetail.errors import SetupError, missing_extra

OLDEST, NEWEST = (4, 0), (4, 3)
"""The releases that the tests run on.  A newer one is not refused: nobody knows yet what it cannot do."""


def check_pyspark() -> None:
    """Refuse a PySpark that is missing or too old, before something that it lacks is missing."""
    # A driver that spark-submit starts finds the PySpark of its cluster; a worker always has one.
    if "pyspark" not in sys.modules and find_spec("pyspark") is None:
        raise missing_extra(
            "joins need PySpark, which is not installed",
            "pyspark",
            otherwise="run the program with the spark-submit of your Spark, which brings its own",
        )
    found = _version()
    if found is not None and tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        raise SetupError(
            f"PySpark {found} is too old",
            accepted=f"PySpark {_dotted(OLDEST)} to {_dotted(NEWEST)}",
            hint='install a newer one, such as: pip install "pyspark>=4.0,<4.4"',
        )


def _version() -> str | None:
    """The version of the PySpark that is loaded, or else installed; one beside a cluster's Spark is not installed."""
    loaded = sys.modules.get("pyspark")
    if loaded is not None:
        return str(loaded.__version__)
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


check_pyspark()
