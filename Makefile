# `make` lists the targets. Each makes .venv as it needs it, once, and again when the pins change.
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin
ifeq ($(origin BIN),command line)
  $(error Expected BIN to be .venv/bin, which the targets install into, but got $(BIN))
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo federation processes test more slow drawn nightly notebooks processors weight lint types docs serve site-check dist check clean

help:
	@echo "make demo    train FedAvg and FGSSL on Cora or a synthetic graph, write out/demo.png"
	@echo "make federation  FedProx on Flower in five processes, compared with one; no network needed"
	@echo "make processes  eight methods on Flower in real processes, and simulated; takes minutes"
	@echo "make test    the tests and every example in a docstring"
	@echo "make more    tests that make test skips, since they need an extra or a public dataset"
	@echo "make notebooks  the notebooks of docs/notebooks, each from top to bottom"
	@echo "make slow    what make test leaves out: methods on further tasks, attacks, a pretended GPU; takes an hour"
	@echo "make drawn   a tenth of it, drawn by the commit, and what the newest commits touch"
	@echo "make nightly  slow, more, notebooks, processors, demo, federation, site-check; takes hours"
	@echo "make processors  all tests as on other processors, twelve times; takes an hour or two"
	@echo "make weight  the size of the project: lines, branches, files, names"
	@echo "make lint    ruff: rules and format; words of docstrings and locals"
	@echo "make types   mypy --strict"
	@echo "make docs    build the documentation into site/"
	@echo "make serve   show the documentation at http://127.0.0.1:8000, with its search"
	@echo "make site-check  look at every page of site/ in Chromium, and follow every link"
	@echo "make dist    build the sdist and the wheel, install the wheel in a clean environment, run it"
	@echo "make check   test, lint, types and docs"
	@echo "make clean   remove .venv and everything that was built"
	@echo
	@echo "PYTHON=...   the Python to use, 3.11 or newer (python3)"
	@echo "PIP_ARGS=... more arguments for pip install. On Linux a plain index gives the CUDA build"
	@echo "             of torch, some gigabytes; for the CPU build: make demo"
	@echo "             PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu'"

demo: .venv/extra-examples
	$(BIN)/python examples/demo.py

federation: .venv/extra-examples .venv/extra-flower
	$(BIN)/python benchmarks/reliability/federation.py

processes: .venv/extra-test .venv/extra-examples .venv/extra-flower
	$(BIN)/python -m pytest -m slow tests/test_flower_processes.py

PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

test: .venv/extra-test
	$(PYTEST) --note-passed --costs out/proof/test.json

# What `make test` skipped for want of an extra or a public dataset.
EXTRAS ?= examples flower molecules loggers docs

more: .venv/extra-test $(EXTRAS:%=.venv/extra-%)
	$(PYTEST) --but-passed --costs out/proof/more.json

slow: .venv/extra-test
	$(PYTEST) -m slow --costs out/proof/slow.json

# A tenth of `make slow`, drawn by the commit, and what the newest commits touch of it.
drawn: .venv/extra-test
	$(PYTEST) -m slow --drawn "$$(git rev-parse HEAD)" --costs out/proof/drawn.json

nightly: slow more notebooks processors demo federation site-check

notebooks: .venv/extra-notebooks
	$(BIN)/python docs/notebooks/run.py $(ARGS)

processors: .venv/extra-test
	$(BIN)/python benchmarks/reliability/processors.py $(ARGS)

weight: .venv/extra-test
	$(BIN)/python benchmarks/weight.py

lint: .venv/extra-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python docs/plain.py

types: .venv/extra-lint
	$(BIN)/mypy --strict fgl

docs: .venv/extra-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: .venv/extra-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve $(ARGS)

site-check: docs
	$(BIN)/python docs/site_check.py $(ARGS)

# The wheel is built from the sdist. It is installed beside nothing else, and away from this folder.
dist: .venv/extra-dist
	rm -rf dist build out/dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv --clear out/dist
	out/dist/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt "$$(ls dist/*.whl)[examples]"
	cd out/dist && bin/python -c "import fgl, pathlib; \
	  assert pathlib.Path(fgl.__file__).is_relative_to(pathlib.Path.cwd()), fgl.__file__; \
	  assert pathlib.Path(fgl.__file__).with_name('py.typed').exists(); print('fgl', fgl.__version__)"
	out/dist/bin/python examples/baseline.py fedavg louvain-nodes --dataset synthetic --rounds 2

check: test lint types docs

clean:
	rm -rf .venv build dist site out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find fgl tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

# A stamp per extra of pyproject.toml.
.venv/extra-%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fgl needs Python 3.11 or newer, but $(PYTHON) is not:" \
	    "make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[$*]'
	@touch $@
