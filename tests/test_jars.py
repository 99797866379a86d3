"""Archives by their Maven coordinates: fetched, pinned and checked, from a repository in a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts import fetch_jars
from scripts.fetch_jars import ChecksumError, Jar, UnreachableError, cache, digest, fetch, for_spark, pin, pinned

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers>
<ibiblio name="here" root="{root}" m2compatible="true"/></resolvers></ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>
<version>{version}</version><dependencies>{needs}</dependencies></project>"""
NEED = "<dependency><groupId>org.example</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A repository in which `top` needs `low` 1, and an empty cache."""
    root = tmp_path / "repository"
    for name, version, needs in (("top", "3", NEED.format("low", "1")), ("low", "1", ""), ("low", "2", "")):
        place = root / "org" / "example" / name / version
        place.mkdir(parents=True)
        (place / f"{name}-{version}.pom").write_text(POM.format(name=name, version=version, needs=needs))
        (place / f"{name}-{version}.jar").write_bytes(f"{name} {version}".encode())
    (tmp_path / "settings.xml").write_text(SETTINGS.format(root=root.as_uri()))
    monkeypatch.setenv("IVY_SETTINGS", str(tmp_path / "settings.xml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch_jars, "PINS", tmp_path / "pins")
    return root


@pytest.mark.spark
def test_what_was_pinned_is_fetched_once_and_checked_each_time(repository, tmp_path):
    pin("tops", ["org.example:top:3"])
    assert [jar.coordinates for jar in pinned("tops")] == ["org.example:low:1", "org.example:top:3"]
    low, top = fetch("tops")
    assert (low.read_text(), top.read_text()) == ("low 1", "top 3")
    assert low.parent == cache()
    # Now from the cache: there is nowhere else to get them from.
    repository.rename(tmp_path / "gone")
    assert fetch("tops") == [low, top]
    top.write_text("another one")
    with pytest.raises(ChecksumError, match="top~3"):
        fetch("tops")


@pytest.mark.spark
def test_what_was_asked_for_wins_over_what_it_needs(repository):
    pin("tops", ["org.example:top:3", "org.example:low:2"])
    assert [jar.coordinates for jar in pinned("tops")] == ["org.example:low:2", "org.example:top:3"]


@pytest.mark.spark
def test_without_a_way_to_maven_one_line_says_so(repository, tmp_path):
    pin("tops", ["org.example:top:3"])
    repository.rename(tmp_path / "gone")
    with pytest.raises(UnreachableError, match=r"^Maven did not give org.example#[^\n]*not found[^\n]*$"):
        fetch("tops")
    assert list(cache().glob("*.jar")) == []


def test_a_changed_archive_of_the_repository_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fetch_jars, "PINS", tmp_path)
    (tmp_path / "one.txt").write_text(f"# a comment\norg.example:one:1 sha256:{'0' * 64}\n")
    cache().mkdir(parents=True)
    (cache() / Jar("org.example", "one", "1").file).write_text("forged")
    with pytest.raises(ChecksumError, match="0000"):
        fetch("one")


def test_a_version_of_spark_gets_its_own_set_or_the_newest_before_it():
    assert for_spark("kafka-connector", "4.2.7") == "kafka-connector-4.2"
    assert for_spark("kafka-connector", "4.3.0") == "kafka-connector-4.2"
    with pytest.raises(UnreachableError, match=r"no kafka-connector for Spark 4\.3"):
        for_spark("kafka-connector", "4.3.0", exactly=True)
    with pytest.raises(UnreachableError, match=r"Spark 3\.5"):
        for_spark("kafka-connector", "3.5.0")


@pytest.mark.parametrize("file", sorted((ROOT / "requirements" / "jars").glob("*.txt")), ids=lambda file: file.stem)
def test_the_files_pin_every_archive_and_name_no_host(file):
    text = file.read_text(encoding="ascii")
    assert "://" not in text
    jars = pinned(file.stem)
    assert jars
    assert all(len(jar.sha256) == 64 and jar.revision for jar in jars)
    # The first line is the command that writes the file, and what it asks for is in it.
    asked = text.splitlines()[0].partition(f"--pin {file.stem} ")[2].split()
    assert set(asked) <= {jar.coordinates for jar in jars}


def test_the_command_says_in_one_line_what_is_wrong(tmp_path):
    (tmp_path / "one.jar").write_bytes(b"x")
    assert len(digest(tmp_path / "one.jar")) == 64
    script = ROOT / "scripts" / "fetch_jars.py"
    done = subprocess.run([sys.executable, script, "nothing"], capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 1
    assert done.stderr.startswith("fetch_jars: there is no set 'nothing'")
    assert "kafka-broker" in done.stderr
