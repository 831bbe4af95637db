# What one does with a clone. Each target sets up .venv first, from nothing or from whatever is there.
#
#   make run     8 CartPole envs in processes, a progress bar, a summary, a plot
#   make test    the tests           (PYTEST_ARGS="tests/unit -k shm", JOBS=1 for one at a time)
#   make rounds  the tests of what may break, 20 times over   (ROUNDS=3 CASES=F JOBS=5)
#   make check   ruff, mypy, the import layers
#   make bench   whether envmgr is as fast as is promised   (make bench-quick: a minute; make bench-all: an hour and more)
#   make bench-peers   once, before: an environment for each library to compare with
#   make docs    the pages, into docs/_build/html
#   make soak    ten minutes of 32 envs that fail in every way   (SOAK_ARGS="--seconds 60")
#   make clean   everything that the others made
#
# Another interpreter: make PYTHON=python3.12 run

PYTHON ?= python3
VENV ?= .venv
CONFIG ?= configs/cartpole_async.py
PYTEST_ARGS ?=
BENCH_ARGS ?=
PEERS ?=
SOAK_ARGS ?=
JOBS ?= 3
ROUNDS ?= 20
CASES ?= FSO

PY := $(VENV)/bin/python
# The stamp knows the place: a clone that was moved is set up again where it is now.
STAMP := $(VENV)/.envmgr-is-installed-$(shell printf %s '$(CURDIR)' | cksum | cut -d ' ' -f 1)
OLD_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DELETE_ON_ERROR:
.PHONY: run test rounds check format bench bench-all bench-quick bench-peers docs soak setup clean

run: $(STAMP)
	@$(VENV)/bin/envmgr run $(CONFIG)

# Compiled first: where PYTHONDONTWRITEBYTECODE is set, as images of containers have it, each of the thousand
# interpreters that the tests start would do it again.
test: $(STAMP)
	@$(PY) -m compileall -q envmgr tests
	@$(PY) tests/side_by_side.py $(JOBS) $(PYTEST_ARGS)

rounds: $(STAMP)
	@$(PY) -m compileall -q envmgr tests
	@for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)"; \
		$(PY) tests/side_by_side.py $(JOBS) -q --cases $(CASES) $(PYTEST_ARGS) || exit 1; \
	done

check: $(STAMP)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'

format: $(STAMP)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: $(STAMP)
	@$(PY) benchmarks/bench.py $(BENCH_ARGS)

bench-all: $(STAMP)
	@$(PY) benchmarks/bench.py --all $(BENCH_ARGS)

bench-quick: $(STAMP)
	@$(PY) benchmarks/bench.py --quick $(BENCH_ARGS)

bench-peers: $(STAMP)
	@$(PY) benchmarks/peers.py $(PEERS)

docs: $(STAMP)
	@$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

soak: $(STAMP)
	@$(PY) -m envmgr.testing.soak $(SOAK_ARGS)

setup: $(STAMP)

# Done once, and again when what is needed has changed. A .venv from elsewhere is kept if its Python
# works and is new enough; a broken or older one is made afresh. "compat": by the other way of installing
# editably, a folder that is called as the package is hides it from what is run beside that folder. Compiled on all
# cores, which pip does on one; packages ship files that are meant not to compile.
$(STAMP): setup.py requirements/constraints.txt
	@$(PY) -c '$(OLD_ENOUGH)' 2>/dev/null \
	|| { $(PYTHON) -c '$(OLD_ENOUGH)' 2>/dev/null && $(PYTHON) -m venv --clear $(VENV); } \
	|| { rm -rf $(VENV); echo "envmgr needs Python 3.11 or newer with its venv module (on Debian and Ubuntu a" \
	     "package of its own, python3-venv); '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." \
	     "Another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once; some minutes when packages have to be downloaded)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PY) -m ensurepip
	@$(PY) -m pip install -qq --disable-pip-version-check --no-compile \
	    -c requirements/constraints.txt --config-settings editable_mode=compat -e '.[dev,docs]'
	@$(PY) -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build runs benchmarks/results/all benchmarks/results/quick benchmarks/results/trial *.egg-info \
	    .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	find envmgr tests configs benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
