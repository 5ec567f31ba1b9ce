# The commands of a developer's day. Nothing has to be installed beforehand but Python >= 3.11 with venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
PYTEST_WORKERS ?= 2
BIN := .venv/bin
export NO_MKDOCS_2_WARNING := 1
LOCKS := scripts/locks
CODE := src tests scripts benchmarks examples
COVERED := core=98 planning=98 policies=98
MEASURED := $(foreach gate,$(COVERED),--cov=tao.$(firstword $(subst =, ,$(gate))))

.PHONY: help setup clients engine fmt check test demo peers bench bench-live docs docs-serve test-engine test-sglang test-clients aiperf lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.installed ## Make .venv with the package and its development tools

.venv/.installed: pyproject.toml $(LOCKS)/dev.lock scripts/make_venv.py
	@$(PYTHON) scripts/make_venv.py .venv --depends pyproject.toml --depends $(LOCKS)/dev.lock -- \
		--constraint $(LOCKS)/dev.lock --editable '.[dev,docs]'

clients: .venvs/mini-swe-agent/.installed ## Install the coding agents that tests drive (1.6 GB)
	@$(PYTHON) scripts/setup_clients.py

.venvs/mini-swe-agent/.installed: $(LOCKS)/clients.lock scripts/make_venv.py | setup
	@$(PYTHON) scripts/make_venv.py .venvs/mini-swe-agent --depends $(LOCKS)/clients.lock -- \
		--no-deps --requirement $(LOCKS)/clients.lock

engine: setup ## Install vLLM's CPU build (1.7 GB) into .venvs/vllm
	@$(PYTHON) scripts/setup_engine.py

peers: .venvs/peers/.installed ## Install the routers of other projects that bench-live measures

.venvs/peers/.installed: $(LOCKS)/peers.lock scripts/make_venv.py | setup
	@$(PYTHON) scripts/make_venv.py .venvs/peers --depends $(LOCKS)/peers.lock -- \
		--no-deps --requirement $(LOCKS)/peers.lock

fmt: setup ## Format and fix what can be fixed
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

check: setup ## Lint, types, import contracts, documentation, house rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/mkdocs build --quiet --strict --site-dir build/site
	$(BIN)/pytest -q tests/frame -m "not slow"

test: setup .venvs/mini-swe-agent/.installed ## Run the tests with the coverage gates (no real engine, no agents)
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadgroup -m "not engine and not sglang and not agents" \
		$(MEASURED) --cov-report= --cov-report=json:build/coverage.json
	$(BIN)/python scripts/check_coverage.py build/coverage.json $(COVERED)

test-engine: setup engine ## Run the tests against a real vLLM on the CPU
	$(BIN)/pytest -m engine --durations=3 --durations-min=1 tests/engine

test-sglang: setup ## Run the tests against a real SGLang on the CPU (3.5 GB; minutes; by hand)
	@$(PYTHON) scripts/setup_sglang.py
	$(BIN)/pytest -m sglang --durations=3 --durations-min=1 tests/sglang

test-clients: setup clients engine ## Run coding agents through tao serve: emulated replicas, then a real vLLM
	$(BIN)/pytest -m agents --durations=10 --durations-min=1 tests/clients

aiperf: setup engine .venvs/aiperf/.installed ## aiperf through tao serve on a real vLLM, its figures beside ours (by hand)
	PYTHONPATH=scripts $(BIN)/python -m benchmarks.aiperf

.venvs/aiperf/.installed: $(LOCKS)/aiperf.lock scripts/make_venv.py | setup
	@$(PYTHON) scripts/make_venv.py .venvs/aiperf --depends $(LOCKS)/aiperf.lock -- \
		--no-deps --requirement $(LOCKS)/aiperf.lock

demo: setup ## Two emulated replicas under memory pressure: round-robin beside tao
	$(BIN)/tao demo

bench: setup ## Run the benchmarks; results go to benchmarks/results/
	$(BIN)/python scripts/bench.py

bench-live: setup engine peers ## Other routers and TAO on two real vLLM replicas (hours; LIVE="--quick" tries it)
	PYTHONPATH=scripts $(BIN)/python -m benchmarks.live $(LIVE)

docs: setup ## Build the documentation into site/
	$(BIN)/python scripts/generate_docs.py
	$(BIN)/mkdocs build --strict

docs-serve: setup ## Serve the documentation on 127.0.0.1:8000 while writing
	$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

lock: setup ## Renew the pinned versions in scripts/locks/
	scripts/lock.sh

clean: ## Remove what builds and test runs leave (environments stay)
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*
