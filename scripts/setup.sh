#!/usr/bin/env bash
# Makes everything that `make demo` and `make test` need: a virtual environment in .venv with the pinned
# packages and this package, Java 17 or newer, and compiled kernels.  Quick when there is nothing to do.
#
# PYTHON=/path/to/python3.12 chooses the interpreter of a new environment.
# NO_INSTALL=1 forbids installing system packages; the script then says what to type.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
PY="$VENV/bin/python"
STAMP="$VENV/dovetail-stamp"
WARM="$VENV/dovetail-warm"
JAVA_FILE="$VENV/java_home"
JAVA_FLOOR=17
OS="$(uname -s)"

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# Runs a command as root: 1 where we may not, which must not be mistaken for the command's own failure.
may_be_root() { [ -z "${NO_INSTALL:-}" ] && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

apt_install() {
    say "installing $* (apt-get)"
    # A fresh image has no package lists, and old lists name files that are gone.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
        { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
}

# ---------------------------------------------------------------- Python

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && recent "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    local have="none"
    command -v python3 >/dev/null && have="$(python3 --version 2>&1)"
    local how="install Python 3.11 or newer"
    if [ "$OS" = Darwin ]; then
        how="brew install python@3.12"
    elif command -v apt-get >/dev/null; then
        how="sudo apt-get install -y python3 python3-venv   (Debian 12+, Ubuntu 24.04+)"
    elif command -v dnf >/dev/null; then
        how="sudo dnf install -y python3.12"
    fi
    die "Dovetail needs Python 3.11 or newer; python3 here: $have." "To install it, type: $how" \
        "If you have one elsewhere: PYTHON=/path/to/python3.12 make setup"
}

make_venv() {
    if [ -x "$PY" ] && recent "$PY" && "$PY" -m pip --version >/dev/null 2>&1; then
        return
    fi
    local python
    python="$(find_python)"
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        # Debian cuts both out of python3 and keeps them in a package per release.
        local package
        package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        if command -v apt-get >/dev/null && may_be_root; then
            apt_install "$package" || die "apt-get could not install $package."
        elif command -v apt-get >/dev/null; then
            die "$python lacks the venv module, and this user may not install it." \
                "Type: sudo apt-get install -y $package"
        else
            die "$python lacks the venv module." "Install the package of your system that holds it."
        fi
    fi
    say "making $VENV with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
}

# What the environment was made from.  The path counts, since the editable install points at it.
wanted() {
    "$PY" - <<'EOF'
import hashlib, pathlib, sys
sha = hashlib.sha256(f"{pathlib.Path.cwd()} {sys.version}".encode())
for name in ("requirements.txt", "pyproject.toml"):
    sha.update(pathlib.Path(name).read_bytes())
print(sha.hexdigest())
EOF
}

install_packages() {
    local want
    want="$(wanted)"
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$want" ]; then
        return
    fi
    rm -f "$STAMP"
    local pip=("$PY" -m pip --disable-pip-version-check install --quiet)
    local uv
    uv="$(grep -E '^uv==' requirements.txt | cut -d' ' -f1 || true)"
    # Certificates as the system has them: behind a proxy that re-signs, uv's own list is not enough.
    export UV_SYSTEM_CERTS=1
    local index
    index="${PIP_INDEX_URL:-$("$PY" -m pip config get global.index-url 2>/dev/null || true)}"
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"

    say "installing $(grep -c '==' requirements.txt) pinned packages; the first time takes a minute or more"
    if [ -n "$uv" ] && "${pip[@]}" "$uv" 2>/dev/null &&
        "$PY" -m uv pip install --quiet --compile-bytecode --python "$PY" -r requirements.txt; then
        say "packages installed (uv)"
    else
        say "uv could not do it; using pip, which is slower"
        "${pip[@]}" -r requirements.txt ||
            die "pip could not install the packages; its message is above." "Is the package index reachable?"
        say "packages installed (pip)"
    fi
    # Environments from before the distribution had a name of its own.
    "$PY" -m pip --disable-pip-version-check uninstall --quiet --yes dovetail >/dev/null 2>&1 || true
    # The build back-end is among the pinned packages, so nothing unpinned is fetched to build this one.
    "${pip[@]}" --no-deps --no-build-isolation --editable . || die "pip could not install this package."
    # Byte code is read even where PYTHONDONTWRITEBYTECODE keeps Python from writing it, as in most container images.
    "$PY" -m compileall -q -j 0 src || true
    say "dovetail installed (editable)"
    rm -f "$WARM"
    printf '%s\n' "$want" >"$STAMP"
}

# ---------------------------------------------------------------- Java

# The major version of a java executable; 0 where it does not run.
java_major() {
    local said
    said="$("$1" -version 2>&1)" || { echo 0; return; }
    local major
    major="$(printf '%s\n' "$said" | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1)"
    echo "${major:-0}"
}

java_home_of() { "$1" -XshowSettings:properties -version 2>&1 | sed -nE 's/^ *java\.home = (.*)$/\1/p'; }

spark_java() { # what Spark would start by itself
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

installed_javas() { # in order of preference; the ones that are not on the PATH too
    command -v java || true
    if [ "$OS" = Darwin ]; then
        local home formula
        home="$(/usr/libexec/java_home -v "$JAVA_FLOOR+" 2>/dev/null)" && echo "$home/bin/java"
        for formula in openjdk@17 openjdk@21 openjdk; do
            command -v brew >/dev/null && echo "$(brew --prefix "$formula" 2>/dev/null)/bin/java"
        done
    fi
    ls -d /usr/lib/jvm/*/bin/java 2>/dev/null || true
}

# Remembers a Java that Spark would not find by itself; make exports it as JAVA_HOME.
use_installed_java() {
    rm -f "$JAVA_FILE"
    local java
    java="$(spark_java)"
    if [ -n "$java" ] && [ "$(java_major "$java")" -ge "$JAVA_FLOOR" ]; then
        return 0
    fi
    while read -r java; do
        if [ -x "$java" ] && [ "$(java_major "$java")" -ge "$JAVA_FLOOR" ]; then
            java_home_of "$java" >"$JAVA_FILE"
            say "Java $(java_major "$java") at $(cat "$JAVA_FILE"); make uses it, for your own shell:" \
                "export JAVA_HOME=$(cat "$JAVA_FILE")"
            return 0
        fi
    done < <(installed_javas)
    return 1
}

apt_java() { # Debian 13 dropped 17
    local release
    for release in 17 21 25; do
        if apt-cache show "openjdk-$release-jre-headless" >/dev/null 2>&1; then
            echo "openjdk-$release-jre-headless"
            return
        fi
    done
    echo openjdk-17-jre-headless
}

install_java() {
    if use_installed_java; then
        return
    fi
    local found="no java was found" java
    java="$(spark_java)"
    if [ -n "$java" ]; then
        local major
        major="$(java_major "$java")"
        if [ "$major" = 0 ]; then found="$java does not run"; else found="$java is Java $major"; fi
    fi
    local command
    if [ "$OS" = Darwin ]; then
        command="brew install openjdk@17"
        if command -v brew >/dev/null && [ -z "${NO_INSTALL:-}" ]; then
            say "Spark needs Java $JAVA_FLOOR or newer; $found. Installing it: $command"
            brew install --quiet openjdk@17 || true
        fi
    elif command -v apt-get >/dev/null; then
        if may_be_root; then
            as_root apt-get update -qq || true
            say "Spark needs Java $JAVA_FLOOR or newer; $found."
            apt_install "$(apt_java)" || true
        fi
        command="sudo apt-get install -y $(apt_java)"
    elif command -v dnf >/dev/null; then
        command="sudo dnf install -y java-21-openjdk-headless"
        if may_be_root; then
            say "Spark needs Java $JAVA_FLOOR or newer; $found. Installing it (dnf)"
            as_root dnf install -y -q java-21-openjdk-headless || true
        fi
    else
        command="(your system's command for a Java $JAVA_FLOOR+ runtime; then set JAVA_HOME to it)"
    fi
    use_installed_java || die "Spark needs Java $JAVA_FLOOR or newer, and $found." \
        "It could not be installed from here (that needs root, passwordless sudo or Homebrew)." \
        "Type: $command" "Then run make again."
}

# ---------------------------------------------------------------- kernels

warm_up() {
    [ -e "$WARM" ] && return
    if [ -s "$JAVA_FILE" ]; then
        JAVA_HOME="$(cat "$JAVA_FILE")"
        export JAVA_HOME
    fi
    say "compiling the kernels, once, so that no join waits for it"
    # A first join compiles what it needs where this could not.
    "$PY" -m dovetail warm || say "the kernels could not be compiled ahead; first joins will be slower"
    touch "$WARM"
}

make_venv
install_packages
install_java
warm_up
if [ "${1:-}" != "--quiet" ]; then
    say "ready: $("$PY" --version), $("$PY" -c 'from importlib.metadata import version as v; print("PySpark", v("pyspark"))')"
fi
