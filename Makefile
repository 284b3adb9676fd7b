# Everything sets itself up: make demo, make test, make lint, make types, make docs, make pages, make bench.
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs, and everything else on top of it.
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
# Modules are compiled when they are first imported: most never are.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
PYTHON ?= python3
export HF_HUB_OFFLINE ?= 1
# Where modules may not be compiled, each of the tests' many processes would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-one test-cpu test-slow test-ray test-stores test-minimum test-peers mutations release faults fuzz lint types docs pages picture bench all clean

all: lint types test docs

$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[demo]'
	touch $@

$(READY): $(DEMO)
	$(INSTALL) -e '.[dev]'
	touch $@

demo: $(DEMO)
	$(BIN)/foils demo -o out/demo

# The tests' own processes have one thread each: that is quicker, and their sums come in one order. Threads that some
# tests ask for wait without spinning, or two processes on two cores take each other's time.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest -q

test: $(READY)
	$(PYTEST) -n 2 --dist worksteal -m "not slow"

# The same in one process, and as processors without AVX-512 and without AVX compute.
test-one: $(READY)
	$(PYTEST) -m "not slow"

test-cpu: $(READY)
	$(subst -m pytest,tests/processors.py,$(PYTEST)) -n 2 --dist worksteal -m "not slow"

# Slow tests; Ray's have a target of their own.
test-slow: $(READY)
	$(PYTEST) -m slow --ignore=tests/scale

test-ray: $(READY)
	$(PYTEST) -m slow tests/scale

# Tests of sentence-transformers, choix, ranx or bm25s, run against our functions: make test-peers PEER=/path/to/choix
test-peers: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py peer_tests $(PEER)

# Formulas and seams, broken one after the other: each must turn a test red.
mutations: $(READY)
	$(BIN)/python tests/mutations.py

# The recipes of docs/deploying.md, with the stores that nothing else needs.
test-stores: $(READY)
	$(INSTALL) -e '.[stores]'
	$(PYTEST) tests/searching/test_sharpened.py

# The package as users get it: built, installed with the demo's extra in an empty environment, and run from outside.
release: $(DEMO)
	rm -rf build dist out/release
	$(INSTALL) build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv out/release
	out/release/bin/python -m pip install --quiet --no-compile -c constraints.txt "foils[demo] @ file://$(CURDIR)/$$(ls dist/*.whl)"
	cd out/release && bin/foils demo -o demo && test -s demo/report.html && test -s demo/tuned/report.html

# The lowest versions that pyproject.toml allows of what the core, training, measuring and language models need; torch is
# no choice of ours.
test-minimum: $(DEMO)
	rm -rf out/minimum && $(PYTHON) -m venv out/minimum && grep '^torch=' constraints.txt > out/minimum/torch.txt
	$(INSTALL) uv
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --only-binary :all: --extra train --extra evaluate --extra llm \
		--no-header --no-annotate -c out/minimum/torch.txt pyproject.toml -o out/minimum/constraints.txt
	out/minimum/bin/python -m pip install --quiet --no-compile -c out/minimum/constraints.txt -e '.[demo,llm]' \
		choix evalica hypothesis jsonschema pytest
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false out/minimum/bin/python -m pytest -q -m "not slow" \
		tests/mining tests/scoring tests/statistics tests/pages tests/data/test_pairs.py tests/data/test_beir.py \
		tests/cli/test_mine_and_score.py tests/cli/test_refusals.py

# Fifty kills of every long verb; a million malformed lines and files.
faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py faults --kills 50

fuzz: $(READY)
	$(INSTALL) -e '.[fuzz]'
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py fuzz --seconds 75

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# The files of the documentation that are made from the code: the reference, every verb's options.
pages: $(READY)
	$(BIN)/python docs/generate.py

# README's picture: the demo's decision, as chromium shows its page.
picture: $(READY)
	$(BIN)/foils demo -o out/demo
	$(BIN)/python docs/generate.py out/demo/report.html

# Speed and memory as ratios within one run, then the page docs/benchmarks.md. What takes collections, or hours, is not
# among them: `python benchmarks/run.py` lists all benchmarks.
bench: $(READY)
	for name in score encode rate search train scale; do $(BIN)/python benchmarks/run.py $$name || exit; done
	$(BIN)/python benchmarks/run.py tables

clean:
	rm -rf $(VENV) build dist out docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
