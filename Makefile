# Two commands: `make demo` shows the whole thing on a real Slurm, `make test` passes all tests.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
DEVCLUSTER := contrib/devcluster/devcluster

.PHONY: help demo test check unit bench clean

help:
	@sed -n 's/^# make \(\w*\): /make \1	/p' $(MAKEFILE_LIST) | expand -t 16

# make demo: the main job on a real Slurm whose instances are still arriving
demo:
	@contrib/demo.sh

# make test: everything: style, types, borders, and all tests, those on a real Slurm included
test: check
	@$(DEVCLUSTER) build
	$(BIN)/pytest --slurm

# make check: style, types and borders
check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# make unit: the tests that need no Slurm and no root; about a minute
unit: $(VENV)/ready
	$(BIN)/pytest

# make bench: speed, as ratios
bench: $(VENV)/ready
	$(BIN)/pytest tests/bench --benchmark-only

# make clean: what these commands made in this folder
clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/ready: pyproject.toml contrib/setup.sh
	@contrib/setup.sh $(VENV)
	@touch $@
