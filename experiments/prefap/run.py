"""Reproduce section 4 of the Prefap paper: every figure and table, and a verdict on every claim.

python experiments/prefap/run.py [--figure 5] [--out artifacts/prefap] [--runs 30]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from figures import FIGURES, Context
from reproduce import reproduce
from tables import TABLES

ORDER = ("5", "6", "7", "8", "9", "10", "11", "table3", "table4", "12", "13", "14", "15")
EVERY = {**FIGURES, **TABLES}

if __name__ == "__main__":
    reproduce(
        __file__,
        __doc__,
        "the Prefap paper",
        {name: EVERY[name] for name in ORDER},
        Context,
        option=("runs", int, 30, "runs per setting (three-way joins: a sixth)"),
    )
