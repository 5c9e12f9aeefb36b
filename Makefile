PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet

# All of the project's own, with SGLang v0.5.9; about 10 GB, a minute with a warm cache.
READY := $(VENV)/.ready
# What runs without SGLang, with the oldest dependencies that setup.cfg allows.
LOWEST := build/lowest
LOWEST_READY := $(LOWEST)/.ready

# Two at a time; tests that share a server stay together.
PARALLEL := -n 2 --dist loadgroup

.PHONY: help demo test test-lowest lint clean

help:
	@echo "make demo         patch SGLang, show token IDs from a real server, verify it"
	@echo "make test         run the whole test suite"
	@echo "make test-lowest  run what needs no server with the oldest dependencies"
	@echo "make lint         check style, types and spelling"
	@echo "make clean        remove what these made"

demo: $(READY)
	$(BIN)/agentcore-patch apply
	$(BIN)/python -m agentcore_verify.demo
	$(BIN)/agentcore-patch verify --model scripted

test: $(READY)
	$(BIN)/pytest $(PARALLEL)

test-lowest: $(READY) $(LOWEST_READY)
	AGENTCORE_TEST_PYTHON=$(abspath $(BIN))/python $(LOWEST)/bin/pytest $(PARALLEL) tests/unit tests/sglang_sources

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(READY): $(BIN)/uv pyproject.toml setup.cfg
	$(UV) --python $(BIN)/python --editable '.[sglang,dev]'
	touch $@

$(LOWEST_READY): $(BIN)/uv pyproject.toml setup.cfg
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(UV) --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	touch $@
