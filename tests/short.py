"""Little memory for the stages of a join, without a limit on the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from dovetail.columns import memory


@contextmanager
def short_of_memory(most: int) -> Iterator[None]:
    """A side of a cell may cost so much; 1 makes every row a piece."""
    with patch.object(memory, "FLOOR", 0), patch.object(memory, "share", lambda: most):
        yield
