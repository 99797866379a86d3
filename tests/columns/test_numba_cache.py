"""The compiler's cache: always on, and never in a folder that someone else can write to."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dovetail.columns import numba_cache
from dovetail.columns.numba_cache import cache_folder, njit, unpacked_folder
from dovetail.columns.shipped import CPU, KERNELS, add_kernels, unpack_kernels

pytestmark = pytest.mark.unhurried


@njit
def twice(x):
    return 2 * x


@njit(inline="always")
def half(x):
    return x / 2


@njit
def same(values):
    return half(twice(values))


class TestNjit:
    def test_compiles_with_and_without_options(self, monkeypatch):
        monkeypatch.setenv("DOVETAIL_KERNELS", "compiled")
        assert same(np.array([1.0, 2.5])).tolist() == [1.0, 2.5]
        assert same.signatures
        assert half.targetoptions["inline"] == "always"

    @pytest.mark.parametrize("kernel", [twice, half, same])
    def test_cache_is_on(self, kernel):
        assert kernel.stats.cache_path is not None

    def test_cache_cannot_be_turned_off(self):
        with pytest.raises(TypeError, match="cache"):
            njit(cache=False)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A package and a home that nobody can write to, root included: files stand where folders should be."""
    package, home, temporary = (tmp_path / name for name in ("package", "home", "tmp"))
    package.mkdir()
    (package / "__pycache__").touch()
    home.touch()
    temporary.mkdir()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(numba_cache.tempfile, "tempdir", str(temporary))
    return package


@pytest.fixture
def shared(nowhere):
    return nowhere.parent / "tmp" / f"dovetail-numba-{os.getuid()}"


class TestFolder:
    def test_is_left_to_numba_where_the_package_can_be_written(self, nowhere):
        (nowhere / "__pycache__").unlink()
        assert cache_folder(nowhere) is None

    def test_is_left_to_numba_where_the_home_can_be_written(self, nowhere, monkeypatch, tmp_path):
        (tmp_path / "another").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "another"))
        if sys.platform != "darwin":
            assert cache_folder(nowhere) is None
            monkeypatch.setenv("HOME", str(tmp_path / "home"))
            monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        assert cache_folder(nowhere) is None

    def test_choice_of_the_user_stays(self, nowhere, monkeypatch):
        monkeypatch.setenv("NUMBA_CACHE_DIR", "/chosen")
        assert cache_folder(nowhere) is None

    def test_is_private_and_the_same_every_time(self, nowhere, shared):
        assert cache_folder(nowhere) == shared
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700
        assert cache_folder(nowhere) == shared, "a second process finds the kernels of the first"

    @pytest.mark.skipif(sys.platform == "darwin", reason="XDG_CACHE_HOME means nothing there")
    @pytest.mark.parametrize("relative", ["", "here"])
    def test_is_not_below_the_working_directory(self, nowhere, shared, monkeypatch, tmp_path, relative):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert cache_folder(nowhere) == shared

    def test_home_that_is_not_known_is_no_error(self, nowhere, shared, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(numba_cache.os.path, "expanduser", lambda path: path)
        assert cache_folder(nowhere) == shared
        assert not (tmp_path / "~").exists()

    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
    def test_of_ours_that_others_may_write_is_refused(self, nowhere, shared, mode):
        shared.mkdir()
        shared.chmod(mode)
        self.check_fresh(cache_folder(nowhere), shared)

    def test_of_someone_else_is_refused(self, nowhere, shared, monkeypatch):
        shared.mkdir(mode=0o700)
        owner = os.getuid()
        monkeypatch.setattr(numba_cache.os, "getuid", lambda: owner + 1)
        theirs = shared.with_name(f"dovetail-numba-{owner + 1}")
        shared.rename(theirs)
        self.check_fresh(cache_folder(nowhere), theirs)

    def test_link_is_refused(self, nowhere, shared, tmp_path):
        target = tmp_path / "target"
        target.mkdir(mode=0o700)
        shared.symlink_to(target)
        self.check_fresh(cache_folder(nowhere), shared)

    def test_file_in_its_place_is_no_error(self, nowhere, shared):
        shared.touch(mode=0o600)
        self.check_fresh(cache_folder(nowhere), shared)

    @staticmethod
    def check_fresh(folder, refused):
        assert folder != refused
        assert folder.parent == refused.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not any(folder.iterdir())


_PACKAGE = Path(numba_cache.__file__).parents[1]


class TestImport:
    """In a process of its own, with the package and the home closed to it."""

    @staticmethod
    def run(nowhere: Path, script: str) -> subprocess.CompletedProcess[str]:
        package = nowhere.parent / "closed" / "dovetail"
        shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "__pycache__").touch()
        (package / "columns" / "__pycache__").touch()
        (package / "plain.py").write_text("import numba\n@numba.njit(cache=True)\ndef f(x):\n    return x\n")
        temporary = str(nowhere.parent / "tmp")
        env = {**os.environ, "TMPDIR": temporary, "PYTHONPATH": str(package.parent), "DOVETAIL_KERNELS": "compiled"}
        return subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=nowhere.parent, capture_output=True, text=True
        )

    def test_numba_alone_would_raise(self, nowhere):
        assert "no locator available" in self.run(nowhere, "import dovetail.plain").stderr

    @pytest.mark.parametrize("before", ["", "import numba"])
    def test_kernels_are_kept_in_the_private_folder(self, nowhere, shared, before):
        script = f"""
{before}
import numpy, sys
from dovetail.columns import codes
codes.float_codes(numpy.zeros(1))
assert "pyspark" not in sys.modules
"""
        run = self.run(nowhere, script)
        assert (run.returncode, run.stderr) == (0, "")
        assert list(shared.rglob("*_float64_codes*.nbc"))

    def test_folder_in_the_config_of_numba_stays(self, nowhere, shared):
        chosen = nowhere.parent / "chosen"
        script = f"""
import numba
numba.config.CACHE_DIR = {str(chosen)!r}
from dovetail.columns import codes
assert numba.config.CACHE_DIR == {str(chosen)!r}
"""
        run = self.run(nowhere, script)
        assert (run.returncode, run.stderr) == (0, "")
        assert chosen.exists()
        assert not shared.exists()


