#!/usr/bin/env bash
# Runs the Spark part of the tests on other versions of Spark, each in an environment of its own with pinned packages.
#
#   scripts/versions.sh 4.0 4.1        these versions; make versions SPARK="4.0 4.1"
#
# FRACTION=4 runs every fourth test, another quarter on each version, from PART on; JOBS and ARGS are those of make test.
# MARKS=tables runs other tests than those.
# The environments stay in build/, and are made again when requirements/spark-*.txt changes.
set -euo pipefail
cd "$(dirname "$0")/.."

BASE=.venv/bin/python
FRACTION="${FRACTION:-1}"
PART="${PART:-0}"

say() { printf 'versions: %s\n' "$*"; }
die() {
    printf 'versions: %s\n' "$*" >&2
    exit 1
}

# What an environment is made from.  The path counts, since the editable install points at it.
wanted() {
    { pwd; "$BASE" --version; cat "$1" pyproject.toml; } | cksum
}

# The Python of a version, in an environment that holds what its file pins; 4.3 is what make setup installs.
make_environment() {
    local version="$1" pins="requirements/spark-$1.txt" folder="build/spark-$1" want log
    if [ ! -f "$pins" ]; then
        die "there is no $pins; pinned are: $(find requirements -name 'spark-*.txt' | sort | sed -E 's/.*spark-(.*)\.txt/\1/' | tr '\n' ' ')"
    fi
    want="$(wanted "$pins")"
    if [ "$(cat "$folder/dovetail-stamp" 2>/dev/null)" = "$want" ]; then
        return
    fi
    # As in setup.sh: certificates as the system has them, and the index that pip uses.
    export UV_SYSTEM_CERTS=1
    local index
    index="${PIP_INDEX_URL:-$("$BASE" -m pip config get global.index-url 2>/dev/null || true)}"
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    say "making $folder; the first time takes a minute or more"
    rm -rf "$folder"
    mkdir -p build
    log="build/spark-$version.log"
    if ! { "$BASE" -m uv venv --quiet --python "$BASE" "$folder" &&
        "$BASE" -m uv pip install --quiet --python "$folder/bin/python" -r "$pins" &&
        "$BASE" -m uv pip install --quiet --python "$folder/bin/python" --no-deps --no-build-isolation --editable .; } >"$log" 2>&1; then
        rm -rf "$folder"
        if grep -qiE 'error sending request|dns error|connect|timed out|failed to fetch' "$log"; then
            die "the package index cannot be reached, so Spark $version cannot be installed (uv's words: $log)"
        fi
        cat "$log" >&2
        die "the packages of $pins could not be installed; the message is above"
    fi
    printf '%s\n' "$want" >"$folder/dovetail-stamp"
}

[ $# -gt 0 ] || die "which versions? For example: scripts/versions.sh 4.0 4.1"
marks="${MARKS:-spark and not slow and not cluster and not kafka and not tables and not browser}"
failed=()
summary=()
for version in "$@"; do
    if [ "$version" = 4.3 ]; then
        python="$BASE"
    else
        make_environment "$version"
        python="build/spark-$version/bin/python"
    fi
    spark="$("$python" -c 'from importlib.metadata import version; print(version("pyspark"))')"
    say "Spark $spark: $marks, one test in $FRACTION"
    begin=$SECONDS
    log="build/tests-$version.log"
    mkdir -p build
    # Another part of the tests on each version: together they run more of them.
    # shellcheck disable=SC2086  # ARGS are several words
    if ! "$python" -m pytest -n "${JOBS:-2}" --dist worksteal -m "$marks" --fraction "$FRACTION" \
        --part "$(((PART + ${version#*.}) % FRACTION))" ${ARGS:-} 2>&1 | tee "$log"; then
        failed+=("$version")
    fi
    counts="$(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$log" | tail -n 1 | tr -d '=' | sed 's/^ *//; s/ *$//' || true)"
    summary+=("Spark $spark: ${counts:-pytest did not end}; $(((SECONDS - begin + 30) / 60)) min")
done
for line in "${summary[@]}"; do say "$line"; done
if [ "${#failed[@]}" -gt 0 ]; then die "failed on: ${failed[*]}"; fi
