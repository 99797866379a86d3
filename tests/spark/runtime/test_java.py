"""The check of Java, with fake java executables: no JVM needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import SetupError
from dovetail.spark.runtime import java as module
from dovetail.spark.runtime.java import check_java, java_major


def fake_java(folder: Path, said: str, code: int = 0) -> Path:
    """A java executable in folder/bin that says `said` on stderr, as the real one does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    java.chmod(0o755)
    return java


JAVA_8 = 'openjdk version "1.8.0_392"\nOpenJDK Runtime Environment (build 1.8.0_392-b08)'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """An environment in which neither JAVA_HOME nor PATH leads to a java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    return monkeypatch


def on_path(monkeypatch, java: Path) -> None:
    # /bin holds the shell that runs the fake; it may hold a real java behind the fake one.
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}/bin")


class TestJavaVersion:
    @pytest.mark.parametrize(
        ("said", "major"),
        [
            (JAVA_8, 8),
            (JAVA_17, 17),
            ('openjdk version "21" 2023-09-19', 21),
            ('openjdk version "25-ea" 2025-09-16', 25),
            ('java version "9"', 9),
            ('java version "1.7.0_80"', 7),
            ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + JAVA_17, 17),
            ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
            ("", None),
        ],
    )
    def test_is_read_from_what_java_says(self, said, major):
        assert java_major(said) == major

    @given(major=st.integers(9, 99), rest=st.from_regex(r"(\.[0-9]{1,3}){0,3}(-[a-z]{1,5})?", fullmatch=True))
    def test_of_any_release_since_9(self, major, rest):
        assert java_major(f'openjdk version "{major}{rest}" 2030-01-01') == major


class TestCheckJava:
    def test_missing_java_says_what_to_type(self, no_java):
        no_java.setattr(module.platform, "system", lambda: "Darwin")
        with pytest.raises(SetupError) as caught:
            check_java()
        assert "JAVA_HOME is not set and PATH has no java" in caught.value.given
        assert "Java 17 or newer" in caught.value.accepted
        assert "brew install openjdk@17" in caught.value.hint
        assert str(caught.value).count("\n") == 2

    def test_old_java_home_is_named_with_its_version(self, no_java, tmp_path):
        fake_java(tmp_path / "jdk8", JAVA_8)
        no_java.setenv("JAVA_HOME", str(tmp_path / "jdk8"))
        no_java.setenv("PATH", "/bin")
        no_java.setattr(module.shutil, "which", lambda name: None)
        with pytest.raises(SetupError, match=r"but JAVA_HOME=.*jdk8 .*is Java 8"):
            check_java()

    def test_old_java_home_before_a_good_path_says_unset(self, no_java, tmp_path):
        fake_java(tmp_path / "jdk8", JAVA_8)
        no_java.setenv("JAVA_HOME", str(tmp_path / "jdk8"))
        on_path(no_java, fake_java(tmp_path / "jdk17", JAVA_17))
        with pytest.raises(SetupError, match="unset JAVA_HOME"):
            check_java()

    def test_java_home_without_a_java(self, no_java, tmp_path):
        no_java.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
        with pytest.raises(SetupError, match="does not exist"):
            check_java()

    def test_old_java_on_the_path(self, no_java, tmp_path):
        on_path(no_java, fake_java(tmp_path / "jdk8", JAVA_8))
        with pytest.raises(SetupError, match=r"the java on the PATH .* is Java 8"):
            check_java()

    def test_java_that_fails_is_quoted(self, no_java, tmp_path):
        on_path(no_java, fake_java(tmp_path / "stub", "Unable to locate a Java Runtime.", code=1))
        with pytest.raises(SetupError, match=r"does not run: Unable to locate a Java Runtime"):
            check_java()

    def test_java_that_is_no_program(self, no_java, tmp_path):
        java = fake_java(tmp_path / "broken", "")
        java.write_bytes(b"\x00\x01")
        no_java.setenv("JAVA_HOME", str(tmp_path / "broken"))
        with pytest.raises(SetupError, match="does not run"):
            check_java()

    def test_java_home_wins_over_the_path_as_it_does_for_spark(self, no_java, tmp_path):
        fake_java(tmp_path / "jdk21", 'openjdk version "21.0.2"')
        no_java.setenv("JAVA_HOME", str(tmp_path / "jdk21"))
        on_path(no_java, fake_java(tmp_path / "jdk8", JAVA_8))
        assert check_java() == 21

    @pytest.mark.parametrize(
        ("tools", "release", "expected"),
        [
            (
                {"apt-get"},
                {"ID": "debian", "VERSION_ID": "12"},
                "sudo apt-get install -y openjdk-17-jre-headless",
            ),
            (
                {"apt-get"},
                {"ID": "debian", "VERSION_ID": "13"},
                "sudo apt-get install -y openjdk-21-jre-headless",
            ),
            (
                {"apt-get"},
                {"ID": "ubuntu", "VERSION_ID": "24.04"},
                "sudo apt-get install -y openjdk-17-jre-headless",
            ),
            ({"dnf"}, {"ID": "fedora"}, "sudo dnf install -y java-21-openjdk-headless"),
            (set(), {"ID": "arch"}, "set JAVA_HOME"),
        ],
    )
    def test_command_is_the_one_of_the_platform(self, monkeypatch, tools, release, expected):
        monkeypatch.setattr(module.shutil, "which", lambda name: name if name in tools else None)
        monkeypatch.setattr(module.platform, "freedesktop_os_release", lambda: release)
        assert expected in module.install_command("Linux")
