# `make` alone explains. `make demo` and `make test` install what they need into .venv first.

PYTHON ?= python3
# 1: install for an NVIDIA GPU, 0: for none. Found out by asking the driver.
GPU ?= $(shell nvidia-smi -L 2>/dev/null | grep -q '^GPU' && echo 1 || echo 0)
# A model directory or ModelScope id for `demo`; the stand-in is written to model/ when this is empty.
MODEL ?=
# For `bench`, for example `--batches 1,8,64 --seconds 1`.
BENCH_FLAGS ?=
# For tools/gpu_proof.py, for example `--budget 600`.
PROOF_FLAGS ?=
# For pip, for example `--extra-index-url URL`.
PIP_FLAGS ?=

CPU_EXTRAS := export,quantize,detect,reconstruct,compare,monitor,serve,ui,cpu,rtx,dev
GPU_EXTRAS := export,quantize,detect,reconstruct,compare,monitor,serve,ui,gpu,dev
EXTRAS := $(if $(filter 1,$(GPU)),$(GPU_EXTRAS),$(CPU_EXTRAS))

PY := .venv/bin/python
RUN := $(PY) -m face3d_trt
# The stamp's name holds the extras and the folder: a moved clone, or a new GPU, is installed afresh.
STAMP := .venv/.installed-$(shell printf '%s' '$(EXTRAS) $(CURDIR)' | cksum | cut -d' ' -f1)
PHOTO := build/demo/astronaut.png
REPORT := build/demo/report.html
BENCH := build/bench
BENCH_PROFILES := \
  --profile min=1x3x224x224,opt=1x3x224x224,max=4x3x224x224 \
  --profile min=1x3x224x224,opt=8x3x224x224,max=16x3x224x224 \
  --profile min=1x3x224x224,opt=256x3x224x224,max=256x3x224x224

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo bench test test-gpu test-ray gpu-proof check clean distclean

help: ## Explain these targets.
	@echo "face3d-trt: 3D face reconstruction as TensorRT engines"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'
	@echo
	@echo "  PYTHON=python3.12   which CPython (3.10 to 3.13) makes .venv"
	@echo "  GPU=0 or GPU=1      install without or with the GPU packages; found out by itself"
	@echo "  MODEL=DIR or ID     the model of \`make demo\` and \`make bench\`; without it, a stand-in in model/"
	@echo "  PIP_FLAGS=...       more options for pip install"

install: $(STAMP) ## Install into .venv; does nothing when nothing changed.
	@echo ".venv is up to date: source .venv/bin/activate"

# Written last, so an interrupted installation is taken up again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "$(PYTHON) is not CPython 3.10 to 3.13; name one: make install PYTHON=python3.12" >&2; exit 1; }
	@if [ -n "$$(ls .venv/.installed-* 2>/dev/null | grep -vxF '$(STAMP)')" ] || ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  echo "making .venv with $(PYTHON)"; \
	  $(PYTHON) -m venv --clear .venv \
	    || { echo "$(PYTHON) cannot make a virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }; \
	fi
	@rm -f .venv/.installed-*
ifeq ($(GPU),1)
	@$(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[$(GPU_EXTRAS)]' || { \
	  echo "The GPU packages could not be installed: pip says why above. pycuda wants a C++ compiler and the CUDA" \
	    "headers (nvcc on the PATH). Going on without them; the engine is then built by TensorRT-RTX." >&2; \
	  $(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[$(CPU_EXTRAS)]'; }
else
	$(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[$(CPU_EXTRAS)]'
endif
	@touch '$(STAMP)'

$(PHOTO): | $(STAMP)
	@mkdir -p $(@D)
	@$(PY) -c 'import sys; from PIL import Image; from skimage import data; Image.fromarray(data.astronaut()).save(sys.argv[1])' $@

demo: $(STAMP) $(PHOTO) ## Model, ONNX, fp16 and int8 engines, and a report of the comparison.
	$(RUN) doctor
	$(if $(MODEL),,$(RUN) standin model/)
	$(RUN) export --model '$(or $(MODEL),model/)'
	$(RUN) build --fp16
	$(RUN) build --int8 --calib calibration/
	$(RUN) compare --images $(PHOTO) --report $(REPORT)

# Plans where there is a GPU; elsewhere ONNX Runtime quantizes for itself.
bench: $(STAMP) ## Backends side by side on this machine, and a report: build/bench/bench.html.
	$(if $(MODEL),,$(RUN) standin model/)
	$(RUN) export --model '$(or $(MODEL),model/)' -o $(BENCH)/face3d.onnx
ifeq ($(GPU),1)
	$(RUN) build --fp16 --onnx $(BENCH)/face3d.onnx $(BENCH_PROFILES)
	$(RUN) build --int8 --calib calibration/ --onnx $(BENCH)/face3d.onnx $(BENCH_PROFILES)
	$(RUN) bench --plan $(BENCH)/face3d.fp16.plan --plan $(BENCH)/face3d.int8.plan --transfers \
	  --model '$(or $(MODEL),model/)' --onnx $(BENCH)/face3d.onnx --json $(BENCH)/bench.json $(BENCH_FLAGS)
else
	$(RUN) bench --model '$(or $(MODEL),model/)' --onnx $(BENCH)/face3d.onnx --calib calibration/ --batches 1,8 \
	  --json $(BENCH)/bench.json $(BENCH_FLAGS)
endif
	$(RUN) bench report $(BENCH)/bench.json -o $(BENCH)/bench.html

test: $(STAMP) ## The whole test suite; needs no GPU.
	$(PY) -m pytest $(PYTEST_FLAGS)

test-gpu: $(STAMP) ## The tests that need an NVIDIA GPU.
	@nvidia-smi -L 2>/dev/null | grep '^GPU' \
	  || { echo "no NVIDIA GPU answers on this machine (nvidia-smi -L): no GPU test was run" >&2; exit 3; }
	$(PY) -m pytest -m gpu $(PYTEST_FLAGS)

test-ray: $(STAMP) ## The tests of reconstruct --ray; installs Ray first.
	$(PY) -m pip install $(PIP_FLAGS) -c constraints.txt -e '.[ray]'
	$(PY) -m pytest tests/reconstruct/test_cluster.py $(PYTEST_FLAGS)

gpu-proof: $(STAMP) ## Show on this GPU what docs/gpu-proof.md says, and write its tables.
	$(PY) tools/gpu_proof.py --out build/gpu-proof --doc docs/gpu-proof.md $(PROOF_FLAGS)

check: $(STAMP) ## ruff, formatting and strict mypy.
	$(PY) -m ruff check src tests tools
	$(PY) -m ruff format --check src tests tools
	$(PY) -m mypy

clean: ## Remove engines, the demo photo, its report and caches; .venv and model/ stay.
	find engines -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## `clean`, and .venv; model/ stays (it may be yours: rm -r model).
	rm -rf .venv
