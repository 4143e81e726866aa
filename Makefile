# The two commands of the README, and what developers type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Byte code is left to the first import of each module: a run imports a tenth of what is installed.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
# The C++ operators are compiled at installation, so their sources are prerequisites.
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard cpu/* native/*)
define REQUIREMENTS
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["cuda"], sep="\n")
endef
export REQUIREMENTS
TRAINS := $(VENV)/.trains
READY := $(VENV)/.ready

.PHONY: train test test-all lint docs docs-links benchmark clean

train: $(TRAINS)
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

benchmark: $(TRAINS)
	$(BIN)/python -m molgcn.benchmark $(ARGS)

# What training needs: its packages, those for a GPU too, and meanwhile the operators, compiled for the processor of this machine alone.
$(TRAINS): $(SOURCES)
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(BIN)/python -c "$$REQUIREMENTS" > $(VENV)/requirements.txt
	$(INSTALL) -c constraints.txt -r $(VENV)/requirements.txt & packages=$$!; \
		MOLGCN_INSTRUCTION_SETS=native $(INSTALL) --no-deps -e . && wait $$packages
	touch $(TRAINS)

# What tests, checks and documentation need too, and the operators for every processor.
$(READY): $(TRAINS)
	$(INSTALL) -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build docs/build
