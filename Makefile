# Everything happens in .venv here and in the cache folder LAKEHOUSE_HOME (default ~/.cache/lakehouse).
PYTHON ?= python3
BIN := .venv/bin
FAULTS ?= 33
MINUTES ?= 10
SEED ?= 1
ENGINE ?= flink-2.0
ALONE := browser or dagster
HEAVY := chaos or $(ALONE)
WITHOUT_SERVERS := not flink and not services and not ($(HEAVY))
# Modules and rewritten asserts are compiled once, not by every process that tests start.
unexport PYTHONDONTWRITEBYTECODE
# pytest's exit code 5: PYTEST_ARGS choose none of these.
PYTEST = $(BIN)/python -m pytest $(PYTEST_ARGS)
NONE_CHOSEN = || [ $$? = 5 ]

.PHONY: help setup demo test check format bench chaos soak clean

help:
	@echo "make demo    a local Flink, live data and Dagster; Ctrl-C takes all down"
	@echo "make test    all tests, on real Flinks (2.0, then 1.20)"
	@echo "make check   ruff, mypy, import-linter"
	@echo "make chaos   seeded faults against real processes: FAULTS=n SEED=s ENGINE=flink-2.0"
	@echo "make soak    maintenance beside writers, with kills: MINUTES=n SEED=s ENGINE=flink-2.0"
	@echo "make bench   what is measured (python -m benchmarks NAME for one)"
	@echo "make setup   the virtual environment alone"

setup: .venv/.complete

.venv/.complete: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed, this is %s: make PYTHON=/path/to/python" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: setup
	@$(BIN)/lakehouse demo

test: setup
	@$(BIN)/python -m lakehouse_dagster.local.fetch flink-2.0 flink-1.20
	$(PYTEST) -n auto -m "$(WITHOUT_SERVERS)" $(NONE_CHOSEN)
	@# Three at a time on two cores, each with a cluster of its own: they wait more than they compute.
	LAKEHOUSE_TEST_ENGINE=flink-2.0 $(PYTEST) -n 3 --dist loadfile -m "(flink or services) and not ($(HEAVY))" $(NONE_CHOSEN)
	LAKEHOUSE_TEST_ENGINE=flink-1.20 $(PYTEST) -n 3 --dist loadfile -m "every_engine and not ($(HEAVY))" $(NONE_CHOSEN)
	@# What kills processes has larger clusters; Dagster's daemons and browsers answer too late beside others.
	$(PYTEST) -n 2 --dist loadfile -m "chaos and not ($(ALONE))" $(NONE_CHOSEN)
	$(PYTEST) -m "$(ALONE)" $(NONE_CHOSEN)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	@$(BIN)/python -m lakehouse_dagster.local.fetch
	$(BIN)/python -m benchmarks

chaos: setup
	@$(BIN)/python -m lakehouse_dagster.local.fetch $(ENGINE)
	$(BIN)/python -m tests.chaos --faults $(FAULTS) --seed $(SEED) --engine $(ENGINE) $(CHAOS_ARGS)

soak: setup
	@$(BIN)/python -m lakehouse_dagster.local.fetch $(ENGINE)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED) --engine $(ENGINE)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
