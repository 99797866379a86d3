"""The package as users get it: what a built wheel says and holds, and that it works with what it asks for alone."""

from __future__ import annotations

import ast
import email.message
import email.parser
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import dovetail

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dovetail"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
NAME = "dovetail-spark"

# Distributions whose module has another name.
MODULES = {"pyyaml": "yaml", "protobuf": "google", "prometheus-client": "prometheus_client"}
# The extra that a folder of the source may import from, besides the core; Spark is imported in one folder only.
EXTRAS = {"command": "cli", "jobs": "cli", "plots": "plots", "spark": "pyspark", "watch": "watch", "__main__": "cli"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return email.parser.Parser().parsestr(opened.read(name).decode())


def required(metadata: email.message.Message, extra: str = "") -> set[str]:
    """The distributions that an extra asks for; the core's without one."""
    asked = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    if not extra:
        return {one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})}
    return {one.name for one in asked if one.marker is not None and one.marker.evaluate({"extra": extra})}


def test_the_wheel_says_who_it_is(wheel, metadata):
    assert wheel.name == f"dovetail_spark-{dovetail.__version__}-py3-none-any.whl"
    assert (metadata["Name"], metadata["Version"]) == (NAME, dovetail.__version__)
    assert metadata["Author"] == "Dovetail developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Keywords"]
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())


def test_every_python_we_classify_is_one_we_take(metadata):
    named = [
        line.rpartition(" ")[2] for line in metadata.get_all("Classifier") if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert named
    taken = SpecifierSet(metadata["Requires-Python"])
    assert all(f"{version}.0" in taken for version in named)
    assert "3.10.0" not in taken
    assert f'python_version = "{named[0]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    found = [
        file.relative_to(ROOT).as_posix()
        for file in [*PACKAGE.rglob("*.py"), ROOT / "pyproject.toml", ROOT / "mkdocs.yml"]
        if re.search(rf"['\"]{re.escape(dovetail.__version__)}['\"]", file.read_text(encoding="utf-8"))
    ]
    assert found == ["src/dovetail/__init__.py"]


