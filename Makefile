# Every target does its own set-up; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TORCH := .venv-torch
TORCH_VERSION := 2.13.0

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types unit slow campaigns test-browser chromium nginx test-proxy \
	test-torch docs benchmarks clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(READY) ## fit, print the measures, write a model, a report and a figure
	$(BIN)/calipers demo --out demo

test: lint types unit ## what continuous integration runs

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

FAST := not slow and not torch and not browser
PYTEST := $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

quick: $(READY) ## under a minute: the tests of what changed, or a core selection
	$(PYTEST) -q --budget 45 -m "$(FAST)" $$($(BIN)/python tests/quick.py)

unit: $(READY) ## the fast tests and the doctests
	$(PYTEST) -m "$(FAST)"

# These compile as users do, with all optimisations; the fast tests do without.
slow: $(READY) chromium ## what takes minutes, what needs a browser, what needs the datasets
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PYTEST) -m "slow or browser or data"

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

docs: $(READY) ## the documentation as HTML in docs/_build, warnings as errors
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build

benchmarks: $(READY) $(TORCH)/.ready ## speed, printed as tables
	$(BIN)/python benchmarks/aggregation.py
	$(TORCH)/bin/python benchmarks/training.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/prediction.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/gross_errors.py --seeds 3 --networks 5
	$(BIN)/python benchmarks/scale.py measure
	$(TORCH)/bin/python benchmarks/upgrade.py

clean: ## remove environments and caches
	rm -rf $(VENV) $(TORCH) .nginx .mypy_cache .pytest_cache .ruff_cache .hypothesis demo \
		docs/_build docs/generated
