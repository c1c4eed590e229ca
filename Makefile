# Every target sets up what it needs: Python 3.11 or newer and make are enough.
# ARGS reaches the program that a target runs:  make run ARGS=--exit   make test ARGS="-k frames -x"

VENV := .venv
BENCH := .venv-bench
install = sh tools/install.sh $(1)

# Each module is compiled once, not in each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

# jax, tensorflow and torch are large, so they are installed only for FRAMEWORKS=1 and in CI.
in_ci := $(filter-out 0 false,$(CI))
frameworks := $(or $(in_ci),$(filter-out 0 false,$(FRAMEWORKS)))
clients := $(foreach name,clients clients-wandb-0.18 clients-wandb-0.15,$(VENV)/$(name)/.ready)
ready := $(VENV)/.ready $(VENV)/.ready-core $(if $(frameworks),$(VENV)/.ready-frameworks) $(if $(in_ci),$(VENV)/.ready-debian $(VENV)/.ready-peers $(clients) $(VENV)/.ready-pythons $(VENV)/.ready-compiled)

.DEFAULT_GOAL := help
.PHONY: help setup fmt check check-python check-types check-page test test-page test-chaos test-all test-pythons bench run cluster lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

setup: $(ready) ## make .venv with the locked dependencies and this package

fmt: $(VENV)/.ready ## format the code, mend what can be mended
	@$(VENV)/bin/ruff check --fix-only --quiet
	@$(VENV)/bin/ruff format --quiet
	@sh tools/page/run.sh fmt

check: check-python check-types check-page ## lint, types, import contracts, sizes, links; stops at the first failure

check-python: $(VENV)/.ready
	@echo "check: ruff"        && $(VENV)/bin/ruff check --quiet
	@echo "check: format"      && $(VENV)/bin/ruff format --check --quiet
	@echo "check: imports"     && out=$$($(VENV)/bin/lint-imports 2>&1) || { echo "$$out"; exit 1; }
	@echo "check: sizes"       && $(VENV)/bin/python tools/sizes.py
	@echo "check: links"       && $(VENV)/bin/python tools/links.py
	@echo "check: reference"   && $(VENV)/bin/python tools/reference.py --check

# Apart, for it takes as long as the rest together: with --jobs the two run beside each other.
check-types: $(VENV)/.ready
	@echo "check: mypy"        && $(VENV)/bin/mypy --strict --no-error-summary

check-page:
	@sh tools/page/run.sh check

# The lanes of tests/lanes.py, several files or worlds at a time (ARGS=-n0 for one): most tests wait for other processes,
# so that four of them keep two processors busy for half of the time.
# In CI a test that fails and passes alone is named and counted: tools/retest.py.
pytest = $(VENV)/bin/python $(if $(in_ci),tools/retest.py,-m pytest) -n $(if $(in_ci),8,4)

test: setup ## run the tests of the core, with one pass over every view of the page
	@$(pytest) -m core $(ARGS)

test-page: setup ## run all tests of the page, in a browser
	@$(pytest) -m page $(ARGS)

test-chaos: setup ## run the tests that take patience: kills, outages, attacks, large frameworks
	@$(pytest) -m chaos $(ARGS)

test-all: setup ## run all of these tests at once, which takes less time than one lane after the other
	@$(pytest) $(ARGS)

test-pythons: setup ## run the tests of the core on every newer Python found here
	@$(VENV)/bin/python tools/pythons.py $(ARGS)

bench: $(BENCH)/.ready-package ## measure Stepscope and its peers in one run, in an environment of their own
	@$(BENCH)/bin/python benchmarks/run.py $(ARGS)

run: $(VENV)/.ready-run $(VENV)/.ready-core $(if $(findstring --cluster,$(ARGS)),$(VENV)/.ready-cluster) ## train the demo model and show the run
	@$(VENV)/bin/stepscope demo $(ARGS)

cluster: setup $(VENV)/.ready-cluster ## run a ClickHouse cluster of 2 shards x 2 replicas on loopback until Ctrl-C
	@$(VENV)/bin/python -m stepscope.testing.clickhouse_cluster $(or $(ARGS),build/cluster)

lock: setup ## resolve requirements/*.lock anew; ARGS=bench for one of them
	@$(VENV)/bin/python tools/lock.py $(ARGS)

