"""Whether this machine has a Java that can run Spark, and what to type where it has not.

Spark's own message for a missing Java is "JAVA_HOME is not set", and for an old one a stack trace about class
file versions.  `check_java` looks where Spark will look, before Spark does.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from dovetail.errors import SetupError

__all__ = ["check_java", "install_command", "java_major"]

_JAVA_FLOOR = 17


def java_major(version_text: str) -> int | None:
    """Return the major version in the output of ``java -version``, or None where it has none.

    Examples
    --------
    >>> java_major('openjdk version "17.0.15" 2025-04-15')
    17
    >>> java_major('java version "1.8.0_392"')
    8
    """
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(found[1]) if found else None


def check_java() -> int:
    """Return the major version of the Java that Spark would start; raise SetupError if it cannot run Spark.

    Spark takes ``JAVA_HOME/bin/java`` if ``JAVA_HOME`` is set, and ``java`` on the path only if it is not.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if home:
        java: str | None = str(Path(home) / "bin" / "java")
        source = f"JAVA_HOME={home}"
    else:
        java, source = on_path, "the java on the PATH"
    if java is None:
        raise _java_error("Spark needs Java, and found none: JAVA_HOME is not set and PATH has no java")
    major, problem = _probe(java)
    if major is not None and major >= _JAVA_FLOOR:
        return major
    if major is not None:
        problem = f"is Java {major}"
    hint = None
    if home and on_path:
        other, _ = _probe(on_path)
        if other is not None and other >= _JAVA_FLOOR:
            hint = f"the java on the PATH ({on_path}) is Java {other}: `unset JAVA_HOME` to use it"
    raise _java_error(f"Spark needs Java {_JAVA_FLOOR} or newer, but {source} ({java}) {problem}", hint)


def _probe(java: str) -> tuple[int | None, str]:
    """Return the major version of a java executable, or None and what is wrong with it."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return None, "does not exist"
    except (OSError, subprocess.TimeoutExpired) as failure:
        return None, f"does not run: {failure}"
    said = run.stderr + run.stdout
    if run.returncode != 0:
        # The java of a bare macOS is a stub that exits with an advertisement.
        return None, f"does not run: {said.strip()[:200] or f'exit code {run.returncode}'}"
    major = java_major(said)
    return major, "" if major is not None else f"does not say its version: {said.strip()[:200]!r}"


def _java_error(given: str, hint: str | None = None) -> SetupError:
    return SetupError(
        given,
        accepted=f"Java {_JAVA_FLOOR} or newer; a headless runtime is enough",
        hint=hint or install_command(),
    )


def install_command(system: str | None = None) -> str:
    """Return how to install Java on this machine, as commands to type.

    Examples
    --------
    >>> install_command("Darwin").partition(" && ")[0]
    'brew install openjdk@17'
    """
    system = system or platform.system()
    if system == "Darwin":
        # Homebrew leaves this formula off the PATH, so the second half is needed too.
        home = '"$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"'
        return f"brew install openjdk@17 && export JAVA_HOME={home}"
    apt = f"sudo apt-get install -y openjdk-{_debian_java()}-jre-headless"
    dnf = "sudo dnf install -y java-21-openjdk-headless"
    if shutil.which("apt-get"):
        return apt
    if shutil.which("dnf"):
        return dnf
    return f"Debian, Ubuntu: {apt}; Fedora, RHEL: {dnf}; elsewhere install any JDK {_JAVA_FLOOR}+, set JAVA_HOME"


def _debian_java() -> int:
    """Return the Java release to ask apt for: Debian dropped 17 in its release 13."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return _JAVA_FLOOR
    number = release.get("VERSION_ID", "")
    return 21 if release.get("ID") == "debian" and number.isdigit() and int(number) >= 13 else _JAVA_FLOOR
