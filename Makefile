# What people type. Everything happens in .venv, which `make install` keeps up to date.

PYTHON ?= python3
# else each process of the tests compiles all modules again
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# An index with torch's builds for CPUs, where pip does not find one by itself: PyPI's for Linux are for CUDA, and several
# times as large. `make install TORCH_INDEX=URL`, with the URL that PyTorch's installation page names for CPUs.
TORCH_INDEX ?=
# two processes; the tests of a file stay together, for what they share is built once for a file (tests/conftest.py names
# the exceptions); a process that ends in a test is replaced once
PARALLEL := -n 2 --dist loadfile --max-worker-restart 1
comma := ,
FOLDERS := $(shell find agents algorithms bus models scenarios seedbus studies -type d -not -name __pycache__)

.PHONY: install demo lm federation test slow coverage lint bench peers schedules gpu gpu-here soak docs site clean

install: $(VENV)/.installed

# A strict editable install is a tree of links, a link a file: made again when a folder has gained or lost one.
# `.runs` is the package with what the quickstart needs, and `.installed` what developers need.
$(VENV)/.installed $(VENV)/.runs: pyproject.toml constraints.txt $(wildcard $(FOLDERS:%=%/*.py) scenarios/library/*.yaml scenarios/library/*/*.yaml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip "setuptools>=77"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--config-settings editable_mode=strict --editable ".[$(if $(filter %.installed,$@),dev,digits$(comma)pages)]"
	$(BIN)/python -m seedbus.algorithms.directions.warm
	touch $@ $(VENV)/.runs

demo: $(VENV)/.runs
	$(BIN)/seedbus run quickstart

# a pretrained language model, fine-tuned by DeComFL; $SEEDBUS_DATA has SST-2, or the hub
lm: install
	$(BIN)/python benchmarks/lm.py $(LM)

# three owners whose data stay with them, disturbed, and their wire searched for every sample; needs root, and Linux with
# network namespaces: elsewhere it says so and ends with exit code 3
federation: install
	$(BIN)/python benchmarks/federation.py $(FEDERATION)

# runs on drawn schedules, from the first seed that is not counted yet; SEEDS=N, and SCHEDULES="--write docs" to count them
SEEDS ?= 2000
schedules: install
	$(BIN)/python -P benchmarks/schedules.py --seeds $(SEEDS) $(SCHEDULES)

test: install
	$(BIN)/pytest $(PARALLEL)

slow: install
	$(BIN)/pytest -m "slow and not soak" $(PARALLEL) --durations 15

# what the quick tests reach, by room; a test that the tracing disturbs is no fault here, for `make test` has run it, and
# after the crash of a process pytest-xdist may wait for ever
coverage: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pytest-cov>=6"
	mkdir -p build
	-timeout --kill-after 30 1200 $(BIN)/pytest -q -p no:cacheprovider $(PARALLEL) --cov --cov-report=json | tail -1
	$(BIN)/python benchmarks/coverage_by_room.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml --package seedbus
	cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml . ../benchmarks ../examples/*.py

bench: install
	$(BIN)/python benchmarks/bench.py $(BENCH)

# the same work by other simulators, which are installed in environments of their own below build/peers
peers: install
	$(BIN)/python benchmarks/peers.py $(PEERS)

# every suite that computes where SEEDBUS_TEST_DEVICE says, or in Triton
ON_DEVICES := tests/test_tensors.py tests/algorithms/test_on_devices.py tests/algorithms/directions/test_exact.py \
	tests/algorithms/directions/test_triton.py tests/algorithms/scalar_only/test_bfloat16.py \
	tests/algorithms/scalar_only/test_triton_replay.py \
	tests/models/test_device.py tests/models/test_micro_batch.py tests/models/test_stacked.py \
	tests/models/test_recorded_losses.py tests/models/test_resident.py \
	tests/models/parameters/test_one_transfer.py tests/models/parameters/test_slopes.py \
	tests/models/text/test_language_arithmetic.py tests/models/hub/test_hugging_face.py tests/models/images/test_attack.py \
	tests/runs/test_device_runs.py

# on a machine with an NVIDIA GPU; elsewhere its first line says so, ends with exit code 3, and make stops
gpu: install gpu-here

# the same without installing anything: `make gpu-here PY=python3`, where what is needed can be imported
PY ?= $(BIN)/python
gpu-here:
	$(PY) benchmarks/gpu.py --is-there
	SEEDBUS_TEST_DEVICE=cuda $(PY) -m pytest -q -m "not soak" -n 4 --dist load $(ON_DEVICES)
	$(PY) benchmarks/gpu.py --write

soak: install
	$(BIN)/pytest -m soak -o faulthandler_timeout=0
	$(BIN)/python benchmarks/soak.py --minutes 60 --write docs

docs: install
	$(BIN)/python benchmarks/reference_tables.py --write docs
	$(BIN)/python benchmarks/architecture.py --write docs
	$(BIN)/python benchmarks/help_texts.py --write docs
	$(BIN)/python benchmarks/combinations_page.py --write docs
	$(BIN)/python benchmarks/llms.py --write

# the pages as a site that is read without a network; its search needs python -m http.server --directory build/site
site: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "mkdocs-material>=9.5" "mkdocstrings[python]>=0.27"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python benchmarks/site_links.py build/site
	@echo "written: build/site/index.html"

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
