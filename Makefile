# Everything a newcomer or the CI needs; `make help` lists it. Only Python >= 3.11 (with venv), make and git are needed:
# each target sets up its own environment in .venv first.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
# Lines and branches of the package that the tests must reach, in percent. Raise it, never lower it.
COVERAGE_FLOOR ?= 95
# With COVERAGE=1 `make test` measures them, which takes about half as long again. The CI says so, and `make coverage`.
COVERAGE ?=
# Processes that share the test files; 0 runs them in one, in order. One more than cores, for some tests wait for other programs.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# More words for pytest: make test PYTEST_ARGS="-k decision --seed 7"
PYTEST_ARGS ?=

# Where Python stands. src is walked without following its links, so that nothing is judged twice.
CODE := $(wildcard actors benchmarks examples scripts src supervision tests transport)
# flake8-async runs with all its rules, also the optional ones (ASYNC913: an endless loop that nothing can cancel), except
#   ASYNC114            wants every function that takes task_status listed by name; ASYNC113 knows the usual ones
#   ASYNC124            wants an async function without await to be sync; a port, a tool or a hook is async by its contract
#   ASYNC127            asks for httpx2 in place of httpx; httpx is what this project and its users have chosen
#   ASYNC900            forbids async generators; ours hold no nursery and no scope across a yield (ASYNC101, ASYNC119)
#   ASYNC910, ASYNC911  want a checkpoint on every path of every async function; a path without one is deliberate here
#   ASYNC912            wants one on every path of a scope, a loop over nothing included; ASYNC100 finds the ones without any
ASYNC_OFF := ASYNC114,ASYNC124,ASYNC127,ASYNC900,ASYNC910,ASYNC911,ASYNC912

# The tests start hundreds of Pythons. Without bytecode files each of them would compile the package, and each worker the tests.
unexport PYTHONDONTWRITEBYTECODE

PY := $(VENV)/bin/python
# An environment that does not run (moved folder, vanished Python) counts as missing, whatever its stamps say.
ALIVE := $(shell $(VENV)/bin/pip --version >/dev/null 2>&1 || echo dead)
RUN_STAMP := $(VENV)/.stamp-run
DEV_STAMP := $(VENV)/.stamp-dev
DOCS_STAMP := $(VENV)/.stamp-docs

.DEFAULT_GOAL := help
.PHONY: help demo demo-work test coverage lint types format quick judges chaos attack bench bench-peers bench-postgres chaos-postgres docs package clean dead

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

$(RUN_STAMP): pyproject.toml scripts/environment.sh $(ALIVE)
	@bash scripts/environment.sh $(PYTHON) $(VENV)
	@touch $@

$(DEV_STAMP): pyproject.toml scripts/environment.sh $(ALIVE)
	@bash scripts/environment.sh $(PYTHON) $(VENV) dev
	@touch $(RUN_STAMP) $@

$(DOCS_STAMP): $(DEV_STAMP)
	@bash scripts/environment.sh $(PYTHON) $(VENV) dev,docs
	@touch $@

demo: $(RUN_STAMP) ## run the example agent (ARGS="--yes" answers its question for you)
	@$(VENV)/bin/greenroom demo $(ARGS)

demo-work: $(RUN_STAMP) ## let the example program work on a copy of this folder (ARGS="--yes")
	@$(VENV)/bin/greenroom work --with demo $(ARGS)

test: $(DEV_STAMP) ## every gate: format, lint, types, tests
	@$(MAKE) --no-print-directory -j 2 lint types
	$(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(if $(COVERAGE),--cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR)) $(PYTEST_ARGS)

coverage: ## what the CI runs: `make test` with coverage and its floor, and each scene on each store and in each mode
	@COVERAGE=1 GREENROOM_CHAOS=cover $(MAKE) --no-print-directory test

lint: $(DEV_STAMP) ## ruff and flake8-async
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	find $(CODE) -name node_modules -prune -o -name '*.py' -print0 | xargs -0 $(PY) -m scripts.async_rules --enable ASYNC --disable $(ASYNC_OFF)

types: $(DEV_STAMP) ## mypy --strict
	$(PY) -m mypy

format: $(DEV_STAMP) ## write the code as ruff wants it
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

quick: $(DEV_STAMP) ## the tests that are not marked slow, without coverage
	$(PY) -m pytest -q --fast $(PYTEST_ARGS)

judges: $(DEV_STAMP) ## install the npm packages that some tests ask; without them those skip
	@bash scripts/judges.sh

chaos: $(DEV_STAMP) ## sweeps, and scenes on all stores in all modes, in full; `make test` samples both
	GREENROOM_CHAOS=full $(PY) -m pytest --timeout 0 tests/chaos tests/conformance tests/unit tests/e2e --ignore tests/e2e/postgres $(PYTEST_ARGS)

chaos-postgres: $(DEV_STAMP) ## processes on one PostgreSQL server that are killed, stopped and cut off at random, in full
	GREENROOM_CHAOS=full $(PY) -m pytest -s --timeout 0 tests/e2e/postgres $(PYTEST_ARGS)

attack: $(DEV_STAMP) ## attacks that are drawn by lot, half a minute each family (ARGS="doors --seed 7")
	$(PY) -m scripts.attack $(ARGS)

bench: $(RUN_STAMP) ## measure against the budgets; results go to benchmarks/results/
	$(PY) -m benchmarks $(ARGS)

bench-peers: $(RUN_STAMP) ## the agent loop beside openai-agents, pydantic-ai and langgraph, each in an environment of its own
	$(PY) -m benchmarks loop_peers --save peers $(ARGS)

bench-postgres: $(DEV_STAMP) ## steps, decisions and claims on PostgreSQL beside LangGraph, DBOS, Procrastinate and pgqueuer
	$(PY) -m benchmarks postgres --save postgres $(ARGS)

docs: $(DOCS_STAMP) ## build the site of documents in build/site
	@bash scripts/site/assets.sh build/site-assets
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs --quiet build
	@echo "docs: open build/site/index.html"

package: $(DEV_STAMP) ## build sdist and wheel, run the wheel in an empty environment
	PYTHON="$(PYTHON)" bash scripts/check-package.sh $(PY)

clean: ## remove what was made here
	rm -rf $(VENV) build dist src/*.egg-info .coverage* .mypy_cache .ruff_cache .async_rules_cache .pytest_cache .hypothesis
