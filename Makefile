# The commands of this repository; `make help` lists them. CMake does the building.

BUILD    ?= build
JOBS     ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX   ?= /usr/local
CMAKE_FLAGS ?=
# Runs only some tests: make test TESTS='unit|install'
TESTS    ?=
# Tests at a time: enough for two cores, because some tests wait for files and processes. Most use all cores themselves.
TEST_JOBS ?= 3
CTEST     = ctest --output-on-failure -j$(TEST_JOBS) $(if $(TESTS),-R '$(TESTS)')

.DEFAULT_GOAL := build
.PHONY: help setup setup-test setup-cuda configure build demo test test-all test-rest test-full test-asan test-clang \
        test-tsan fuzz bench docs pictures format install wheel clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
	    awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

setup: ## install missing build tools (apt-get)
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

setup-cuda: ## fetch headers of cuBLASLt and cuDNN, and NVRTC, which CUDA's folder lacks (pip, no root)
	@tools/setup.sh cuda

# Every build below calls configure_in(folder, flags) and compile_in(folder).
configure_in = cmake -S . -B $(1) -G Ninja -DGRADUS_CUDA_OPTIMIZE=ON $(2) $(CMAKE_FLAGS)
# Without a GPU, tests only compile CUDA kernels; the optimizer would take most of the time.
unoptimized  = $(if $(wildcard /dev/nvidiactl),,-DGRADUS_CUDA_OPTIMIZE=OFF)
compile_in   = cmake --build $(1) -j $(JOBS)

build: setup ## the library, the tests and the examples, in build/
	@$(call configure_in,$(BUILD))
	@$(call compile_in,$(BUILD))

demo: setup ## train a net that reads digits, and print some of its answers
	@$(call configure_in,$(BUILD))
	@$(call compile_in,$(BUILD)) --target gradus_tool
	@$(BUILD)/bin/gradus demo --dir $(BUILD)/demo

# Two labels of tests: long ones, and suites that run a sample of their cases, of which the quick form takes fewer
# (tests/CMakeLists.txt).
quick_tests_in = GRADUS_TEST_QUICK=1 tools/run_tests.sh $(1) $(CTEST) -LE '^long$$'
all_tests_in   = tools/run_tests.sh $(1) $(CTEST)

test: setup-test ## build everything and run the tests in a quick form
	@$(call configure_in,$(BUILD),$(unoptimized))
	@$(call compile_in,$(BUILD))
	@$(call quick_tests_in,$(BUILD))

test-all: setup-test ## all tests
	@$(call configure_in,$(BUILD),$(unoptimized))
	@$(call compile_in,$(BUILD))
	@$(call all_tests_in,$(BUILD))

test-rest: setup-test ## what test-all has beyond test
	@$(call configure_in,$(BUILD),$(unoptimized))
	@$(call compile_in,$(BUILD))
	@$(call all_tests_in,$(BUILD)) -L '^(long|sampled)$$'

test-full: setup-test ## all tests with every case, not a sample of them
	@$(call configure_in,$(BUILD),$(unoptimized))
	@$(call compile_in,$(BUILD))
	@GRADUS_TEST_FULL=1 $(call all_tests_in,$(BUILD))

# detect_stack_use_after_return is off: gcc does not align its copies of stack frames for AVX-512
# vectors, so that a correct program would crash.
test-asan: setup-test ## the tests of test, or with FORM=all all, under AddressSanitizer (leaks too) and UBSan, in build-asan/
	@$(call configure_in,$(BUILD)-asan,-DGRADUS_SANITIZE=address,undefined)
	@$(call compile_in,$(BUILD)-asan)
	@ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1:$(ASAN_OPTIONS) \
	    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(if $(filter all,$(FORM)),$(call all_tests_in,$(BUILD)-asan),$(call quick_tests_in,$(BUILD)-asan))

