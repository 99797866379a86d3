"""What happens in a worker reaches the user in words."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

from dovetail.errors import ArgumentError, MemoryLimitError
from dovetail.spark.runtime.worker import plain_refusals


def test_memory_that_is_used_up_is_refused_in_words():
    for raised in (MemoryError(), pa.ArrowMemoryError("malloc of size 5 failed"), OSError(errno.ENOMEM, "no room")):
        words = "a cell of dovetail\\(A,B\\) ran out of memory"
        with pytest.raises(MemoryLimitError, match=words) as caught, plain_refusals("a cell of dovetail(A,B)"):
            raise raised
        assert "hint: more memory for each worker (spark.executor.pyspark.memory" in str(caught.value)
        assert str(raised).splitlines() == [] or str(raised) in str(caught.value)
        assert isinstance(caught.value, MemoryError)


def test_a_library_that_finds_no_room_is_memory_too():
    said = "libx.so: failed to map segment from shared object: cannot allocate memory"
    with pytest.raises(MemoryLimitError, match="failed to map segment"), plain_refusals():
        raise ImportError(said)


@pytest.mark.parametrize("raised", [ArgumentError("no"), OSError(errno.ENOSPC, "full"), ImportError("x"), KeyError(1)])
def test_anything_else_stays_what_it_is(raised):
    with pytest.raises(type(raised)) as caught, plain_refusals():
        raise raised
    assert caught.value is raised


def test_nothing_raised_is_nothing_refused():
    with plain_refusals():
        pass
