# `make demo` and `make test` are all the set-up there is: each creates .venv, installs, and runs.
# --upgrade-deps brings a newer pip than that of Python 3.11, which saves a minute of resolving our extras.
PYTHON ?= python3
MUTATIONS ?=  # what to mutate, and how much of it; a sample of everything
EXTRAS ?=  # which of them make package-extras tries; all
BIN := .venv/bin
RUNTIME := .venv-runtime
OTHER_PYTHONS := 3.12 3.13 3.14

# What depends on other people's packages most, and takes little time.
LOWEST := core data evaluation figures nets/test_normalise.py test_metrics.py test_cli.py training/test_options.py \
	detector/test_export.py detector/test_int8.py detector/test_formats.py detector/test_label.py report/test_charts.py

.PHONY: demo test docs coverage mutations package package-extras test-lowest test-peers test-runtime test-pythons lint bench bench-peers clean

demo: .venv/demo-installed
	$(BIN)/macs demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --no-loadscope-reorder

docs: .venv/dev-installed  # the theme's note about its successor is for us, not for every build: CONTRIBUTING.md has it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean --quiet
	@echo "The site is in site/; open site/index.html."

package: .venv/dev-installed
	rm -rf .venv/exported
	PYTHONPATH=tests $(BIN)/python tests/runtime/exported_files.py .venv/exported
	$(BIN)/python .ci/package.py --extras demo,onnx --exported .venv/exported

package-extras: .venv/dev-installed  # every extra alone in a new environment, one gigabyte each
	rm -rf .venv/exported
	PYTHONPATH=tests $(BIN)/python tests/runtime/exported_files.py .venv/exported
	$(BIN)/python .ci/package.py --exported .venv/exported --each-extra $(EXTRAS)

coverage: .venv/dev-installed
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 COVERAGE_PROCESS_START=pyproject.toml $(BIN)/python -m pytest --numprocesses auto \
		--no-loadscope-reorder --cov --cov-report=term:skip-covered --cov-report=html:coverage

mutations: .venv/dev-installed  # a sample; `make mutations MUTATIONS="losses --sample 0"` tests all of one target
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutations.py $(MUTATIONS)

test-lowest: .venv-lowest/installed
	.venv-lowest/bin/python -m pytest $(addprefix tests/,$(LOWEST))

test-peers: .venv-peers/installed
	.venv-peers/bin/python -m pytest tests/peers

test-runtime: .venv/dev-installed $(RUNTIME)/installed
	rm -rf $(RUNTIME)/files
	PYTHONPATH=tests $(BIN)/python tests/runtime/exported_files.py $(RUNTIME)/files
	$(RUNTIME)/bin/python tests/runtime/without_torch.py $(RUNTIME)/files

test-pythons: .venv/dev-installed  # `make test-runtime` with each other Python of this machine; pyenv's are found, too
	for version in $(OTHER_PYTHONS); do \
		export PYENV_VERSION=$$version; \
		if python$$version --version 2>/dev/null; then \
			$(MAKE) test-runtime PYTHON=python$$version RUNTIME=.venv-runtime-$$version || exit 1; \
		else echo "Python $$version is not installed here, so it is not tested."; fi; \
	done

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for each in tests/*/conftest.py; do $(BIN)/mypy $$each || exit 1; done
	$(BIN)/lint-imports

bench: .venv/dev-installed bench-peers
	for script in pairs metrics scoring exported predicting photographs training memory serving; do PYTHONPATH=benchmarks $(BIN)/python benchmarks/$$script.py || exit 1; done

bench-peers: .venv-peers/installed
	PYTHONPATH=benchmarks .venv-peers/bin/python benchmarks/peers.py

.venv-lowest/installed: pyproject.toml constraints.txt .ci/lowest.py
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --only-binary :all: -c .venv-lowest/constraints.txt -e '.[demo,onnx,parquet]' pytest hypothesis
	touch $@

.venv-peers/installed: pyproject.toml constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-peers
	.venv-peers/bin/python -m pip install --quiet -c constraints.txt -e '.[onnx,serve]' pytest httpx 'tritonclient[http]' scikit-learn torchmetrics pandas tqdm gdown
	.venv-peers/bin/python -m pip install --quiet --no-deps pytorch-ood==0.4.0 torchvision==0.29.2
	-.venv-peers/bin/python -m pip install --quiet -c constraints.txt kserve  # its tests are skipped without it
	-.venv-peers/bin/python -m pip install --quiet kubernetes-validate  # likewise
	touch $@

$(RUNTIME)/installed: pyproject.toml constraints.txt runtime.txt
	test -x $(RUNTIME)/bin/python || $(PYTHON) -m venv --upgrade-deps $(RUNTIME)
	$(RUNTIME)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r runtime.txt
	$(RUNTIME)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps -e .
	touch $@

.venv/%-installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv --upgrade-deps .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-peers .venv-runtime* site coverage runs .pytest_cache .mypy_cache .ruff_cache
