# Every target makes its own environment in .venv; nothing else has to be installed but Python >= 3.10, make and ld.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-lowest oclgrind lint bench clean

$(VENV)/.base: pyproject.toml
	@echo "installing into $(VENV), about 290 MB ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pocl]"
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pocl,test]"
	touch $@

$(VENV)/.all: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pocl,intel,test,bench,dev]"
	touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[pocl,test,dev]"
	touch $@

demo: $(VENV)/.base  ## classify real handwritten digits on the OpenCL device
	NNRT_DEVICE=$${NNRT_DEVICE:-opencl,cpu} $(BIN)/nnrt demo

test: $(VENV)/.test  ## the tests, strictly on PoCL: 7 to 20 minutes on 2 cores
	NNRT_DEVICE=$${NNRT_DEVICE:-opencl:pocl} $(BIN)/python -m pytest -q -n 2

test-all: $(VENV)/.all  ## the long suites whole (corpus, random graphs, mutations, Oclgrind), every platform found
	RUSTICL_ENABLE=$${RUSTICL_ENABLE:-llvmpipe} NNRT_DEVICE=$${NNRT_DEVICE:-opencl:pocl,opencl:intel} $(BIN)/python -m pytest -q -n 2 --long

test-lowest: build/lowest/.made  ## the tests with the least versions of what the package depends on
	NNRT_DEVICE=$${NNRT_DEVICE:-opencl:pocl} build/lowest/bin/python -m pytest -q -n 2

build/lowest/.made: pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check -e ".[pocl,test]" -c tests/lowest.txt
	touch $@

oclgrind: $(VENV)/.test build/oclgrind/bin/oclgrind  ## out of bounds, races, uninitialised reads: every kernel on an interpreter
	PATH="$(CURDIR)/build/oclgrind/bin:$$PATH" $(BIN)/python -m tests.platforms.oclgrind --uninitialized

build/oclgrind/bin/oclgrind:
	tests/platforms/build_oclgrind.sh build/oclgrind

lint: $(VENV)/.dev  ## ruff, mypy --strict, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.all  ## ours and the peers in one run
	$(BIN)/python benchmarks/peers.py

clean:
	rm -rf $(VENV) build *.egg-info
