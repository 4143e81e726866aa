# The two commands of the README, and what developers type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: train test test-all lint docs docs-links benchmark clean

train: $(READY)
	$(BIN)/python train.py $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

test-all: $(READY)
	$(BIN)/python -m pytest -m "slow or not slow" $(ARGS)

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/codespell

# The site, in docs/build/html; whatever Sphinx warns of is an error, links between pages included.
docs: $(READY)
	$(BIN)/sphinx-build -b html -W --keep-going -q docs docs/build/html $(ARGS)

# Links to other sites, over the network.
docs-links: $(READY)
	$(BIN)/sphinx-build -b linkcheck -W --keep-going -q docs docs/build/links $(ARGS)

benchmark: $(READY)
	$(BIN)/python -m molgcn.benchmark $(ARGS)

# The C++ operators are compiled here, so their sources are prerequisites.
$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard cpu/* native/*)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build docs/build
