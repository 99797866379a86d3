"""Reproduce section 5 of the paper on progressive approximate joins: Figures 4 to 9, and a verdict on every claim.

python experiments/approx/run.py [--figure 4] [--out artifacts/approx] [--scale 1.0]
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
        "the paper on progressive approximate joins",
        FIGURES,
        Context,
        option=("scale", float, 1.0, "rows of all streams, as a share of the paper's"),
    )
