# On a machine with Python 3.11, git and make: `make demo`, `make test`, and `make test-all` for what takes longer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH := torch==2.13.0
# What measures the branches of core/ and privacy/, and how many of them (per cent) it must reach.
COVERAGE_TESTS ?= tests/core tests/privacy tests/secure tests/transport/test_in_process.py
COVERAGE ?= 100
export OMP_WAIT_POLICY = PASSIVE
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all lint processes coverage docs wheel clean reproduce-quick
.DELETE_ON_ERROR:

$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Setting up a virtual environment in $(VENV) (about two minutes, once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "prismfl needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) $(TORCH)
	@$(PIP) -e '.[dev,flower,parquet,tables,encoders,onnx]'
	@touch $@

$(VENV)/docs-installed: $(VENV)/installed
	@$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/installed
	@$(BIN)/prismfl demo

lint: $(VENV)/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy

# Everything but tests that start real processes and wait for them, and the bench of planted bugs, which tests the tests.
test: lint
	@$(BIN)/pytest -m "not processes and not bench"

# What `make test` leaves out. The process tests mostly wait, so the rest runs beside them.
test-all: $(VENV)/docs-installed
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target processes docs wheel coverage

processes: $(VENV)/installed
	@$(BIN)/pytest -n 2 --dist loadfile -m "processes or bench"

coverage: $(VENV)/installed
	@$(BIN)/pytest -n 0 -m "not processes" --cov --cov-report=term --cov-fail-under=$(COVERAGE) $(COVERAGE_TESTS)

# A site that opens from disk: site/index.html. Strict: a link that leads nowhere fails.
docs: $(VENV)/docs-installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Built site/index.html"

# The wheel, made from the sdist, runs the demo where the sources are not.
wheel: $(VENV)/installed
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation . >build.log 2>&1 || { cat build.log; exit 1; }
	@rm -f build.log
	@set -e; away=$$(mktemp -d); trap 'rm -rf "$$away"' EXIT; \
	$(PYTHON) -m venv "$$away/venv"; \
	pip="$$away/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt"; \
	$$pip $(TORCH); $$pip dist/prismfl-*.whl; \
	cd "$$away"; unset PYTHONPATH; venv/bin/prismfl help own-data | grep -q '^# '; \
	venv/bin/prismfl demo; test -s runs/demo-*/report.html

reproduce-quick: $(VENV)/installed
	@$(BIN)/python reproduce/fedlap/quick.py

clean:
	rm -rf $(VENV) runs site build dist .mypy_cache .ruff_cache .pytest_cache .coverage
