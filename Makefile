# Two commands on a fresh machine: `make demo` and `make test`. Also: `make quick`, `make laws`, `make steady`,
# `make test-pythons`, `make check`, `make bench`, `make docs`, `make pictures`, `make release`, `make fuzz`, `make examples`,
# `make page`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# For `make quick` and `make laws`: the folders to test instead of those that changed.
FOLDERS ?=
WORKERS ?= auto
# For `make simulate`.
MINUTES ?= 5
# Installed by pip for the tests, from wherever pip's own settings find it; `make test TORCH=` goes without.
TORCH ?= 2.13.0
# For `make fuzz`: seconds for each target, and which targets; all by default.
FUZZ_S ?= 60
TARGETS ?=
FUZZ := build/fuzz/venv
# Without it, some releases of jaxlib compute wrong numbers on CPU.
export XLA_FLAGS ?= --xla_cpu_experimental_ynn_fusion_type=

.PHONY: demo test steady test-pythons quick laws check bench docs pictures release fuzz simulate examples page page-check format clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("sightglass needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[ui]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.base
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

$(VENV)/.libraries: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group libraries
	[ -z "$(TORCH)" ] || $(BIN)/python -m pip install --quiet torch==$(TORCH) --group torch
	touch $@

demo: $(VENV)/.base
	$(BIN)/sightglass demo $(ARGS)

test: $(VENV)/.libraries
	$(BIN)/python -m tests.gate -n $(WORKERS) $(ARGS)

# All tests five times in a row; the first failure ends it. For an idle machine.
steady: $(VENV)/.libraries
	$(BIN)/python -m tests.gate -n $(WORKERS) --times 5 $(ARGS)

# On each supported Python that is found, with the lowest and the newest dependencies: a smoke test, some two minutes.
test-pythons: $(VENV)/.dev
	$(BIN)/python tests/pythons.py $(ARGS)

# The inner loop: the folders that changed, and a few tests of those above them; under two minutes.
quick: $(VENV)/.libraries
	$(BIN)/python -m tests.quick $(FOLDERS)

# The properties of the folders that changed, with many more examples than in `make test`: before a change is finished.
laws: $(VENV)/.libraries
	$(BIN)/python -m tests.quick --laws $(FOLDERS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m bench.sizes

bench: $(VENV)/.dev
	$(BIN)/python -m bench $(ARGS)

# Builds the wheel, and tries it with each extra (ARGS="ui hub" for some) in an environment of its own.
release: $(VENV)/.dev
	$(BIN)/python tests/release.py $(ARGS)

# The documentation as a site, build/site. A dead link fails it, and a public name without a place in the reference.
$(VENV)/.docs: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# The pictures of the documentation, each made by the program that it shows.
pictures: $(VENV)/.libraries
	$(BIN)/python docs/pictures.py $(ARGS)

# Looks for inputs that readers fail on; what it finds is kept in build/fuzz. The tests replay the stored inputs.
$(FUZZ)/.made: pyproject.toml
	$(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/python -m pip install --quiet --upgrade pip
	@$(FUZZ)/bin/python -m pip install --quiet --only-binary atheris --group fuzz 2>$(FUZZ)/pip.log || \
		{ echo "Expected a build of atheris for $$($(FUZZ)/bin/python -V) on this machine, got none ($(FUZZ)/pip.log): try PYTHON=python3.12"; exit 1; }
	$(FUZZ)/bin/python -m pip install --quiet --editable .
	touch $@

fuzz: $(FUZZ)/.made
	$(FUZZ)/bin/python -m tests.fuzz.campaign --seconds=$(FUZZ_S) $(TARGETS)

# The page's front end. It stands in the repository as built, so only those who change it need Node.
frontend/node_modules/.package-lock.json: frontend/package-lock.json
	cd frontend && npm ci --silent --no-audit --no-fund
	touch $@

page: frontend/node_modules/.package-lock.json $(VENV)/.base
	cd frontend && PYTHON=$(abspath $(BIN))/python npm run types && npm run build

# What stands in the repository is what its sources make, and its parts pass their tests.
page-check: frontend/node_modules/.package-lock.json $(VENV)/.base
	cd frontend && npm run --silent check && npm run --silent rebuilt
	cd frontend && PYTHON=$(abspath $(BIN))/python npm run --silent types -- --check

# Whole runs in simulated time, for some minutes: a seed that breaks a law is printed with the command that replays it.
simulate: $(VENV)/.dev
	$(BIN)/python -m tests.simulation --minutes $(MINUTES)

examples: $(VENV)/.libraries
	for example in examples/*.py examples/*/train.py; do echo "== $$example"; $(BIN)/python $$example || exit 1; done

format: $(VENV)/.dev
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) frontend/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
