# The two commands of the README, and what developers type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Byte code is left to the first import of each module: a run imports a tenth of what is installed. Many containers forbid to write it; every
# process would then compile what it imports, which takes a training's start twice as long again.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
# The C++ operators are compiled at installation, so their sources are prerequisites.
SOURCES := pyproject.toml constraints.txt CMakeLists.txt molgcn/extension.py $(wildcard cpu/* native/*)
define REQUIREMENTS
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *project["optional-dependencies"]["cuda"], sep="\n")
endef
export REQUIREMENTS
TRAINS := $(VENV)/.trains
READY := $(VENV)/.ready
PEERS := .venv-peers
PYG_SOURCE ?= $(CURDIR)/$(PEERS)/pytorch_geometric

.PHONY: train test test-all test-peers mutations lint docs docs-links benchmark clean

train: $(TRAINS)
	$(BIN)/python train.py $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

test-all: $(READY)
	$(BIN)/python -m pytest -m "not peers" $(ARGS)

# Equality with other packages' own code, in an environment that they share with molgcn: chemprop pins another RDKit, and PyG's tests lie in
# its repository, of which PYG_SOURCE may name a checkout.
test-peers: $(PEERS)/.ready
	PYG_SOURCE=$(PYG_SOURCE) $(PEERS)/bin/python -m pytest -m peers $(ARGS)

# Faults that a named test of the default tier must find.
mutations: $(READY)
	$(BIN)/python tests/mutations.py $(ARGS)

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

$(PEERS)/.ready: pyproject.toml CMakeLists.txt molgcn/extension.py $(wildcard cpu/* native/*)
	test -d $(PEERS) || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS)/bin/python -m pip install --quiet torch-geometric
	test -d $(PYG_SOURCE) || git clone --quiet --depth 1 \
		--branch $$($(PEERS)/bin/python -c "from importlib.metadata import version; print(version('torch-geometric'))") \
		https://github.com/pyg-team/pytorch_geometric $(PYG_SOURCE)
	$(PEERS)/bin/python -m pip install --quiet -e ".[test]" chemprop==2.3.1
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) build docs/build