test-clang: setup-test ## the unit tests of test, built with clang, in build-clang/
	@$(call configure_in,$(BUILD)-clang,-DCMAKE_C_COMPILER=clang -DGRADUS_EXAMPLES=OFF -DGRADUS_BENCH=OFF)
	@$(call compile_in,$(BUILD)-clang) --target unit_tests
	@GRADUS_TEST_QUICK=1 tools/run_tests.sh $(BUILD)-clang ctest --output-on-failure -j$(TEST_JOBS) -LE '^long$$' \
	    -R '$(if $(TESTS),$(TESTS),^unit)'

test-tsan: setup-test ## the tests under ThreadSanitizer, in build-tsan/
	@$(call configure_in,$(BUILD)-tsan,-DGRADUS_SANITIZE=thread)
	@$(call compile_in,$(BUILD)-tsan)
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1 \
	    tools/run_tests.sh $(BUILD)-tsan $(CTEST)

# The time for each target: make fuzz SECONDS_EACH=600
SECONDS_EACH ?= 60
fuzz: setup ## run the fuzz targets of tests/fuzz with clang's libFuzzer, a minute each, in build-fuzz/
	@$(call configure_in,$(BUILD)-fuzz,-DGRADUS_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++)
	@$(call compile_in,$(BUILD)-fuzz) --target fuzz_targets test_onnx_control
	@tools/fuzz.sh $(BUILD)-fuzz $(SECONDS_EACH)

bench: setup ## measure the speed of ops
	@$(call configure_in,$(BUILD))
	@$(call compile_in,$(BUILD)) --target bench
	@$(BUILD)/bench/bench

# A build folder keeps its settings, so that the next build compiles no kernel again.
docs: setup ## write the pages of docs/reference, and the counts on other pages, from the records
	@[ -f $(BUILD)/build.ninja ] || $(call configure_in,$(BUILD))
	@$(call compile_in,$(BUILD)) --target generate
	@cp $(BUILD)/gen/*.md docs/reference/
	@cmake -DSOURCE=. -DGEN=$(BUILD)/gen -P cmake/counts.cmake
	@echo "docs/ and README.md are up to date"

# The lines are the epochs, the second row of digits and the result. The cache is one that the library creates, because a
# warning about another one would move the lines.
pictures: setup ## draw the pictures of README.md: the demo, and the chart of bench/figures.json (needs Python)
	@$(call configure_in,$(BUILD))
	@$(call compile_in,$(BUILD)) --target gradus_tool
	@GRADUS_CACHE=$(abspath $(BUILD))/kernels tools/draw_terminal.py --out docs/images/demo.svg --columns 97 --lines 1-8,23,38-49,64 --typed "gradus demo" \
	    --title "gradus demo in a terminal" \
	    --about "Five epochs of training, four digits drawn with characters, and the share of unseen digits that are right." \
	    -- $(BUILD)/bin/gradus demo --dir $(BUILD)/demo
	@bench/draw_speed.py

format: setup-test ## run clang-format over all sources
	@tools/check_format.sh --fix

install: setup ## install into PREFIX (default /usr/local)
	@$(call configure_in,$(BUILD),-DCMAKE_INSTALL_PREFIX=$(PREFIX))
	@$(call compile_in,$(BUILD))
	@cmake --install $(BUILD) --prefix $(PREFIX)

# CMAKE_BUILD_PARALLEL_LEVEL is what scikit-build-core reads. A second wheel compiles only what has changed if pip finds
# the same tools: WHEEL_FLAGS=--no-build-isolation uses the installed scikit-build-core.
WHEEL_FLAGS ?=
wheel: setup ## the Python package as a wheel, in dist/
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) python3 -m pip wheel . --no-deps --wheel-dir dist $(WHEEL_FLAGS)

clean: ## remove the build folders
	rm -rf $(BUILD) $(BUILD)-wheel dist $(BUILD)-asan $(BUILD)-clang $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-gpu
