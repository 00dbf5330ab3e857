# Two commands do everything on a machine with Python 3.11, git and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_WAIT_POLICY = PASSIVE
export OMP_NUM_THREADS ?= 1

.PHONY: demo test docs lint clean reproduce-quick
.DELETE_ON_ERROR:

$(VENV)/installed: pyproject.toml constraints.txt
	@echo "Setting up a virtual environment in $(VENV) (about two minutes, once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "prismfl needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,flower,parquet]'
	@touch $@

demo: $(VENV)/installed
	@$(BIN)/prismfl demo

test: $(VENV)/installed
	@$(BIN)/ruff check src tests benchmarks reproduce
	@$(BIN)/mypy
	@$(BIN)/pytest

# A site that opens from disk: site/index.html. Strict: a link that leads nowhere fails.
docs: $(VENV)/installed
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Built site/index.html"

reproduce-quick: $(VENV)/installed
	@$(BIN)/python reproduce/fedlap/quick.py

clean:
	rm -rf $(VENV) runs site build dist .mypy_cache .ruff_cache .pytest_cache
