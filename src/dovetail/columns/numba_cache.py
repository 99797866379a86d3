"""The compiler of the kernels, with its cache always on and always in a folder that can be written.

Numba keeps compiled code in ``__pycache__`` next to the source, else in the user's cache folder.  Where it can
write to neither, as with a package that root installed and a service account without a home, it raises "no
locator available" at the definition of the first kernel.  This module gives it a third choice.  Every kernel
module takes `njit` from here, so the driver and each worker find a folder for themselves.

A package that travels to the workers as one file has no folder at all, and every program has it under another path.
Numba would compile again each time, or refuse.  Kernels of an archive get a source file in the user's cache folder
instead, under a name derived from the content of the archive: all programs and workers with the same package share it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from dovetail.columns.shipped import unpack_kernels, write_source

__all__ = ["always_compiled", "njit"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def cache_folder(package: Path) -> Path | None:
    """A private folder for compiled code, or None where Numba finds a place by itself.

    Parameters
    ----------
    package
        The folder of the modules that contain the kernels.
    """
    if os.environ.get("NUMBA_CACHE_DIR") or sys.platform == "win32":
        return None  # Windows has a folder for every user's temporary files, and Numba uses it
    if _usable(package / "__pycache__") or _usable(_user_cache()):
        return None
    return _temporary()


def unpacked_folder(module: Path) -> Path | None:
    """A folder for the kernels of a package that was imported from an archive; None where it has a folder of its own.

    Parameters
    ----------
    module
        The path of a module of the package; it lies below the archive if it was imported from one.
    """
    archive = next((parent for parent in module.parents if parent.is_file()), None)
    if archive is None or not zipfile.is_zipfile(archive):
        return None
    below = f"{module.parents[1].relative_to(archive).as_posix()}/"
    digest = hashlib.sha256()
    with zipfile.ZipFile(archive) as opened:
        for entry in sorted(opened.infolist(), key=lambda info: info.filename):
            if entry.filename.startswith(below):
                digest.update(f"{entry.filename} {entry.CRC}\n".encode())
    root = _user_cache() if _usable(_user_cache()) else _temporary()
    folder = root / f"dovetail-{digest.hexdigest()[:20]}"
    folder.mkdir(exist_ok=True)
    unpack_kernels(archive, folder)
    return folder


def _temporary() -> Path:
    """A folder of temporary files that is this user's alone, the same in every process where that is possible."""
    if sys.platform != "win32":
        shared = Path(tempfile.gettempdir()) / f"dovetail-numba-{os.getuid()}"
        if _private(shared) and _usable(shared):
            return shared
    return Path(tempfile.mkdtemp(prefix="dovetail-numba-"))


def _user_cache() -> Path:
    """The folder that Numba takes when it cannot write next to the source."""
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Caches")) / "numba"  # noqa: PTH111
    # Path.expanduser raises where no home is known; this leaves the ~, which _usable refuses.
    return Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "numba"  # noqa: PTH111


def _usable(folder: Path) -> bool:
    """Whether files can be made in `folder`; makes it if it is missing, as Numba is about to do.

    Permission bits are not enough: the file system may be read-only, or full.
    """
    if not folder.is_absolute():
        return False  # code does not belong in the working directory
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _private(folder: Path) -> bool:
    """Whether `folder` is this user's alone; makes it if it is missing.

    Numba unpickles what it finds there, so anyone who can write to the folder can run code as this user.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _choose_cache() -> None:
    """Tell Numba where to keep its code, unless it has a folder or the user chose one."""
    loaded = sys.modules.get("numba")
    if loaded is not None and loaded.config.CACHE_DIR:
        return
    folder = cache_folder(Path(__file__).parents[1])
    if folder is None:
        return
    if loaded is None:
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
    else:
        # A changed variable would make Numba read all of them again and drop what the user set in its config.
        loaded.config.CACHE_DIR = str(folder)


_unpacked = unpacked_folder(Path(__file__))
if _unpacked is None:
    _choose_cache()

import numba  # noqa: E402 - it reads its settings when it is imported

from dovetail.columns.uncompiled import always_compiled, compiled_where_it_pays  # noqa: E402


@overload
def njit(function: Callable[_P, _R], /) -> Callable[_P, _R]: ...


@overload
def njit(**options: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def njit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function with Numba at its first call, and keep the machine code on disk.

    Parameters
    ----------
    function
        The function, where the decorator stands without parentheses.
    options
        What ``numba.njit`` takes besides ``cache``, such as ``inline="always"``.

    Examples
    --------
    >>> from dovetail.columns.codes import float_codes  # its loop is compiled
    >>> import numpy as np
    >>> float_codes(np.array([0.0, -0.0])).tolist()
    [0, 0]
    """
    compiled = numba.njit(cache=True, **options)

    def kernel(function: Callable[..., Any]) -> Any:
        return compiled_where_it_pays(compiled(function if _unpacked is None else _with_source(function, _unpacked)))

    return kernel if function is None else kernel(function)


def _with_source(function: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """A function of an archive, given a source file next to which Numba keeps what it compiles."""
    spec = sys.modules[function.__module__].__spec__
    source = getattr(spec.loader, "get_source", None) if spec is not None else None
    file = folder.joinpath(*function.__module__.split(".")).with_suffix(".py")
    if source is not None and not file.exists():
        write_source(file, source(function.__module__) or "")
    function.__code__ = function.__code__.replace(co_filename=str(file))
    return function
