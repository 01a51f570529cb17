# Tasks for people who work on atoll; `make` alone lists them. The demonstration and the tests do not need make: ./demo and
# ./test, which the targets of these names call. scripts/setup installs what is missing on Debian.
SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

PREFIX ?= /usr/local
TIME ?= 60
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BENCH := $(TARGET)/release/out-of-core
NODES := $(TARGET)/release/nodes

.DEFAULT_GOAL := help

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name what; do printf '  make %-18s %s\n' "$$name" "$$what"; done

setup: ## Install what is missing (apt; as root or with sudo)
	@scripts/setup

build: setup programs ## Build everything, the workloads too
	$(CARGO) build --release

programs: setup ## Build the workloads to target/programs
	@$(MAKE) --no-print-directory -C programs OUT="$(abspath $(TARGET))/programs"

test: ## Set up, build and run all tests (./test)
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" ./test

model: setup ## Run the channels' protocols, and the pager's page words and frames, in every order of their threads (loom)
	RUSTFLAGS="--cfg loom" $(CARGO) test --release -p atoll-transport --lib --target-dir "$(TARGET)/loom"
	RUSTFLAGS="--cfg loom" $(CARGO) test --release -p atoll-memory --lib --target-dir "$(TARGET)/loom" pager::model

demo: ## Run a program at half its memory: native, under Linux swap, under atoll (./demo)
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" ./demo

bench: build ## Measure everything on one node, up to 40 minutes on a quiet machine
	$(BENCH) --csv $(TARGET)/out-of-core.csv

bench-quick: build ## Measure the same with small classes, in a short time
	$(BENCH) --quick --csv $(TARGET)/out-of-core-quick.csv

bench-defaults: build ## Measure atoll with no flag but --near on twelve programs, beside Linux swap: 40 minutes on a quiet machine
	$(BENCH) --no-flags --csv $(TARGET)/out-of-core-defaults.csv

bench-nodes: build ## Measure programs on one node and on several, single steps, predictions: three quarters of an hour on a quiet machine
	$(NODES) --csv $(TARGET)/nodes.csv

bench-nodes-quick: build ## Measure nodes with small classes, in a short time
	$(NODES) --quick --csv $(TARGET)/nodes-quick.csv

test-arm: ## Build for aarch64, and run its tests under QEMU's user mode and in an emulated machine: 40 minutes, needs rustup
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/test-arm

stress: build ## Run all programs at random settings and compare checksums, for TIME seconds (default 60)
	$(CARGO) run --release -p atoll-e2e --bin stress -- --seconds $(TIME)

soak: build ## Run random programs on several nodes and compare with one thread, for TIME seconds
	$(CARGO) run --release -p atoll-e2e --bin soak -- --seconds $(TIME)

soak-faults: build ## Do the same as soak, with messages between nodes late, refused and sent twice
	$(CARGO) run --release -p atoll-e2e --bin soak -- --faults --seconds $(TIME)

stress-nodes: build ## Run all programs on several nodes with all protocols, and kill nodes at many moments; many minutes
	$(CARGO) test -p atoll-e2e --test nodes --test node_regions -- --ignored --nocapture

stress-samplers: build ## Compare each sampler's hottest variables with every access, for several programs; minutes
	$(CARGO) test -p atoll-e2e --test samplers -- --ignored --nocapture

test-compilers: build ## Run the conformance programs and workloads built by every compiler here and in other Debians: an hour, as root
	$(CARGO) build --release -p atoll-e2e --bin compilers
	CARGO_TARGET_DIR="$(abspath $(TARGET))" scripts/other-compilers

test-real-programs: build ## Run programs of Debian's and PyPI's at half of their memory and compare what they print: 20 minutes, as root
	$(CARGO) build --release -p atoll-e2e --bin real_programs
	CARGO_TARGET_DIR="$(abspath $(TARGET))" scripts/real-programs

bench-compilers: build ## Measure programs by each compiler here with all data near, beside native: some minutes
	$(CARGO) run --release -p atoll-e2e --bin compilers -- --time

live: build ## Compare the simulator with the live system: counts of four programs, several minutes
	$(CARGO) test -p atoll-e2e --test live -- --ignored --nocapture

bench-trace: build ## Measure how long capturing traces takes, several minutes
	$(CARGO) run --release -p atoll-e2e --bin capture

bench-report: setup ## Measure how long a large profile takes to read and to print
	$(CARGO) test --release -p atoll-report --test large -- --ignored --nocapture

lint: setup ## Run Clippy; warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt-check: setup ## Check that everything is formatted
	$(CARGO) fmt --all -- --check

docs: setup ## Build the code's documentation; warnings are errors
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps

install: build ## Install to PREFIX (default /usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/atoll"
	install -m 755 $(TARGET)/release/atoll "$(DESTDIR)$(PREFIX)/bin/atoll"
	for library in openmp hooks profile qemu_plugin; do install -m 644 $(TARGET)/release/libatoll_$$library.so "$(DESTDIR)$(PREFIX)/lib/atoll/" || exit 1; done

deb: build ## Make a Debian package, for this Debian and newer ones
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/package deb

deb-arm64: ## Make a Debian package for aarch64 on an x86-64 machine; needs rustup
	@scripts/setup --arm
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/package deb-arm64

dist: ## Make a tarball that runs where it is unpacked, with glibc 2.34 or newer (2.28 for all but atoll run)
	@scripts/setup --deb
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/package tar

clean: ## Remove everything that was built
	rm -rf "$(TARGET)"

.PHONY: help setup build programs test test-arm model demo bench bench-quick bench-defaults bench-nodes bench-nodes-quick bench-trace bench-report stress soak soak-faults stress-nodes stress-samplers live lint fmt-check docs install deb deb-arm64 dist clean
