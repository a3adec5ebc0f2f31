# Every target that runs something makes its own virtual environment first: Python ≥ 3.10 and make are all it takes.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# Python's bytecode is kept, whatever the environment says: some thousand processes of the tests import Treadle.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all conformance serve-test cluster-test converters-test tensorflow-test exporters-test throughput cpus networks lint wheel bench fuzz coverage-fuzz verifier golden docs clean

demo: $(VENV)/ready
	$(RUN) -m treadle.tools.demo

# tier 1: every behaviour, minutes on two cores without a cache (tests/tiers.py)
test: $(VENV)/ready
	$(RUN) -m pytest -n auto --maxprocesses 8

# tier 2: all cases, and properties of all their examples
test-all: $(VENV)/ready
	$(RUN) -m pytest -n auto --maxprocesses 8 --all

# the server, with its packages and Triton's own clients, in an environment of its own
serve-test: $(VENV)/serve/ready
	$(VENV)/serve/bin/python -m pytest --all tests/serve tests/rpc tests/cluster/test_serving_page.py tests/tools/test_page.py tests/debug/test_graph.py tests/docs -n auto --maxprocesses 8

# the kernels on other CPUs, under QEMU's emulation; CPUS="--all" or names, for instance CPUS="sse2 haswell"
cpus: $(VENV)/cpus/numpy-sse2 $(VENV)/cpus/aarch64
	$(RUN) tests/cpus.py $(CPUS)

# map_batches on Ray and Dask, and the servers that have adapters; what needs none of their packages is in `make test`
cluster-test: $(VENV)/cluster/ready $(VENV)/mlserver/ready
	$(VENV)/cluster/bin/python -m pytest --all -m "" $(addprefix tests/cluster/test_,tables.py ray.py dask.py kserve.py litserve.py serving_page.py) \
		tests/cluster/test_local.py::test_one_of_two_workers_killed_amid_10000_batches \
		tests/cluster/test_local.py::test_workers_killed_at_random_amid_10000_batches
	$(VENV)/mlserver/bin/python -m pytest --all tests/cluster/test_mlserver.py tests/cluster/test_serving_page.py -k mlserver

# models as the converters of scikit-learn, LightGBM and XGBoost write them, against these libraries
converters-test: $(VENV)/converters/ready
	$(VENV)/converters/bin/python -m pytest --all tests/converters

# models as tf2onnx and Keras write them, against TensorFlow
tensorflow-test: $(VENV)/tensorflow/ready
	$(VENV)/tensorflow/bin/python -m pytest --all tests/converters/test_tensorflow.py

# models as torch's exporters write them
exporters-test: $(VENV)/exporters/ready
	$(VENV)/exporters/bin/python -m pytest --all tests/compiler/onnx/test_exported_models.py

# requests a second under load, against LitServe and MLServer around onnxruntime; 8 minutes
RIVALS := litserve-rival mlserver-rival
throughput: $(VENV)/serve/ready $(RIVALS:%=$(VENV)/%/ready)
	$(VENV)/serve/bin/python -m treadle bench throughput

# ONNX's own cases for backends, with an empty cache
conformance: $(VENV)/ready
	rm -rf build/conformance
	TREADLE_CACHE=$(CURDIR)/build/conformance $(RUN) -m pytest --all -n auto --maxprocesses 8 -m conformance tests/conformance

networks: $(VENV)/ready
	$(RUN) -m pytest --all -m slow

lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/treadle  # whatever the folder of this checkout is called
	MYPYPATH=$(VENV)/src $(VENV)/bin/mypy -m treadle $(patsubst %/__init__.py,-p treadle.%,$(wildcard */__init__.py))
	MYPYPATH=$(VENV)/src $(VENV)/bin/mypy --strict --follow-imports=silent $(addprefix $(VENV)/src/treadle/,$(filter-out examples/quick_start.py,$(wildcard examples/*.py)))  # TVM's names have no types

# dist/treadle-*.whl, with the engine's object code
wheel: $(VENV)/ready
	$(RUN) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

bench: $(VENV)/rivals
	$(VENV)/bin/treadle bench dispatch
	$(VENV)/bin/treadle bench call
	$(VENV)/bin/treadle bench cold
	$(VENV)/bin/treadle bench compile
	$(VENV)/bin/treadle bench accuracy
	$(VENV)/bin/treadle bench models --report docs/benchmarks.md
	$(VENV)/bin/treadle bench layers --report docs/benchmarks.md

fuzz: $(VENV)/ready
	$(RUN) -m treadle.tools.dev.fuzz.executables
	$(RUN) -m treadle.tools.dev.fuzz.readers
	$(RUN) -m treadle.tools.dev.fuzz.attacks
	$(RUN) -m treadle.tools.dev.fuzz.programs --count 10000
	$(RUN) -m treadle.tools.dev.fuzz.mixes
	$(RUN) -m treadle.tools.dev.fuzz.texts
	$(RUN) -m treadle.tools.dev.fuzz.programs --count 2000 --off
	$(RUN) -m treadle.tools.dev.fuzz.onnx --count 20000 --off

READERS := file sections assembly module definition onnx argument array constants params session graph modules
coverage-fuzz: $(VENV)/fuzzers
	for reader in $(READERS); do $(RUN) -m treadle.tools.dev.fuzz.coverage $$reader --seconds 60 --state .fuzz || exit 1; done

# Each check of the verifier taken out in turn: its tests must notice.
verifier: $(VENV)/ready
	$(RUN) -m treadle.tools.dev.fuzz.verifier_mutants

# Accepts what the compiler makes: hashes of kernels and programs. `.venv/bin/python -m tests.compiler.golden --diff` shows the changes.
golden: $(VENV)/ready
	$(RUN) -m tests.compiler.golden

# what is derived of tables, and build/docs/index.html, the site; a warning is an error
docs: $(VENV)/docs/ready
	$(VENV)/docs/bin/python -m treadle.tools.dev.derive.docs
	$(VENV)/docs/bin/python -m treadle.tools.dev.derive.sources
	$(VENV)/docs/bin/python -m treadle.tools.dev.derive.stubs
	$(VENV)/docs/bin/python -m treadle.tools.dev.derive.reference
	$(VENV)/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet --doctree-dir build/doctrees docs build/docs
	@echo "the site is $(CURDIR)/build/docs/index.html"

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# Environments of heavy packages, by the extras of their names. uv links the packages from its cache: seconds, where pip takes minutes.
$(VENV)/uv/ready:
	$(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
	touch $@

ENVIRONMENTS := serve cluster mlserver docs converters tensorflow exporters
$(ENVIRONMENTS:%=$(VENV)/%/ready): $(VENV)/%/ready: pyproject.toml | $(VENV)/uv/ready
	$(PYTHON) -m venv --clear --without-pip $(VENV)/$*
	$(VENV)/uv/bin/uv pip install --quiet --python $(VENV)/$*/bin/python --editable '.[$*-test]'
	touch $@

$(VENV)/rivals: $(VENV)/ready
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

# without Treadle, which pins packages that these pin otherwise
$(RIVALS:%=$(VENV)/%/ready): $(VENV)/%/ready: $(VENV)/ready
	$(PYTHON) -m venv $(VENV)/$*
	$(VENV)/$*/bin/python -m pip install --quiet --disable-pip-version-check $(*:-rival=) onnxruntime
	touch $@

$(VENV)/fuzzers: $(VENV)/ready
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

# the newest NumPy that a CPU without SSE4 can run
$(VENV)/cpus/numpy-sse2: $(VENV)/ready
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target $@ 'numpy<2.4'

# Python for ARM, where Debian's packages can be had; without it, the other CPUs are emulated
$(VENV)/cpus/aarch64: $(VENV)/ready
	-$(RUN) tests/aarch64.py $@

clean:
	rm -rf $(VENV) build dist *.egg-info