class TestArchive:
    """A package that came as one file, which lies in another place every time."""

    @staticmethod
    def archive(place: Path, name: str, **more: str) -> Path:
        place.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place / name, "w") as made:
            for file in _PACKAGE.rglob("*.py"):
                if file != _PACKAGE / "__init__.py":
                    made.write(file, Path("dovetail") / file.relative_to(_PACKAGE))
            made.writestr("dovetail/__init__.py", more.get("init", ""))
        return place / name

    @staticmethod
    def cached(archive: Path, home: Path, temporary: Path, **more: str) -> tuple[int, int]:
        """How often the kernel was compiled and how often it was found, in a process of its own."""
        script = (
            "import numpy; from dovetail.columns import codes; codes.float_codes(numpy.zeros(1)); "
            "assert '.zip' in codes.__file__ or '.whl' in codes.__file__; "
            "stats = codes._float64_codes.stats; "
            "print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))"
        )
        env = {
            **os.environ, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(archive),
            "DOVETAIL_KERNELS": "compiled", **more,
        }  # fmt: skip
        run = subprocess.run(
            [sys.executable, "-c", script], env=env, cwd=temporary, capture_output=True, text=True, check=False
        )
        assert (run.returncode, run.stderr) == (0, "")
        misses, hits = map(int, run.stdout.split())
        return misses, hits

    @pytest.mark.in_turns
    @pytest.mark.parametrize("home", ["home", "another"])
    def test_programs_share_what_one_of_them_compiled(self, nowhere, tmp_path, home):
        (tmp_path / "another").mkdir()
        place = tmp_path / home, tmp_path / "tmp"
        assert self.cached(self.archive(tmp_path / "one", "dovetail.zip"), *place) == (1, 0)
        assert self.cached(self.archive(tmp_path / "two", "dovetail-1.whl"), *place) == (0, 1)
        # A module that a kernel calls may have changed with the package.
        assert self.cached(self.archive(tmp_path / "three", "dovetail.zip", init="x = 1"), *place) == (1, 0)

    @pytest.mark.in_turns(group="several seconds")
    def test_kernels_that_travel_with_the_package(self, nowhere, tmp_path):
        archive, home, other = self.archive(tmp_path / "one", "dovetail.zip"), tmp_path / "first", tmp_path / "other"
        home.mkdir()
        other.mkdir()
        generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        assert self.cached(archive, home, tmp_path / "tmp", **generic) == (1, 0)
        (compiled,) = (home / ".cache" / "numba").glob("dovetail-*")
        assert add_kernels(archive, compiled, "generic") >= 1
        moved = shutil.move(archive, tmp_path / "elsewhere.zip")
        assert self.cached(moved, other, tmp_path / "tmp") == (0, 1)
        # Who names another processor gets kernels for that one.
        shutil.rmtree(other / ".cache")
        assert self.cached(moved, other, tmp_path / "tmp", NUMBA_CPU_NAME="nehalem") == (1, 0)

    def test_nothing_of_an_archive_leaves_its_folder(self, tmp_path):
        archive, folder = tmp_path / "dovetail.zip", tmp_path / "folder"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr(CPU, "generic")
            for name in ("../out.nbi", "a/../../out.nbc", "script.py", "columns/__pycache__/k.nbi"):
                made.writestr(f"{KERNELS}/{name}", "x")
        folder.mkdir()
        unpack_kernels(archive, folder)
        assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["dovetail.zip", "k.nbi"]

    def test_a_package_in_a_folder_is_left_alone(self, nowhere):
        assert unpacked_folder(nowhere / "codes.py") is None
        (nowhere / "no.zip").write_text("no archive")
        assert unpacked_folder(nowhere / "no.zip" / "dovetail" / "codes.py") is None
