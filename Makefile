# Everything a person or CI types. `make demo` does the main job, `make test` passes the tests; both set up what they need.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
TORCH ?= 2.14.1
PYTEST_ARGS ?=
BIN := $(VENV)/bin
NATIVE := build/native
CMAKE_ARGS ?=
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)
CTEST := $(dir $(CMAKE))ctest

.PHONY: help demo test test-long install native shim check-abi lint format typecheck sanitize fuzz bench-null bench-tui wheel clean torch
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'pip>=25.1'

install: $(BIN)/python  ## the package with its native parts, into .venv
	$(BIN)/python -m pip install --quiet .

torch: $(BIN)/python  ## torch without NVIDIA's libraries (1.2 GB instead of 5.5) and what the examples need, into .venv
	$(BIN)/python phantora/sandbox/context/install_torch.py --torch $(TORCH) --requirements examples/requirements.txt

demo: install  ## simulate examples/llama_fsdp.py on 8 GPUs: in a container, or in place where there is no Docker
	PATH="$(abspath $(BIN)):$$PATH" TORCH=$(TORCH) sh tools/demo.sh

test: install torch  ## all tests, in one pytest run
	$(BIN)/python -m pip install --quiet --group test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest $(PYTEST_ARGS)

test-long: install torch  ## the tests that take minutes each: examples on 16 GPUs, TorchTitan 8B, every variation of determinism
	$(BIN)/python -m pip install --quiet --group test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest -m long $(PYTEST_ARGS)

$(BIN)/cmake: $(BIN)/python
	$(BIN)/python -m pip install --quiet cmake

native: $(CMAKE)  ## shim and core into build/native, for work in a checkout (PHANTORA_NATIVE=build/native)
	$(CMAKE) -S . -B build/cmake -DCMAKE_BUILD_TYPE=RelWithDebInfo $(CMAKE_ARGS)
	$(CMAKE) --build build/cmake -j$(JOBS)
	$(CMAKE) --install build/cmake --prefix $(NATIVE) --component native

shim: native  ## the same: named by the build id check of the launcher

check-abi: $(BIN)/python  ## prototypes and struct sizes against CUDA's own headers (fetches the header wheels)
	$(BIN)/python -m pip install --quiet --no-deps --target build/cuda 'nvidia-cuda-runtime==13.*' 'nvidia-cuda-crt==13.*' \
	    'nvidia-cuda-cupti==13.*' nvidia-cudnn-cu13 nvidia-nccl-cu13
	$(PYTHON) shim/tools/check_abi.py --cuda build/cuda/nvidia

lint: install  ## ruff, mypy, import contracts, clang-format
	$(BIN)/python -m pip install --quiet --group lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.:runtime:tui $(BIN)/lint-imports
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs -r $(BIN)/clang-format --dry-run --Werror

format: $(BIN)/python  ## rewrite in the house format
	$(BIN)/python -m pip install --quiet --group lint
	$(BIN)/ruff format .
	git ls-files '*.cpp' '*.hpp' '*.h' | xargs -r $(BIN)/clang-format -i

sanitize: $(CMAKE) $(BIN)/python  ## the core's own tests under ASan+UBSan, then under TSan
	$(BIN)/python -m pip install --quiet --group test
	for kind in address,undefined thread; do \
	  $(CMAKE) -S runtime/core -B build/sanitize-$${kind%%,*} -DPHANTORA_TESTS=ON -DPHANTORA_SANITIZE=$$kind \
	    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPython3_EXECUTABLE=$(abspath $(BIN)/python) && \
	  $(CMAKE) --build build/sanitize-$${kind%%,*} -j$(JOBS) && \
	  $(CTEST) --test-dir build/sanitize-$${kind%%,*} --output-on-failure || exit 1; \
	done

FUZZ_SECONDS ?= 600
fuzz: $(CMAKE)  ## the ring reader on hostile input (needs clang; FUZZ_SECONDS, 600 by default)
	$(CMAKE) -S runtime/core -B build/fuzz -DPHANTORA_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang
	$(CMAKE) --build build/fuzz -j$(JOBS) --target phantora-fuzz-ring
	find build/fuzz -name phantora-fuzz-ring -type f -exec {} -max_total_time=$(FUZZ_SECONDS) \;

BENCH_ARGS ?= --gpus 8 --size 7b --steps 8 --rounds 2
bench-null: install torch  ## CPU a steady step costs, beside the same launcher under PHANTORA_NULL=1 (BENCH_ARGS; --json)
	$(BIN)/python tools/bench_null.py $(BENCH_ARGS)

BENCH_TUI_ARGS ?= --gpus 256 --steps 4
bench-tui: install torch  ## CPU of the live view on a run of 256 ranks, against the run's own (BENCH_TUI_ARGS)
	$(BIN)/python tools/bench_tui.py $(BENCH_TUI_ARGS)

wheel: $(BIN)/python  ## dist/phantora_sim-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps -w dist .

clean:  ## build products (not .venv, not runs)
	rm -rf build dist
