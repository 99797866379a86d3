"""Kernels that are not in the cache: what runs as Python gives what machine code gives, and only where it is little."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.columns import hashing, uncompiled
from dovetail.columns.numba_cache import always_compiled, njit

pytestmark = pytest.mark.unhurried
ROOT = Path(__file__).parents[2]
WIDE = st.integers(-(2**63), 2**63 - 1)


def plus(one: int, other: int = 1) -> int:
    return one + other


def add_in_place(values, times: int):
    for _ in range(times):
        for at in range(values.size):
            values[at] = step(values[at])
    return values.sum()


def halved(number: int) -> int:
    return 0 if number <= 1 else 1 + halved(number // 2)


def refused(values):
    if values.size > 2:
        raise ValueError("too many")
    return values[0]


def one_below(values):
    least = 0
    for value in values:
        least = min(least, value)
    return np.uint64(least - 1)


@njit
def product(one: int, other: int) -> int:
    return one * other


@pytest.fixture
def kernels(monkeypatch, tmp_path):
    """Kernels of the functions above, with a cache of their own."""
    monkeypatch.delenv(uncompiled.POLICY, raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    monkeypatch.setitem(globals(), "step", njit(plus))
    return njit


class TestPolicy:
    def test_few_turns_compile_nothing(self, kernels, tmp_path):
        kernel = kernels(add_in_place)
        values = np.arange(5)
        assert kernel(values, 3) == 25
        assert values.tolist() == [3, 4, 5, 6, 7]
        assert not kernel.signatures
        assert not globals()["step"].signatures
        assert not list(tmp_path.rglob("*.nbc"))

    def test_many_turns_are_undone_and_compiled(self, kernels, monkeypatch):
        monkeypatch.setattr(uncompiled, "TURNS", 100)
        kernel = kernels(add_in_place)
        values = np.arange(5)
        assert kernel(values, 50) == 260
        assert values.tolist() == [50, 51, 52, 53, 54]
        assert kernel.signatures

    def test_turns_of_a_kernel_that_it_calls_count(self, kernels, monkeypatch):
        monkeypatch.setattr(uncompiled, "TURNS", 100)
        monkeypatch.setitem(globals(), "inner", kernels(add_in_place))
        outer = kernels(calls_another)
        assert outer(np.zeros(10, dtype=np.int64), 20) == 200
        assert outer.signatures

    def test_calls_that_took_long_together_are_compiled(self, kernels, monkeypatch):
        kernel = kernels(add_in_place)
        kernel(np.arange(5), 3)
        monkeypatch.setattr(uncompiled, "SECONDS", 0.0)
        kernel(np.arange(5), 3)
        assert kernel.signatures

    def test_long_arrays_are_compiled(self, kernels, monkeypatch):
        monkeypatch.setattr(uncompiled, "NUMBERS", 4)
        kernel = kernels(add_in_place)
        kernel(np.arange(4), 1)
        assert not kernel.signatures
        kernel(np.arange(5), 1)
        assert kernel.signatures

    def test_arrays_in_tuples_count(self, kernels, monkeypatch):
        monkeypatch.setattr(uncompiled, "NUMBERS", 5)
        kernel = kernels(of_a_pair)
        assert kernel((np.arange(2), np.arange(3))) == 4
        assert not kernel.signatures
        assert kernel((np.arange(3), np.arange(3))) == 6
        assert kernel.signatures

    def test_what_is_in_the_cache_is_used(self, kernels):
        with always_compiled():
            kernels(add_in_place)(np.arange(5), 3)
        again = kernels(add_in_place)
        assert again(np.arange(5), 3) == 25
        assert again.stats.cache_hits

    @pytest.mark.parametrize("policy", ["compiled", "python"])
    def test_a_policy_by_name(self, kernels, monkeypatch, policy):
        monkeypatch.setenv(uncompiled.POLICY, policy)
        monkeypatch.setattr(uncompiled, "TURNS", 1)
        kernel = kernels(add_in_place)
        assert kernel(np.arange(5), 3) == 25
        assert bool(kernel.signatures) == (policy == "compiled")

    def test_always_compiled_leaves_the_environment_as_it_was(self, monkeypatch):
        for before in (None, "python"):
            if before is None:
                monkeypatch.delenv(uncompiled.POLICY, raising=False)
            else:
                monkeypatch.setenv(uncompiled.POLICY, before)
            with always_compiled():
                assert os.environ[uncompiled.POLICY] == "compiled"
            assert os.environ.get(uncompiled.POLICY) == before

    def test_threads_do_not_disturb_each_other(self, kernels, monkeypatch):
        monkeypatch.setattr(uncompiled, "TURNS", 2_000)
        kernel, found = kernels(add_in_place), []

        def run():
            found.extend(int(kernel(np.arange(10), 100)) for _ in range(5))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [1045] * 20
        assert not kernel.signatures

    def test_numba_may_be_switched_off(self):
        script = (
            "import numpy; from dovetail.columns import codes; "
            "assert not hasattr(codes._float64_codes, 'signatures'); "
            "one, other = (codes.float_codes(numpy.array([zero, 1.5])).tolist() for zero in (-0.0, 0.0)); "
            "print(one == other)"
        )
        env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
        run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert (run.stdout, run.stderr) == ("True\n", "")


class TestMeaning:
    def test_defaults_and_recursion(self, kernels, monkeypatch):
        assert kernels(plus)(4) == 5
        assert kernels(plus)(4, 3) == 7
        kernel = kernels(halved)
        monkeypatch.setitem(globals(), "halved", kernel)
        assert kernel(1024) == 10
        assert not kernel.signatures

    def test_numbers_that_it_returns_are_those_of_python(self, kernels):
        kernel = kernels(several)
        values = np.array([2.5, 1.0])
        found = kernel(values)
        assert not kernel.signatures
        with always_compiled():
            compiled = kernels(several)(values)
        assert found == compiled
        assert [type(part) for part in found] == [type(part) for part in compiled] == [float, bool, int]

    def test_an_error_of_the_kernel_is_raised(self, kernels):
        kernel = kernels(refused)
        assert kernel(np.arange(2)) == 0
        with pytest.raises(ValueError, match="too many"):
            kernel(np.arange(3))
        assert not kernel.signatures

    def test_what_python_refuses_is_compiled(self, kernels):
        kernel = kernels(one_below)
        assert int(kernel(np.array([-5, 3]))) == 2**64 - 6
        assert not kernel.signatures
        assert int(kernel(np.zeros(0, dtype=np.int64))) == 2**64 - 1  # np.uint64(-1) is an OverflowError
        assert kernel.signatures

    @given(number=WIDE, other=WIDE)
    def test_numbers_wrap_around(self, number, other):
        assert product(number, other) == (number * other + 2**63) % 2**64 - 2**63
        assert not product.signatures

    @given(values=st.lists(WIDE, max_size=5), texts=st.lists(st.binary(max_size=9), min_size=1, max_size=5))
    def test_hashes_are_those_of_the_machine(self, values, texts):
        codes = np.array(values, dtype=np.int64)
        ends = np.cumsum([0, *map(len, texts)])
        payload = np.frombuffer(b"".join(texts), dtype=np.uint8)
        machine, python = np.arange(codes.size), np.arange(codes.size)
        with always_compiled():
            hashing.mix_into(machine, codes)
            hashes = hashing.text_hashes(ends, payload)
        with np.errstate(over="ignore"):
            uncompiled._as_python(hashing.mix_into)(python, codes)
            assert uncompiled._as_python(hashing.text_hashes)(ends, payload).tolist() == hashes.tolist()
        assert machine.tolist() == python.tolist()


def several(values):
    return values[0], values[0] < values[1], np.int64(values.size)


def calls_another(values, times: int):
    return inner(values, times)


def of_a_pair(pair):
    total = 0
    for value in pair[0]:
        total += value
    for value in pair[1]:
        total += value
    return total


step = inner = None  # kernels, made by the fixture

FOLDERS = ["aggregate", "approx", "asof", "bestmatch", "columns", "nearest", "shedding", "theta", "window"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_kernel_as_python(folder, tmp_path):
    """The tests of each family's kernels against its oracles, with nothing compiled."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "--hypothesis-profile=fast"]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-m", "not spark and not slow and not unhurried", f"tests/{folder}",
         "--ignore-glob=*test_experiment.py"],
        env={**os.environ, uncompiled.POLICY: "python", "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-3000:]
    assert not list(tmp_path.rglob("*.nbc"))
