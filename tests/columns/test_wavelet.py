"""Wavelet matrices against sorted slices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from dovetail.columns.wavelet import below, build, kth


@examples(200)
@given(
    st.lists(st.integers(0, 9), max_size=20) | st.lists(st.integers(0, 2**40), min_size=60, max_size=140),
    st.randoms(use_true_random=False),
)
def test_ranges_of_positions(numbers, draw):
    """Words hold 64 bits: sizes on both sides of that."""
    matrix = build(np.array(numbers, dtype=np.int64))
    for _ in range(10):
        begin, end = sorted(draw.randint(0, len(numbers)) for _ in range(2))
        part = sorted(numbers[begin:end])
        for k in {0, len(part) // 2, len(part) - 1} if part else ():
            assert kth(matrix, begin, end, k) == part[k]
        for wanted in (-1, 0, draw.choice(numbers or [3]), draw.choice(numbers or [3]) + 1, 2**41, 2**62):
            assert below(matrix, begin, end, wanted) == sum(number < wanted for number in part)
