# `make run` and `make test` work first on a fresh machine: each creates what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# uv installs faster than pip, but does not read pip's settings: it uses its own index, or else the index of pip.
PIP_INDEX = $${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}
INDEX = UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$(PIP_INDEX)}"
# Without --python, uv would install into the environment that the user has activated.
INSTALL = $(INDEX) $(BIN)/uv pip install --quiet --python $(BIN)/python
MINUTES := 10
# More than the two processors of a small machine: many tests wait for servers and for clusters.
WORKERS := 4
# A file's tests stay together, and the files in the order of tests/conftest.py.
SUITE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests that need no more than the packages of .venv. The two folders that have none of them are not read.
OWN := --ignore tests/interop --ignore tests/attacks
QUICK := -m "not real and not attack and not long" --hypothesis-profile few
LONG := -m "(long or hypothesis) and not real and not attack" --hypothesis-profile rest

# The tests start hundreds of processes: none compiles the gateway anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup help run test test-long test-real test-all coverage attack attack-together attack-alone lowest soak soak-fleet lint format generate bench bench-quick charts matrix conformance metrics chart pages docs screenshots peers lock version release clean

setup: $(VENV)/.ready  ## the virtual environment in .venv, with all that tests and tools need

# What `make run` needs. Of pip, only errors are shown: no progress, and no warnings of the user or a newer pip.
$(VENV)/.gateway: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the gateway and its packages into $(VENV), once"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.ready: $(VENV)/.gateway
	@echo "installing what tests and tools need into $(VENV), once"
	@$(INSTALL) --group dev
	@touch $@

help:  ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## */\1|/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "make %-15s  %s\n", $$1, $$2 }'

run: $(VENV)/.gateway  ## the gateway with bundled model servers behind it, on loopback
	$(BIN)/gateway demo

test: setup  ## the tests that need nothing else on the machine, in some minutes
	$(BIN)/python -m pytest $(OWN) $(QUICK) $(SUITE)

test-long: setup  ## large messages, reloads, killed processes, each value of the chart, and many random examples
	$(BIN)/python -m pytest $(OWN) $(LONG) $(SUITE)

test-real: setup peers  ## the tests with real servers and clients, clusters, browsers and the image
	$(BIN)/python -m pytest -m real $(SUITE)

test-all: test test-long test-real attack  ## all tests

coverage: setup peers  ## the tests but for tests/interop and attacks, and the lines and branches that they do not reach
	$(BIN)/python -m pytest -m "not attack" --ignore tests/interop --ignore tests/attacks $(SUITE) --cov --cov-report=term-missing:skip-covered

attack: attack-together attack-alone  ## tests/attacks, hostile clients and servers; prints at the end what they measured

attack-together: setup  ## the attacks that other processes may run beside
	$(BIN)/python -m pytest -m "attack and not alone" -n $(WORKERS) --dist worksteal tests/attacks

attack-alone: setup  ## the attacks whose results other processes would change
	$(BIN)/python -m pytest -m alone tests/attacks

# Programs in the documentation use grpcio-tools, which is newer than the oldest protobuf.
lowest: setup  ## test with the oldest version of each dependency that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	.venv-lowest/bin/python -m pip install --quiet --editable . --group dev
	$(BIN)/python -m tests.packaging.lowest > .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install --quiet --requirement .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pytest $(OWN) $(QUICK) $(SUITE) --ignore tests/documents/test_pages.py

soak: setup  ## valid and invalid traffic for MINUTES (10), then checks for leaks of memory, tasks and descriptors
	$(BIN)/python -m tests.attacks.soak --minutes $(MINUTES)

soak-fleet: setup peers  ## requests for 200 models at three real Tritons that are killed in turn, for MINUTES (10): docs/fleet.md
	$(BIN)/python -m tests.attacks.soak_fleet --minutes $(MINUTES)

lint: setup  ## formatting, style and types; and the sentences of pages and docstrings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.documents.prose

format: setup  ## formats, and corrects what the linter can correct
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup  ## the code that is generated from the schemas in protos/
	$(BIN)/python -m protos.generate

bench: setup peers  ## the gateway beside other programs, into docs/benchmarks; then what each of its parts costs, and what grows
	$(BIN)/python -m tests.benchmarks.contest --to docs/benchmarks
	$(BIN)/python -m tests.benchmarks
	$(BIN)/python -m tests.benchmarks.growth

bench-quick: setup peers  ## the targets alone, in two minutes
	$(BIN)/python -m tests.benchmarks.contest --quick

charts: setup  ## the charts of docs/performance.md and docs/benchmarks, from the figures in them
	$(BIN)/python -m tests.benchmarks.charts

matrix: setup  ## docs/matrix.md, docs/carried.md: what each pair of protocols carries; and which cases the contract leaves out
	$(BIN)/python -m tests.contract.document
	$(BIN)/python -m tests.documents.generate

conformance: setup peers  ## the tables of docs/conformance.md: where real servers deviate from the specifications
	$(BIN)/python -m tests.interop.conformance

metrics: setup  ## the table of metrics in docs/observability.md
	$(BIN)/python -m tests.observing.document

chart: setup  ## the table of values in the README of deploy/helm/modelglot, and its copies of dashboard and alerts
	$(BIN)/python -m deploy.helm.document

pages: setup  ## what is generated in the documentation: keys (also of policies), commands, errors, examples, pairs, glossary
	$(BIN)/python -m tests.config.document
	$(BIN)/python -m tests.documents.generate

docs: setup  ## the documentation site, in build/site
	$(BIN)/python -m tests.documents.site

screenshots: setup  ## the pictures of the console in docs/images; needs Chromium
	$(BIN)/python -m tests.admin.console.screenshots

peers: setup  ## one virtual environment per real client or server, in .peers/, and system programs
	@echo "installing real clients and servers into .peers, once"
	@$(INDEX) $(BIN)/python -m tests.peers.build

lock: setup  ## the image's exact packages with hashes, newest versions: deploy/*.lock, and their licences
	$(BIN)/python -m deploy.lock
	$(BIN)/python -m deploy.notices

version: setup  ## sets the version: make version V=1.2.0
	$(BIN)/python -m deploy.release.version $(V)

release: setup  ## archives, chart, image, bill of materials and checksums, into dist/; each checked in an empty environment
	$(BIN)/python -m deploy.release

clean:  ## remove the environments, caches and build output
	rm -rf $(VENV) .venv-lowest .peers .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info
