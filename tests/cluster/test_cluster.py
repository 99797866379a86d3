"""Every join on a Spark standalone cluster whose workers get the package with the program and from nowhere else."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from rich.console import Console
from tests.cluster.families import CASES
from tests.cluster.standalone import Cluster, standalone, warm

from dovetail.columns.shipped import CPU, KERNELS
from dovetail.command import ship

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def submitted(
    cluster: Cluster, data: Path, name: str, *options: str, cases: tuple[str, ...] = (), path: str | None = None
) -> dict:
    """What one program found on the cluster, its cases in turn."""
    out = cluster.place / name
    done = cluster.submit(
        *options,
        "--conf", "spark.log.level=WARN",
        "--driver-memory", "700m",
        "--executor-memory", "700m",
        str(DRIVER), str(data), str(out), *cases,
        path=path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def report(cluster, data, shipped, locally) -> dict:
    """Every case, the package with `--py-files`."""
    for case in CASES.values():
        locally(case)
    warm(shipped, cluster.home)
    return submitted(cluster, data, "every.json", "--py-files", str(shipped))


def test_the_interpreter_of_the_cluster_has_no_package(cluster):
    alone = subprocess.run(
        [str(cluster.python), "-c", "import numba, pyarrow, pyspark; import dovetail"],
        env=cluster.environment(),
        cwd=cluster.place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'dovetail'"


def test_it_ran_on_both_workers(report, cluster):
    assert report["master"] == cluster.url
    executors = {Path(executor) for _, executor in report["workers"]}
    assert {executor.relative_to(cluster.place).parts[0] for executor in executors} == {"worker0", "worker1"}


def test_the_package_came_with_the_program(report, shipped):
    assert report["driver"] == str(shipped / "dovetail" / "__init__.py")
    for file, executor in report["workers"]:
        # Spark puts what it ships where the executor works, and may name it from there.
        assert (Path(executor) / file).is_relative_to(executor)
        assert Path(file).parts[-3:] == (shipped.name, "dovetail", "__init__.py")


@pytest.mark.usefixtures("report")
def test_kernels_are_kept_by_the_content_of_the_package(cluster):
    [kept] = (cluster.home / ".cache" / "numba").iterdir()
    assert kept.name.startswith("dovetail-")
    # Beside each compiled kernel lies the source that the archive had.
    assert (kept / "dovetail" / "families" / "theta" / "compiled.py").is_file()
    assert list((kept / "dovetail" / "families" / "theta" / "__pycache__").glob("*.nbc"))


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_local_one(report, locally, case):
    truth = locally(CASES[case])
    assert truth
    assert report["found"][case] == truth


def test_executors_with_shipped_kernels_compile_nothing(cluster, data, locally):
    archive, cache = cluster.place / "kernels.zip", cluster.place / "executors"
    ship.run(Console(quiet=True), archive, "generic")
    found = submitted(
        cluster, data, "kernels.json",
        "--py-files", str(archive),
        "--conf", f"spark.executorEnv.XDG_CACHE_HOME={cache}",
    )  # fmt: skip
    [folder] = (cache / "numba").iterdir()
    with zipfile.ZipFile(archive) as opened:
        sent = {
            name.removeprefix(f"{KERNELS}/"): opened.read(name)
            for name in opened.namelist()
            if name.startswith(f"{KERNELS}/") and name != CPU
        }
    kept = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.nb[ic]")}
    # Numba adds a file for what it compiles, and writes over one that did not fit.
    assert sorted(kept) == sorted(sent)
    assert [name for name in sent if kept[name] != sent[name]] == []
    for name, case in CASES.items():
        assert found["found"][name] == locally(case)


def test_a_folder_of_packages_in_an_archive(cluster, data, shipped, locally):
    """`pip install --target packages dovetail-spark`, as one archive that Spark unpacks where its executors work."""
    folder = cluster.place / "packages"
    shutil.unpack_archive(shipped, folder)
    archive = shutil.make_archive(str(folder), "gztar", folder)
    cases = ("theta, batch", "window, stream")
    found = submitted(
        cluster, data, "archive.json",
        "--archives", f"{archive}#packages",
        "--conf", "spark.executorEnv.PYTHONPATH=packages",
        cases=cases, path=str(folder),
    )  # fmt: skip
    for file, executor in found["workers"]:
        assert Path(file) == Path(executor) / "packages" / "dovetail" / "__init__.py"
    for case in cases:
        assert found["found"][case] == locally(CASES[case])
