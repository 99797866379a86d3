"""How many examples a property draws: its own number in make test-slow, fewer in a run that somebody waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings

# What the profile `ci` in conftest.py draws where a test says nothing.
CI = 120


def examples(count: int) -> Callable[[Any], Any]:
    """`count` examples in the profile `ci`, and as much less in any other as its own number is below that of `ci`."""
    return settings(max_examples=max(5, count * settings.default.max_examples // CI))
