# `make demo` and `make test` are all the set-up there is: each creates .venv, installs, and runs. `make check` answers
# while you work; `make check ROOM=scores` asks about one room.
# --upgrade-deps brings a newer pip than that of Python 3.11, which saves a minute of resolving our extras.
PYTHON ?= python3
ROOM ?=  # a room of src/macs, for make check; all of them
MUTATIONS ?=  # what to mutate, and how much of it; a sample of everything
EXTRAS ?=  # which of them make package-extras tries; all
# The version that make bench compares with.
BEFORE ?= 52663c4
BIN := .venv/bin
RUNTIME := .venv-runtime
OTHER_PYTHONS := 3.12 3.13 3.14

# Every process finds the bytecode of the one before, wherever the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal
AT_ONCE := $(MAKE) --no-print-directory --jobs --keep-going --output-sync=target
SUPPORT := PYTHONPATH=tests/support
UNIT := $(if $(ROOM),$(wildcard tests/unit/$(ROOM) tests/unit/test_$(ROOM).py),tests/unit)

# What depends on other people's packages most, and takes little time.
LOWEST := $(addprefix tests/unit/,core data evaluation figures nets/test_network.py test_metrics.py cli \
	training/test_options.py detector/test_formats.py detector/test_metadata.py report/test_charts.py) \
	$(addprefix tests/integration/detector/,test_export.py test_int8.py)

.PHONY: demo check test unit all-tests lint ruff types rooms docs coverage mutations nightly package package-extras
.PHONY: test-lowest test-peers test-runtime test-pythons bench bench-all bench-peers clean

demo: .venv/demo-installed
	$(BIN)/macs demo

check: .venv/dev-installed  # ruff, types, the layers of the rooms, and tests/unit
	@test -n "$(UNIT)" || { echo "There is no room called $(ROOM); the rooms are the packages of src/macs." >&2; exit 2; }
	@$(AT_ONCE) ruff types rooms unit

test: .venv/dev-installed  # the same and tests/integration
	@$(AT_ONCE) lint all-tests

unit:
	$(PYTEST) $(UNIT)

all-tests:
	$(PYTEST)

lint: ruff types rooms

ruff:
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .

types:
	$(BIN)/mypy

rooms:
	$(BIN)/lint-imports

docs: .venv/dev-installed  # the theme's note about its successor is for us, not for every build: CONTRIBUTING.md has it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean --quiet
	@echo "The site is in site/; open site/index.html."

nightly: .venv/dev-installed  # what takes too long for every change
	$(BIN)/python .ci/suites.py nightly

package: .venv/dev-installed
	rm -rf .venv/exported
	$(SUPPORT) $(BIN)/python tests/runtime/exported_files.py .venv/exported
	$(BIN)/python .ci/package.py --extras demo,onnx --exported .venv/exported

package-extras: .venv/dev-installed  # every extra alone in a new environment, one gigabyte each
	rm -rf .venv/exported
	$(SUPPORT) $(BIN)/python tests/runtime/exported_files.py .venv/exported
	$(BIN)/python .ci/package.py --exported .venv/exported --each-extra $(EXTRAS)

coverage: .venv/dev-installed
	rm -f .coverage .coverage.*
	COVERAGE_PROCESS_START=pyproject.toml $(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html:coverage

mutations: .venv/dev-installed  # a sample; `make mutations MUTATIONS="losses --sample 0"` tests all of one target
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutations.py $(MUTATIONS)

test-lowest: .venv-lowest/installed
	.venv-lowest/bin/python -m pytest $(LOWEST)

test-peers: .venv-peers/installed
	.venv-peers/bin/python -m pytest tests/peers

test-runtime: .venv/dev-installed $(RUNTIME)/installed
	rm -rf $(RUNTIME)/files
	$(SUPPORT) $(BIN)/python tests/runtime/exported_files.py $(RUNTIME)/files
	$(RUNTIME)/bin/python tests/runtime/without_torch.py $(RUNTIME)/files

test-pythons: .venv/dev-installed  # `make test-runtime` with each other Python of this machine; pyenv's are found, too
	for version in $(OTHER_PYTHONS); do \
		export PYENV_VERSION=$$version; \
		if python$$version --version 2>/dev/null; then \
			$(MAKE) test-runtime PYTHON=python$$version RUNTIME=.venv-runtime-$$version || exit 1; \
		else echo "Python $$version is not installed here, so it is not tested."; fi; \
	done

bench: .venv/dev-installed .venv/before-$(BEFORE)  # where users wait, beside a version before
	PYTHONPATH=benchmarks $(BIN)/python -W ignore benchmarks/waiting.py .venv/before-$(BEFORE)/src

bench-all: .venv/dev-installed bench-peers
	for script in pairs metrics scoring exported predicting photographs training memory serving growth; do PYTHONPATH=benchmarks $(BIN)/python benchmarks/$$script.py || exit 1; done

.venv/before-%:
	mkdir -p $@ && git archive $* src | tar -x -C $@

bench-peers: .venv-peers/installed
	PYTHONPATH=benchmarks .venv-peers/bin/python benchmarks/peers.py

.venv-lowest/installed: pyproject.toml constraints.txt .ci/lowest.py
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --only-binary :all: -c .venv-lowest/constraints.txt -e '.[demo,onnx,parquet]' pytest hypothesis
	touch $@

.venv-peers/installed: pyproject.toml constraints.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-peers
	.venv-peers/bin/python -m pip install --quiet -c constraints.txt -e '.[demo,onnx,serve]' pytest hypothesis httpx pytorch-lightning tensorboard 'tritonclient[http]' scikit-learn torchmetrics pandas tqdm gdown
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
