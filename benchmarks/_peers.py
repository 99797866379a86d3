"""ClickHouse (chdb) and polars-bio as peers of benchmarks, in an environment and a process of their own.

They are no dependencies of this project, and polars-bio wants another Polars and another Arrow than it has, so they
live in ``build/peers``.  This installs them there:

    python benchmarks/_peers.py install

The process answers one request for each line on standard input, so that engines can take turns; an exchange takes a
tenth of a millisecond.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

CORES = 2
PINS = ("chdb==4.4.0", "polars-bio==0.36.2")
PLACE = Path(__file__).resolve().parents[1] / "build" / "peers"
PYTHON = PLACE / "bin" / "python"


def install() -> None:
    """Make the environment."""
    environment = os.environ | {"UV_SYSTEM_CERTS": "1"}
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--clear", "--python", sys.executable, str(PLACE)], check=True, env=environment)
    subprocess.run([*uv, "pip", "install", "--python", str(PYTHON), *PINS], check=True, env=environment)


def installed() -> bool:
    """Whether the environment is there; benchmarks leave the peers out otherwise, and say so."""
    return PYTHON.is_file()


class Peers:
    """The process, from the other end."""

    def __enter__(self) -> Peers:
        self._process = subprocess.Popen(
            [str(PYTHON), __file__, "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"POLARS_MAX_THREADS": str(CORES), "TQDM_DISABLE": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def clickhouse(self, query: str) -> int:
        """Run a query whose first column is a number of rows, and give that number."""
        return self._ask(engine="clickhouse", query=f"{query} SETTINGS max_threads = {CORES}")

    def polars_bio(self, call: str, left: Path, right: Path, columns: list[str], **options: Any) -> int:
        """Join two Parquet files of intervals into a frame of Polars; both ends of an interval belong to it."""
        files = [str(left), str(right)]
        return self._ask(engine="polars-bio", call=call, files=files, columns=columns, options=options)

    def polars_bio_sum(self, call: str, left: Path, right: Path, columns: list[str], name: str) -> int:
        """The sum of a column of such a join, to check it."""
        files = [str(left), str(right)]
        return self._ask(engine="polars-bio", call=call, files=files, columns=columns, options={}, total=name)

    def versions(self) -> str:
        """Both, as a page names them."""
        return ", ".join(PINS).replace("==", " ")

    def _ask(self, **request: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peers' process ended at {request}")
        found = json.loads(answer)
        if "error" in found:
            raise RuntimeError(found["error"])
        return int(found["rows"])


def _serve() -> None:
    """Answer requests; only here are the peers imported."""
    import chdb
    import polars_bio

    polars_bio.set_option("datafusion.execution.target_partitions", str(CORES))
    polars_bio.set_option("datafusion.bio.coordinate_system_zero_based", "false")
    polars_bio.set_option("datafusion.bio.coordinate_system_check", "false")
    connection = chdb.connect(":memory:")
    # The packages print; what is for the other end goes to a copy of the standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["engine"] == "clickhouse":
                answer = connection.query(asked["query"], "CSV")
                rows = int(str(answer).split(",")[0])
            else:
                columns = asked["columns"]
                joined = getattr(polars_bio, asked["call"])(
                    *asked["files"], cols1=columns, cols2=columns, **asked["options"]
                )
                frame = joined.collect()
                rows = int(frame[asked["total"]].sum()) if "total" in asked else frame.height
            answers.write(json.dumps({"rows": rows}) + "\n")
        except Exception as error:  # the other end raises it
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")


if __name__ == "__main__":
    {"install": install, "serve": _serve}[sys.argv[1]]()
