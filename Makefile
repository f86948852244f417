# `make demo` and `make test` are all the set-up there is: each creates .venv, installs, and runs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-peers lint bench bench-peers clean

demo: .venv/demo-installed
	$(BIN)/macs demo

test: lint
	$(BIN)/python -m pytest

test-peers: .venv-peers/installed
	PYTHONPATH=benchmarks .venv-peers/bin/python -m pytest tests/peers

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for each in tests/*/conftest.py; do $(BIN)/mypy $$each || exit 1; done
	$(BIN)/lint-imports

bench: .venv/dev-installed bench-peers
	for script in pairs metrics scoring exported predicting training memory; do PYTHONPATH=benchmarks $(BIN)/python benchmarks/$$script.py || exit 1; done

bench-peers: .venv-peers/installed
	PYTHONPATH=benchmarks .venv-peers/bin/python benchmarks/peers.py

.venv-peers/installed: pyproject.toml constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet -c constraints.txt -e . pytest scikit-learn torchmetrics pandas tqdm gdown
	.venv-peers/bin/python -m pip install --quiet --no-deps pytorch-ood==0.4.0 torchvision==0.29.2
	touch $@

.venv/%-installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

clean:
	rm -rf .venv .venv-peers runs .pytest_cache .mypy_cache .ruff_cache
