"""Input of strangers, drawn: pieces of what is right, cut, doubled and mixed with what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.targets import TARGETS, check, seeds
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.unhurried

# What parsers stumble over: depth, size, controls, numbers that are none, and words of formats nearby.
PIECES = (
    b"(" * 3000, b"[" * 3000, b"{" * 3000, b"NOT " * 2000, b"- " * 2000, b"'" * 7, b"`", b"/*", b"--", b"\\", b"\0",
    b"\xff\xfe", b"\xed\xa0\x80", b"1e999", b"-9223372036854775809", b"9" * 5000, b"NaN", b"null", b"&a [*a, *a]",
    b"!!python/object/apply:os.system [id]", b"${here}", b"${", b"../../etc/passwd", b"\n", b"\t", b": ", b"- ",
    b"\x85", b"\xe2\x80\xa8", b'{"kind": "batch"}', b",", b"<<: ",
)  # fmt: skip


@st.composite
def mixed(draw, name):
    """A right input with cuts and pieces of others."""
    known = list(seeds(name))
    data = draw(st.sampled_from(known))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(0, 40)))
        new = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=20), st.sampled_from(known)))
        data = data[:at] + new + data[to:]
    return data


@pytest.mark.parametrize("name", list(TARGETS))
def test_seeds_are_there_and_right(name):
    found = list(seeds(name))
    assert found
    for data in found:
        check(name, data)


@pytest.mark.parametrize("name", list(TARGETS))
@given(data=st.data())
def test_nothing_but_a_refusal_in_words(name, data):
    check(name, data.draw(mixed(name)))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", list(TARGETS))
@pytest.mark.parametrize("piece", PIECES, ids=[repr(piece[:12]) for piece in PIECES])
def test_each_piece_alone_before_and_behind(name, piece):
    right = next(iter(seeds(name)))
    for data in (piece, piece + right, right + piece, right[: len(right) // 2] + piece + right[len(right) // 2 :]):
        check(name, data)


def test_a_kept_input_is_given_to_its_target_again(tmp_path):
    kept = tmp_path / "header-crash"
    kept.write_bytes(b"{}")
    command = [sys.executable, "-m", "fuzz", "--again", str(kept)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[1]
    )
    assert "nothing happened" in done.stdout
