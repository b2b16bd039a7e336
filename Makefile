# Every target does its own set-up; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ifneq ($(wildcard ../shared/data),) # the datasets, where they stand beside the checkout
export CALIPERS_DATA ?= $(abspath ../shared/data)
endif
TORCH := .venv-torch
SKPRO := .venv-skpro
SCALE := .venv-scale
TORCH_VERSION := 2.13.0

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types unit test-long slow campaigns test-browser chromium nginx test-proxy \
	test-torch test-oldest test-newest test-skpro test-scale docs figures notebooks dist benchmarks clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY) ## fit, print the measures, write a model, a report and a figure
	$(BIN)/calipers demo --out demo

# Side by side, since mypy leaves a second processor idle.
test: $(READY) ## linters, types and the fast tests
	$(MAKE) --no-print-directory --jobs 3 lint types unit

$(READY): pyproject.toml study/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[plots,serve]' --editable ./study --group dev
	touch $@

lint: $(READY) ## ruff, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY) ## mypy, strict
	$(BIN)/mypy

USUAL := not slow and not torch and not browser
FAST := not long and $(USUAL)
WORKERS ?= 2
# Without the plugins of libraries, whose modules pytest would rewrite in every worker.
PYTEST := PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(BIN)/pytest -p xdist -p _hypothesis_pytestplugin \
	-n $(WORKERS) --dist loadscope --no-loadscope-reorder

quick: $(READY) ## under a minute: the tests of what changed, or a core selection
	$(PYTEST) -q --budget 45 -m "$(USUAL)" $$($(BIN)/python tests/quick.py)

unit: $(READY) ## the fast tests and the doctests
	$(PYTEST) -m "$(FAST)"

test-long: $(READY) ## what takes some seconds each: whole processes, pages, attacks, long streams
	$(PYTEST) -m "long and $(USUAL)"

# These compile as users do, with all optimisations; the fast tests do without.
slow: $(READY) chromium ## what takes minutes, what needs a browser, what needs the datasets
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PYTEST) --download -m "slow or browser or data"

campaigns: $(READY) ## attacks with their counts, into docs/reliability.md, up to an hour
	$(BIN)/python -m tests.campaigns --write docs/reliability.md

# Playwright's own browsers are large downloads; a Chromium of the system does as well.
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)

chromium: $(READY)
	$(BIN)/python -m pip install --quiet --group browser
	command -v chromium || command -v chromium-browser || command -v google-chrome \
		|| ($(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q chromium)

test-browser: chromium ## the report and the server's page in a real browser
	$(PYTEST) -m browser tests/report tests/serve

# Where nginx is not installed, its package is unpacked beside the checkout; no root is needed.
NGINX := .nginx/usr/sbin

nginx:
	command -v nginx || test -x $(NGINX)/nginx \
		|| (mkdir -p .nginx && cd .nginx && apt-get download -q nginx && dpkg-deb -x nginx_*.deb .)

test-proxy: $(READY) nginx ## the documented nginx in front of a server
	PATH="$$PATH:$(CURDIR)/$(NGINX)" $(BIN)/pytest -q tests/serve/test_proxy.py

# Only an exact version: anything looser brings gigabytes of CUDA along.
$(TORCH)/.ready: pyproject.toml study/pyproject.toml
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet 'torch==$(TORCH_VERSION)'
	echo 'torch==$(TORCH_VERSION)' > $(TORCH)/constraints.txt
	$(TORCH)/bin/python -m pip install --quiet --constraint $(TORCH)/constraints.txt \
		--editable . --editable ./study pytest hypothesis threadpoolctl
	touch $@

test-torch: $(TORCH)/.ready ## losses, a training loop and upgrades on PyTorch
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(TORCH)/bin/pytest tests/torch src/calipers/torch.py

$(SKPRO)/.ready: pyproject.toml
	test -x $(SKPRO)/bin/python || $(PYTHON) -m venv $(SKPRO)
	$(SKPRO)/bin/python -m pip install --quiet --editable '.[skpro]' pytest hypothesis sktime
	touch $@

test-skpro: $(SKPRO)/.ready ## the adapter for skpro and sktime, by skpro's own checks
	$(SKPRO)/bin/pytest tests/skpro src/calipers/skpro.py

$(SCALE)/.ready: pyproject.toml
	test -x $(SCALE)/bin/python || $(PYTHON) -m venv $(SCALE)
	$(SCALE)/bin/python -m pip install --quiet --editable '.[scale,serve]' ray pytest hypothesis
	touch $@

test-scale: $(SCALE)/.ready ## clusters of Dask and Ray, with workers that are killed
	$(SCALE)/bin/pytest tests/scale -m 'slow or not slow'

# `make test` in a fresh clone, as CI has it, installs the newest versions that its Python allows, and
# warnings are errors in all tests; test-newest does so in an environment of its own, for any Python.
# The oldest: every direct dependency at its lower bound, what those need from the days of the
# youngest bound, and polars, which scikit-learn knows only so far as it was there. What old
# libraries say of the libraries of today is not ours, so no error.
# JAX of those days trains too slowly with few optimisations.
AGE := 2025-07-17
OLDEST := .venv-oldest
NEWEST := .venv-newest

test-oldest: $(READY) ## the fast and long tests with the oldest dependencies that are allowed
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(OLDEST)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --exclude-newer $(AGE) --python $(OLDEST) \
		--extra all pyproject.toml --output-file $(OLDEST)/constraints.txt
	echo 'polars==1.20.0' >> $(OLDEST)/constraints.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST) --constraint $(OLDEST)/constraints.txt \
		--editable '.[all]' --editable ./study --group dev httpx
	SCIPY_ARRAY_API=1 JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(OLDEST)/bin/pytest -n $(WORKERS) --dist loadscope -m "$(USUAL)" \
		-W ignore::DeprecationWarning -W ignore::FutureWarning $(TESTS)

test-newest: $(READY) ## the same with the newest, deprecations as errors; PYTHON=python3.13 for another
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(NEWEST)
	$(BIN)/uv pip install --quiet --python $(NEWEST) --upgrade \
		--editable '.[all]' --editable ./study --group dev
	$(NEWEST)/bin/pytest -n $(WORKERS) --dist loadscope -m "$(USUAL)" $(TESTS)

dist: $(READY) ## wheels and source archives, checked, installed elsewhere and tried there
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python release/dist.py

docs: $(READY) ## the documentation as HTML in docs/_build, warnings as errors
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

figures: $(READY) ## the picture of the comparison, from the stored results
	$(BIN)/python benchmarks/peers.py figure

notebooks: $(READY) ## the examples as notebooks and as pages, with their output
	$(BIN)/python docs/gallery.py

benchmarks: $(READY) $(TORCH)/.ready ## speed, printed as tables
	$(BIN)/python benchmarks/aggregation.py
	$(TORCH)/bin/python benchmarks/training.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/prediction.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/gross_errors.py --seeds 3 --networks 5
	$(BIN)/python benchmarks/scale.py measure
	$(TORCH)/bin/python benchmarks/upgrade.py

clean: ## remove environments and caches
	rm -rf $(VENV) $(TORCH) $(SKPRO) $(OLDEST) $(NEWEST) .nginx dist .mypy_cache .pytest_cache \
		.ruff_cache .hypothesis demo \
		docs/_build docs/generated