clean: ## remove the environments, caches and build outputs
	rm -rf $(VENV) $(BENCH) .venv-pythons build dist src/*.egg-info src/stepscope/sdk/*.so .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis tools/page/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The interpreter: PYTHON if given, else the first that is new enough.
%/bin/python:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    echo "setup: $* with $$($$python --version)"; \
	    $$python -m venv --clear $* || { rm -rf $*; exit 1; }; \
	    exit 0; \
	done; echo "setup: Python 3.11 or newer is needed; name one with PYTHON=..." >&2; exit 1

# What a user needs, for `make run`; what developers need comes on top of it.
$(VENV)/.ready-run: requirements/run.lock pyproject.toml $(VENV)/bin/python
	@echo "setup: requirements/run.lock"
	@$(call install,$(VENV)) -r requirements/run.lock
	@$(call install,$(VENV)) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.ready-core

# The compiled core is built where the sources are; where that fails, the Python core is used.
$(VENV)/.ready-core: setup.py $(wildcard src/stepscope/sdk/compiled/*) | $(VENV)/.ready-run
	@echo "setup: the compiled core"
	@$(VENV)/bin/python setup.py -q build_ext --inplace
	@touch $@

$(VENV)/.ready: requirements/dev.lock $(VENV)/.ready-run
	@echo "setup: requirements/dev.lock"
	@$(call install,$(VENV)) -r requirements/dev.lock
	@touch $@

$(VENV)/.ready-frameworks: requirements/frameworks.lock $(VENV)/.ready
	@echo "setup: requirements/frameworks.lock"
	@$(call install,$(VENV)) -r requirements/frameworks.lock
	@touch $@

# What a ClickHouse cluster on this machine needs: its programs, and the driver in the version that was tested.
$(VENV)/.ready-cluster: $(VENV)/.ready-run
	@sh tools/debian.sh clickhouse-server default-jre-headless libzookeeper-java
	@$(call install,$(VENV)) -c requirements/dev.lock clickhouse-driver
	@touch $@

# What only some tests need: servers and a browser from Debian, a fuzzer where it has a wheel, a daemon from npm.
$(VENV)/.ready-debian: tools/debian.sh | $(VENV)/bin/python
	@sh tools/debian.sh chromium-headless-shell clickhouse-server default-jre-headless libzookeeper-java openssh-client openssh-server openssl prometheus prometheus-alertmanager redis-server
	@touch $@

$(VENV)/.ready-peers: $(VENV)/.ready
	@echo "setup: atheris, aimrocks, statsd"
	@$(call install,$(VENV)) --only-binary :all: atheris==3.0.0 2>/dev/null || echo "setup: no wheel of atheris for this machine" >&2
	@$(call install,$(VENV)) --only-binary :all: aimrocks==0.5.2 2>/dev/null || echo "setup: no wheel of aimrocks for this machine" >&2
	@$(VENV)/bin/python -m tests.contrib --fetch asgi || echo "setup: no sources of opentelemetry-instrumentation-asgi" >&2
	@npm install --silent --no-fund --no-audit --prefix $(VENV)/npm statsd@0.9.0 || echo "setup: npm has no statsd" >&2
	@touch $@

# The tests and what they import are compiled while others download: it takes as long as a third of the set-up.
# What cannot be collected is told by the tests themselves.
$(VENV)/.ready-compiled: $(VENV)/.ready
	@echo "setup: compile the tests"
	@$(VENV)/bin/python -m pytest -n0 --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

# Clients whose requirements conflict with ours or with each other's, each in an environment of its own.
$(VENV)/clients/.ready: packages := wandb==0.31.0 trackio==0.43.0
$(VENV)/clients-wandb-0.18/.ready: packages := wandb==0.18.7 "setuptools<80"
$(VENV)/clients-wandb-0.15/.ready: packages := wandb==0.15.12 "setuptools<80"
$(clients): $(VENV)/.ready
	@echo 'setup: $(packages)'
	@$(VENV)/bin/python -m venv --without-pip $(@D) && $(call install,$(@D)) $(packages)
	@touch $@

$(VENV)/.ready-pythons: tools/pythons.py $(VENV)/.ready
	@$(VENV)/bin/python tools/pythons.py --setup
	@touch $@

$(BENCH)/.ready: requirements/bench.lock $(BENCH)/bin/python
	@echo "setup: requirements/bench.lock"
	@$(call install,$(BENCH)) -r requirements/bench.lock
	@touch $@

# What is measured is the wheel that users install, built anew when the sources change.
$(BENCH)/.ready-package: $(BENCH)/.ready $(VENV)/.ready setup.py $(shell find src -type f -not -name '*.pyc' -not -name '*.so' -not -path '*.egg-info/*')
	@rm -rf build/bench build/lib*
	@$(VENV)/bin/python -m pip --disable-pip-version-check -qq wheel --no-deps --no-build-isolation -w build/bench .
	@$(call install,$(BENCH)) --force-reinstall --no-deps build/bench/*.whl
	@touch $@
