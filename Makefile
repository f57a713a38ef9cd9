# make demo: set up, run the demo, leave its report.   make test: set up, check, test.   make test-all: the longer tests.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
SOURCES := pyproject.toml constraints.txt hatch_build.py torchtriage.pth $(wildcard src/torchtriage/native/*.[ch]*)
# Compiled kernels are shared between tests, and kept between runs.
export TORCHINDUCTOR_CACHE_DIR ?= $(CURDIR)/.cache/inductor
# The tests start hundreds of processes: what Python compiles of ours is kept, as it is after an install.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all fuzz golden check bench soak docs transcripts dist test-torch clean

demo: $(STAMP)
	$(BIN)/torchtriage demo

# One compile thread a process: the workers of the tests keep all cores busy, and a pool of compilers takes seconds to start.
PYTEST := TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/python -m pytest

# The tests of a mark on all cores. Those that fail run once more, one at a time: on a full machine a process may be starved for seconds, and
# a fault of ours fails again. Both reports are printed.
run_tests = $(PYTEST) -n auto --no-loadscope-reorder --dist loadfile -m "$(1)" || { \
	[ $$? -eq 1 ] && echo "The tests that failed run once more, one at a time:" && \
	$(PYTEST) -n 0 --last-failed --last-failed-no-failures none -m "$(1)"; }

test: $(STAMP) check
	$(call run_tests,not thorough)

# What `make test` leaves out: every example and rule page, long sweeps, the browser, the transcripts of the docs.
test-all: $(STAMP)
	$(call run_tests,thorough)

# Reads random damaged inputs: make fuzz SECONDS=300. A failure names the reader and the seed that repeat it.
SECONDS ?= 60
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# Rewrites the stored reports in tests/golden; what `git diff` then shows is what a user would see change.
golden: $(STAMP)
	TORCHTRIAGE_GOLDEN=write $(BIN)/python -m pytest -n 0 tests/test_golden.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

# make bench NAME=overhead
bench: $(STAMP)
	$(BIN)/python benchmarks/$(NAME).py

# A million steps and 10,000 recompiles, or an hour: are memory and file size bounded?
soak: $(STAMP)
	$(BIN)/python benchmarks/soak.py

# Writes the generated pages again and builds the site into build/site; a warning, such as a broken link, is an error.
docs: $(STAMP)
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --strict

# Runs the commands of the docs and rewrites their transcripts; what `git diff` then shows is what a reader would see change.
transcripts: $(STAMP)
	$(BIN)/python docs/transcripts.py

# Builds the sdist and the wheel into dist, checks what PyPI would check, and tests both in empty environments.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(PYTHON) -m venv build/twine
	build/twine/bin/pip install --quiet --disable-pip-version-check twine
	build/twine/bin/twine check --strict dist/*
	$(BIN)/python -m pytest tests/integration/test_wheel.py

# make test-torch VERSION=2.15.0 PYTHON=python3.12: the integration tests on another torch or Python; not part of CI. What is tested is the
# installed wheel. Each version has its own venv, of about 7 GB: torch from PyPI asks for the CUDA libraries.
VERSION ?= 2.15.0
TORCH_VENV := .venv-torch-$(VERSION)$(patsubst %,-%,$(filter-out python3.11,$(notdir $(PYTHON))))
test-torch: $(TORCH_VENV)/installed
	$(TORCH_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
	$(TORCH_VENV)/bin/python -m pytest tests/integration

$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,docs]' -c constraints.txt
	touch $@

$(TORCH_VENV)/installed: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(TORCH_VENV)
	grep -v '^torch==' constraints.txt > $(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/pip install --quiet --disable-pip-version-check torch==$(VERSION) -c $(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/pip install --quiet --disable-pip-version-check '.[dev]' -c $(TORCH_VENV)/constraints.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-torch-* .cache build dist
