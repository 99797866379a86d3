"""Kernels that are not compiled yet: on few rows they run as plain Python, and the answer does not wait for a compiler.

Compiling a kernel takes from a tenth of a second to several, and a join needs up to 25 of them.  On a thousand rows
Python runs them in milliseconds.  So a kernel that is not in the cache is compiled only where it pays: once its loops
have turned many times, or its calls have taken a while in this process.  What is in the cache is always used.

The variable DOVETAIL_KERNELS names another policy: "compiled" always compiles, "python" never does.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher, OmittedArg

__all__ = ["always_compiled", "compiled_where_it_pays"]

POLICY = "DOVETAIL_KERNELS"
NUMBERS = 1 << 20
"""How many numbers the arrays of a call may have; most of them are room for results."""
TURNS = 1_000_000
"""How often all loops of one call may turn, before what they wrote is undone and the kernel compiled."""
SECONDS = 1.0
"""How long one kernel may take as Python in a process, all its calls together: about what compiling it takes."""

_TURN = "_dovetail_turn"


class _NotCompiledError(Exception):
    """The cache does not have the kernel for these types."""


class _TooLongError(Exception):
    """The loops of a call have turned more often than Python should."""


class _Thread(threading.local):
    """What the current thread does with a kernel that is not in the cache."""

    may_compile = True
    turns = 0


_thread = _Thread()
_plain: dict[Dispatcher, Callable[..., Any]] = {}


def compiled_where_it_pays(kernel: Any) -> Any:
    """Let a kernel of Numba's run as Python where it is not in the cache and has little to do.

    Parameters
    ----------
    kernel
        What ``numba.njit(cache=True)`` made; it is changed in place, and other kernels call it as before.
    """
    if not hasattr(kernel, "py_func"):
        return kernel  # with NUMBA_DISABLE_JIT it is the function itself
    compile_for: Callable[..., Callable[..., Any]] = kernel._compile_for_args
    load = kernel._cache.load_overload
    taken = 0.0

    def from_cache(types: Any, target: Any) -> Any:
        found = load(types, target)
        if found is None and not _thread.may_compile:
            raise _NotCompiledError
        return found

    def function_for(*arguments: Any, **named: Any) -> Callable[..., Any]:
        """What Numba calls in place of a specialisation that this process does not have yet."""
        policy = os.environ.get(POLICY)
        unlimited = policy == "python"
        if policy == "compiled" or kernel.py_func.__closure__ or not (unlimited or _is_small(arguments, taken)):
            return compile_for(*arguments, **named)
        before, _thread.may_compile = _thread.may_compile, False
        try:
            return compile_for(*arguments, **named)
        except _NotCompiledError:
            return limitless if unlimited else limited
        finally:
            _thread.may_compile = before

    def limited(*arguments: Any) -> Any:
        nonlocal taken
        copies = [(array, array.copy()) for array in _arrays(arguments) if array.flags.writeable]
        began = time.thread_time()
        try:
            _thread.turns = TURNS
            return limitless(*arguments)
        except (_TooLongError, OverflowError):  # machine code wraps around where Python refuses
            for array, copy in copies:
                array[...] = copy
            return compile_for(*arguments)(*arguments)
        finally:
            taken += time.thread_time() - began

    def limitless(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return _as_returned(_as_python(kernel)(*map(_as_machine, arguments)))

    kernel._cache.load_overload = from_cache
    kernel._compile_for_args = function_for
    return kernel


@contextmanager
def always_compiled() -> Iterator[None]:
    """Compile every kernel at its first call, in this process and in those that it starts meanwhile.

    For whoever measures joins, or fills the cache.
    """
    before = os.environ.get(POLICY)
    os.environ[POLICY] = "compiled"
    try:
        yield
    finally:
        if before is None:
            del os.environ[POLICY]
        else:
            os.environ[POLICY] = before


def _is_small(arguments: tuple[Any, ...], taken: float) -> bool:
    return taken < SECONDS and sum(array.size for array in _arrays(arguments)) <= NUMBERS


def _arrays(arguments: Any) -> list[Any]:
    """The arrays among the arguments of a kernel, those in tuples as well."""
    found = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, tuple):
            found += _arrays(value)
    return found


def _as_machine(value: Any) -> Any:
    """A number as a kernel has it: of 64 bits, and not of any size."""
    if isinstance(value, OmittedArg):
        value = value.value
    if isinstance(value, bool):
        return value
    return np.int64(value) if isinstance(value, int) else np.float64(value) if isinstance(value, float) else value


def _as_returned(value: Any) -> Any:
    """A result as Numba gives it: numbers are Python's own."""
    if isinstance(value, tuple):
        parts = [_as_returned(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.item() if isinstance(value, np.generic) else value


def _as_python(kernel: Dispatcher) -> Callable[..., Any]:
    """A kernel's own function, calling those of other kernels, and counting the turns of its loops."""
    if kernel not in _plain:
        function = kernel.py_func
        found: dict[str, Any] = {**function.__globals__, _TURN: _turn}
        code = _counting(function)
        _plain[kernel] = FunctionType(code, found, function.__name__, function.__defaults__)
        for name in _names(code):
            if isinstance(found.get(name), Dispatcher):
                found[name] = _as_python(found[name])
    return _plain[kernel]


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*map(_names, _codes(code)))


def _codes(code: CodeType) -> list[CodeType]:
    return [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _counting(function: Callable[..., Any]) -> CodeType:
    """The code of a function, from its source, with a call in each of its loops."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            turn = ast.Call(ast.Name(_TURN, ast.Load()), [], [])
            node.body.insert(0, ast.copy_location(ast.Expr(turn), node))
    ast.increment_lineno(ast.fix_missing_locations(tree), first - 1)
    (code,) = (
        inner
        for inner in _codes(compile(tree, function.__code__.co_filename, "exec"))
        if inner.co_name == function.__name__
    )
    return code


def _turn() -> None:
    _thread.turns -= 1
    if _thread.turns == 0:
        raise _TooLongError
