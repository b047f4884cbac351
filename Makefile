# Every target sets up its own virtual environment; nothing but Python 3.11-3.13 and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo network-demo test test-network test-flare soak audit mutants check bench bench-network accuracy accuracy-holders format clean

demo: $(VENV)/.core
	$(BIN)/hedgerow demo

# A coordinator and four hospitals as real processes on this machine, with mutual TLS.
network-demo: $(VENV)/.network
	$(BIN)/hedgerow network demo

test: $(VENV)/.test
	$(BIN)/python -m pytest

# Real processes on loopback, some of them killed, some of them malicious; three minutes on a machine that is busy.
test-network: $(VENV)/.test $(VENV)/.network
	$(BIN)/python -m pytest tests/network -m network --ignore tests/network/test_flare_adapter.py

# The adapter for federations that run NVIDIA FLARE, with real FLARE processes; a minute.
test-flare: $(VENV)/.test $(VENV)/.network $(VENV)/.flare
	$(BIN)/python -m pytest tests/network/test_flare_adapter.py -m network

# A million requests with bytes changed, at a site; ten minutes.
soak: $(VENV)/.test
	HEDGEROW_MUTATED=1000000 $(BIN)/python -m pytest tests/transport/test_mutated_messages.py

# Attack every mechanism, and twins that cost twice their claim; an hour, on all cores. Ends with 1 if it finds a leak.
audit: $(VENV)/.test
	$(BIN)/hedgerow audit --json > audit.json

# Plants mistakes into copies of the source, one at a time, and demands that a test notices each;
# half an hour, twice that on a machine that is busy. MUTANTS="--only ledger.py:5" plants one, --list lists them.
mutants: $(VENV)/.test
	$(BIN)/python mutants/run.py $(MUTANTS)

check: $(VENV)/.check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/tree.py

# Adult over 4 and 16 sites as real processes; about five minutes. HEDGEROW_DATA names the folder of the data sets.
bench-network: $(VENV)/.network $(VENV)/.experiments
	$(BIN)/python benchmarks/network.py

# Needs the data sets: HEDGEROW_DATA names their folder, or they are downloaded.
accuracy: $(VENV)/.experiments
	$(BIN)/python -m hedgerow.experiments.accuracy

# What several holders gain by learning together; hours. ACCURACY="--keep fits.jsonl" goes on where it was stopped.
accuracy-holders: $(VENV)/.experiments
	$(BIN)/python -m hedgerow.experiments.accuracy_holders $(ACCURACY)

format: $(VENV)/.check
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test $(VENV)/.check $(VENV)/.bench $(VENV)/.experiments $(VENV)/.network $(VENV)/.flare: $(VENV)/.%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@
