# make demo: set up, run the demo, leave its report.   make test: set up, check, test.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
SOURCES := pyproject.toml constraints.txt hatch_build.py torchtriage.pth $(wildcard src/torchtriage/native/*.[ch]*)
# Compiled kernels are shared between tests, and kept between runs.
export TORCHINDUCTOR_CACHE_DIR ?= $(CURDIR)/.cache/inductor
# The tests start hundreds of processes: what Python compiles of ours is kept, as it is after an install.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check slow bench docs test-2.9 clean

demo: $(STAMP)
	$(BIN)/torchtriage demo

# One compile thread a process: the workers of the tests keep all cores busy, and a pool of compilers takes seconds to start.
test: $(STAMP) check
	TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# make bench NAME=overhead
bench: $(STAMP)
	$(BIN)/python benchmarks/$(NAME).py

docs: $(STAMP)
	$(BIN)/python docs/generate.py

# The oldest supported torch, in its own venv (about 7 GB: its wheel asks for the CUDA libraries); not part of CI.
test-2.9: .venv-2.9/installed
	.venv-2.9/bin/python -m pytest -m "not slow" tests/integration

$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@

.venv-2.9/installed: $(SOURCES)
	$(PYTHON) -m venv .venv-2.9
	grep -v '^torch==' constraints.txt > .venv-2.9/constraints.txt
	.venv-2.9/bin/pip install --quiet --disable-pip-version-check torch==2.9.1 -c .venv-2.9/constraints.txt
	.venv-2.9/bin/pip install --quiet --disable-pip-version-check -e '.[dev]' -c .venv-2.9/constraints.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-2.9 .cache build dist
