"""PySpark's worker, limited in the memory that it alone can write: nearer to what it holds than its address space."""

from __future__ import annotations

import os
import resource
from typing import Any

from pyspark import worker


def main(infile: Any, outfile: Any) -> None:
    """Called by PySpark's daemon in each worker."""
    most = int(os.environ["TEST_DATA_LIMIT"]) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    worker.main(infile, outfile)