def test_the_address_stands_in_one_place():
    listed = subprocess.run(["git", "grep", "-lF", REPOSITORY], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 128:
        pytest.skip("not a checkout of Git")
    assert listed.stdout.split() == ["pyproject.toml"]


def test_the_package_page_needs_no_file_beside_it(metadata):
    """Images and links of the README lead to the files of the tag; those within the page stay."""
    page = metadata.get_payload()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", page)
    assert len(links) == len(re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", readme))
    assert any(image for image, _ in links)
    for image, target in links:
        kind = "raw" if image else "blob"
        if target.startswith(REPOSITORY):
            start = f"{REPOSITORY}/{kind}/v{dovetail.__version__}/"
            assert target.startswith(start)
            assert (ROOT / target.removeprefix(start).partition("#")[0]).exists(), target
        else:
            assert target.startswith(("https://", "#")), target


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    wanted = {
        f"dovetail/{file.relative_to(PACKAGE).as_posix()}"
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert held == wanted
    assert "dovetail/py.typed" in held


def test_a_release_needs_its_tag_its_notes_and_an_address():
    location = importlib.util.spec_from_file_location("check_release", ROOT / "scripts" / "check_release.py")
    release = importlib.util.module_from_spec(location)
    location.loader.exec_module(release)
    init, address = '__version__ = "1.0.2"\n', "https://host/us/it"
    changelog = "## [Unreleased]\n\n## [1.0.2] - 2026-12-01\n\n### Added\n\n- A.\n\n## [1.0.1] - 2026-11-01\n\n- B.\n"
    assert release.problems("v1.0.2", init=init, changelog=changelog, repository=address) == []
    assert release.notes_of("1.0.2", changelog) == "### Added\n\n- A."
    wrong = {
        "the tag v1.0.3": {"tag": "v1.0.3"},
        "the tag 1.0.2": {"tag": "1.0.2"},
        "CHANGELOG": {"changelog": changelog.replace("[1.0.2]", "[1.0.x]")},
        "no section '## [1.0.2]": {"changelog": changelog.replace("### Added\n\n- A.\n", "")},
        "placeholder": {"repository": "https://host/OWNER/it"},
    }
    for said, change in wrong.items():
        given = {"tag": "v1.0.2", "init": init, "changelog": changelog, "repository": address} | change
        [problem] = release.problems(given.pop("tag"), **given)
        assert said in problem
    assert release.version_in((PACKAGE / "__init__.py").read_text(encoding="utf-8")) == dovetail.__version__


def test_workflows_run_targets_and_scripts_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    targets.add("versions")  # needs an environment for each version of Spark
    for file in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
        for job in jobs.values():
            choices = job.get("strategy", {}).get("matrix", {}).get("target", [])
            lines = [step["run"] for step in job["steps"] if "run" in step]
            texts = [re.sub(r"\$\{\{.*?\}\}", "", text) for text in (*lines, *(f"make {one}" for one in choices))]
            for words in (line.split() for text in texts for line in text.splitlines()):
                if words[0] == "make":
                    assert {word for word in words[1:] if "=" not in word} <= targets, words
                for word in words:
                    if word.startswith("scripts/"):
                        assert (ROOT / word).is_file(), word


# ---------------------------------------------------------------- the core, and what each extra adds


def outside(file: Path) -> Iterator[str]:
    """The top-level packages from elsewhere that a module imports at run time, also inside functions."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "dovetail":
                yield top


@pytest.mark.in_turns(group="several seconds")
def test_a_module_imports_what_its_extra_installs(metadata):
    """The core imports nothing of an extra, so `import dovetail` and every join run with the core and a Spark."""
    modules = {
        extra: {MODULES.get(canonicalize_name(name), name) for name in required(metadata, extra)}
        for extra in ("", "cli", "plots", "pyspark", "watch")
    }
    modules["pyspark"].add("py4j")  # comes with PySpark, whose errors are made of its own
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        part = file.relative_to(PACKAGE).with_suffix("").parts[0]
        allowed = modules[""] | modules.get(EXTRAS.get(part, ""), set())
        wrong += [f"{file.relative_to(PACKAGE)} imports {name}" for name in outside(file) if name not in allowed]
    assert wrong == []
    used = {name for file in PACKAGE.rglob("*.py") for name in outside(file)}
    # PySpark imports these two for us: pandas for Python functions, protobuf for stateful processors.
    unused = set().union(*modules.values()) - used - {"pandas", "google"}
    assert unused == set()


def test_all_is_every_extra_of_a_user(metadata):
    extras = set(metadata.get_all("Provides-Extra"))
    assert extras == {"all", "cli", "connect", "dev", "docs", "plots", "pyspark", "watch"}
    users = set().union(*(required(metadata, extra) for extra in ("cli", "connect", "plots", "pyspark", "watch")))
    assert required(metadata, "all") == users
    assert not required(metadata) & (users - {"pandas"})


def closure(names: set[str]) -> set[str]:
    """Distributions, and whatever they require without extras, as installed here."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or []:
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                todo.append(one.name)
    return found


class Bare:
    """An environment with the wheel and chosen distributions only, which are links to those installed here."""

    def __init__(self, place: Path, wheel: Path) -> None:
        venv.create(place / "env", with_pip=False, symlinks=True)
        self.place = place
        self.python = place / "env" / "bin" / "python"
        [self.packages] = (place / "env" / "lib").glob("python*/site-packages")
        command = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps", "--python", str(self.python)]
        # No settings of this machine's uv; the wheel is all it needs.
        subprocess.run([*command, "--no-config", str(wheel)], check=True, capture_output=True, cwd=place)

    def add(self, names: set[str]) -> None:
        """Link distributions, with what they require."""
        for name in closure(names):
            here = importlib.metadata.distribution(name)
            tops = {file.parts[0] for file in here.files or () if file.parts[0] not in ("..", "__pycache__")}
            for top in tops:
                source, link = Path(str(here.locate_file(top))), self.packages / top
                if link.exists():
                    continue
                link.symlink_to(source)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "LANG") if name in os.environ}
        environment = {**kept, "HOME": str(self.place), "PYSPARK_PYTHON": str(self.python), "PYTHONWARNINGS": "ignore"}
        return subprocess.run(
            [str(self.python), *arguments],
            env=environment, cwd=self.place, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory, wheel, metadata) -> Bare:
    """The core alone: no Spark, nothing of the command's or the plots'."""
    made = Bare(tmp_path_factory.mktemp("bare"), wheel)
    made.add(required(metadata))
    return made


ASKED = """
import json, dovetail as dt
import dovetail.families.theta.stream, dovetail.families.window.stream, dovetail.plan.theta, dovetail.statements.decide
said = {}
def refused(call, what):
    try:
        call()
    except dt.SetupError as error:
        said[what] = str(error)
refused(lambda: dt.theta_join({"a": None, "b": None}, on="a.x < b.x"), "join")
refused(lambda: dt.session(), "session")
refused(lambda: dt.plot.rates([{"kind": "batch", "batch": 0, "rows": 1, "results": 0, "seconds": 1.0}]), "plot")
def jobs():
    from dovetail.jobs import read_job
refused(jobs, "jobs")
print(json.dumps({"said": said, "home": dt.__file__, "version": dt.__version__}))
"""


def test_the_core_imports_and_names_the_extra_that_is_missing(bare):
    done = bare.run("-c", ASKED)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["home"]).is_relative_to(bare.packages)
    assert found["version"] == dovetail.__version__
    said = found["said"]
    assert 'pip install "dovetail-spark[pyspark]"' in said["join"]
    assert 'pip install "dovetail-spark[pyspark]"' in said["session"]
    assert 'pip install "dovetail-spark[plots]"' in said["plot"]
    assert 'pip install "dovetail-spark[cli]"' in said["jobs"]


def test_the_command_without_its_extra_names_it(bare):
    for start in (["-m", "dovetail"], [str(bare.python.parent / "dovetail")]):
        done = bare.run(*start, "--version")
        assert done.returncode == 2
        assert 'pip install "dovetail-spark[cli]"' in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.in_turns(group="a session of its own")
@pytest.mark.spark
@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(slice(0, 1), id="the first"),
        # Three kernels more to compile, in an environment that has none.
        pytest.param(slice(None), id="all", marks=pytest.mark.slow),
    ],
)
def test_the_readme_runs_with_the_core_and_a_spark(bare, blocks):
    """What the first page promises, in an environment that has the wheel, its requirements and PySpark only."""
    bare.add({"pyspark"})
    assert not [name for name in ("rich", "typer", "pydantic", "matplotlib") if (bare.packages / name).exists()]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    program = bare.place / "readme.py"
    program.write_text("\n".join(found[blocks]), encoding="utf-8")
    done = bare.run(str(program))
    assert done.returncode == 0, done.stderr
    assert "|   P1|    L1|  800|" in done.stdout
