"""Reproduce the experiments of the W-join paper: Figures 7, 8, 9, 13 and 14, and a verdict on every claim.

python experiments/wjoin/run.py [--figure 9a] [--out artifacts/wjoin] [--runs 3] [--readme]
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
        "the W-join paper",
        FIGURES,
        Context,
        option=("runs", int, 3, "runs per setting; the least time counts"),
    )
