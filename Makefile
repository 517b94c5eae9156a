# Two commands for a newcomer: `make train`, `make test`. Everything lives in .venv; nothing else is touched.
#
#   PYTHON=python3.12 make train      another interpreter
#   make train ARGS='elche=cpu_async' overrides for the main job, as on flodl's own command line

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMPS := pyproject.toml constraints.txt
ARGS ?=

.PHONY: train test rings lab faults lint coverage gpu bench wheel clean help
.DEFAULT_GOAL := help

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

train: $(VENV)/.installed ## install, then train the main job on bundled real data
	$(BIN)/python -m flodl experiment=quickstart $(ARGS)

# Both parts run, whatever the first one found. Real processes mostly wait, so two and more tests run at once, each file
# in one worker (tests/conftest.py says what stays together). On a shared machine they may miss a moment: such a test gets
# a second try, which is told at the end; one that hangs (pyproject.toml says for how long) has failed.
WORKERS := -n auto --maxprocesses=4
AGAIN := --reruns 1 --rerun-except 'from pytest-timeout' -rR
test: $(VENV)/.installed-test ## install, then run every test ring that this machine can run
	@$(BIN)/python -m pytest -m "ring0 or ring1 or ring2 or ring3" -n auto $(AGAIN); quick=$$?; \
	$(BIN)/python -m pytest -m "ring4 or ring5" $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10 \
	    $(AGAIN) && exit $$quick

rings: $(VENV)/.installed-test ## the quick rings 0 to 3 only
	$(BIN)/python -m pytest -n auto

lab: $(VENV)/.installed-test ## real hosts on this machine and what may go wrong with them (root; see docs/clusters.md)
	$(BIN)/python -m pytest tests/lab -m ring5 --durations=10

faults: $(VENV)/.installed-test ## every row of the table of faults (docs/faults.md); hosts need root
	$(BIN)/python -m pytest -m row --durations=10

lint: $(VENV)/.installed-dev ## ruff, pyright and the floors
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

coverage: $(VENV)/.installed-test ## branch coverage of spec and decide
	$(BIN)/python -m pytest -m "ring0 or ring1 or ring2" -n auto --cov=flodl.spec --cov=flodl.decide --cov-report=term

# The tests compare what the cards hold before and after: one at a time, nothing else on them.
gpu: $(VENV)/.installed-test ## what needs GPUs: its tests; with two and more flodl beside torch DDP, and the modes on unequal cards
	$(BIN)/python -m pytest tests/gpu -m "" -v
	$(BIN)/python -m tests.gpu.ddp
	$(BIN)/python -m tests.gpu.modes

bench: $(VENV)/.installed-test ## the figures of the README, measured on this machine
	$(BIN)/python -m pytest tests/bench -m ring5 -s

wheel: $(VENV)/.installed-dev ## dist/flodl-*.whl
	$(BIN)/python -m build --wheel

clean: ## remove the environment and every cache; run folders stay
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
	find flodl launch tests -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per set of extras: a second `make` does nothing here unless the pins or the metadata changed.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(STAMPS) | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: $(STAMPS) | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(STAMPS) | $(BIN)/python
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed
