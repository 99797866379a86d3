"""Reproduce section 4 of the best-match paper: figures 11 to 14, and a verdict on every claim.

python experiments/bestmatch/run.py [--figure 11] [--out artifacts/bestmatch] [--runs 3]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from figures import FIGURES, Context
from reproduce import reproduce

if __name__ == "__main__":
    reproduce(
        __file__,
        __doc__,
        "the best-match paper",
        FIGURES,
        Context,
        option=("runs", int, 3, "runs per setting; the median time counts"),
    )
