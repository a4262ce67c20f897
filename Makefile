# On a fresh machine with Python 3.10+ and a C++ compiler:
#   make demo        install, render, grade: on the GPU if there is one, else on the CPU
#   make test        install, run the tests that a change needs: minutes
#   make test-all    install, run all tests
#   make selftest    install, grade the candidates whose verdicts are known
#   make tables      install, fill in the tables in documents from the records
#
# PYTHON=python3.12   the interpreter to start from
# INSTALL=no          install nothing: run with PYTHON as it is, which needs no network
# DEVICE=cpu          let the demo leave a GPU alone
# JOBS=4              processes that run tests; one more than cores unless told, as tests also wait
# LEFT_OUT="..."      markers of tests that `make test` leaves out
# COG_ARGS="--check"  let `make tables` say which document differs, and change none
# PYTEST_ARGS="..."   further arguments of pytest
# SELFTEST_ARGS="..." further arguments of kernelgen selftest

PYTHON ?= python3
INSTALL ?= yes
DEVICE ?= auto
VENV ?= .venv
LEFT_OUT ?= ci or long or mutants or corpus
COG_ARGS ?= -r
JOBS ?= $(shell echo $$(($$(nproc) + 1)))

ifeq ($(INSTALL),no)
python := $(PYTHON)
demo_ready :=
test_ready :=
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
else
python := $(VENV)/bin/python
demo_ready := $(VENV)/installed-demo
test_ready := $(VENV)/installed-test
endif

.PHONY: help demo test test-all selftest tables install install-test clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

demo: install
	@scripts/demo.sh "$(python)" "$(DEVICE)"

# Each of hundreds of processes would compile what it imports, and pytest all tests once a worker.
unexport PYTHONDONTWRITEBYTECODE

# A file's tests stay in one process: they share what is costly to start.
pytest = "$(python)" -m pytest -n $(JOBS) --dist loadfile

test: install-test
	$(pytest) -m "not ($(LEFT_OUT))" $(PYTEST_ARGS)

test-all: install-test
	$(pytest) $(PYTEST_ARGS)

selftest: install
	"$(python)" -m kernelgen selftest $(SELFTEST_ARGS)

tables: install-test
	"$(python)" -m cogapp -I scripts $(COG_ARGS) README.md docs/kernelbench.md benchmarks/*/*.md

install: $(demo_ready)

install-test: $(test_ready)

# What is installed follows these files; the empty file says that it was, after the last step succeeded.
$(VENV)/installed-%: pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh "$(PYTHON)" "$(VENV)" "$*"
	@touch "$@"

clean:
	rm -rf "$(VENV)" build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
