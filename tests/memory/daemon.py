"""Dovetail's worker daemon, limited with its workers in the memory that a process alone can write.

That is nearer to what a worker holds than its address space, which libraries and mere reservations take up, too.
"""

from __future__ import annotations

import os
import resource

from dovetail.spark.runtime import daemon

if __name__ == "__main__":
    most = int(os.environ["TEST_DATA_LIMIT"]) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    daemon.main()
