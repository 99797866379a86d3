"""Reproduce the experiments of the GrubJoin paper: its figures and examples, and a verdict on every claim.

python experiments/grubjoin/run.py [--figure 11] [--out artifacts/grubjoin] [--runs 1] [--readme]
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
        "the GrubJoin paper",
        FIGURES,
        Context,
        option=("runs", int, 1, "runs per setting, from seeds; the mean counts"),
    )
