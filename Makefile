# Everything for who works on atoll; `make` alone says what there is. The demonstration and the tests need no make to begin
# with: ./demo and ./test, which the targets of these names call. scripts/setup installs what is missing on Debian.
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
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name what; do printf '  make %-17s %s\n' "$$name" "$$what"; done

setup: ## Install what is missing (apt; as root or with sudo)
	@scripts/setup

build: setup programs ## Build everything, the workloads too
	$(CARGO) build --release

programs: setup ## Build the workloads to target/programs
	@$(MAKE) --no-print-directory -C programs OUT="$(abspath $(TARGET))/programs"

test: ## Set up, build and run all tests (./test)
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" ./test

model: setup ## The channels' protocols, and the pager's page words and frames, in every order of their threads (loom)
	RUSTFLAGS="--cfg loom" $(CARGO) test --release -p atoll-transport --lib --target-dir "$(TARGET)/loom"
	RUSTFLAGS="--cfg loom" $(CARGO) test --release -p atoll-memory --lib --target-dir "$(TARGET)/loom" pager::model

demo: ## A program at half its memory: native, under Linux swap, under atoll (./demo)
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" ./demo

bench: build ## The full measurement, up to 40 minutes on a quiet machine
	$(BENCH) --csv $(TARGET)/out-of-core.csv

bench-quick: build ## The same measurement, small and short
	$(BENCH) --quick --csv $(TARGET)/out-of-core-quick.csv

bench-nodes: build ## Programs on one node and on several, single steps, predictions: half an hour on a quiet machine
	$(NODES) --csv $(TARGET)/nodes.csv

bench-nodes-quick: build ## The same, small and short
	$(NODES) --quick --csv $(TARGET)/nodes-quick.csv

stress: build ## All programs at random settings against checksums, for TIME seconds (default 60)
	$(CARGO) run --release -p atoll-e2e --bin stress -- --seconds $(TIME)

soak: build ## Random programs on several nodes against what they print with one thread, for TIME seconds
	$(CARGO) run --release -p atoll-e2e --bin soak -- --seconds $(TIME)

soak-faults: build ## The same, with messages between nodes late, refused and sent twice
	$(CARGO) run --release -p atoll-e2e --bin soak -- --faults --seconds $(TIME)

stress-nodes: build ## All programs on several nodes in all ways, and nodes killed at many moments; many minutes
	$(CARGO) test -p atoll-e2e --test nodes --test node_regions -- --ignored --nocapture

stress-samplers: build ## Each sampler's hottest variables against every access, several programs; minutes
	$(CARGO) test -p atoll-e2e --test samplers -- --ignored --nocapture

live: build ## The simulator beside the live system: counts of four programs, several minutes
	$(CARGO) test -p atoll-e2e --test live -- --ignored --nocapture

bench-trace: build ## How long capturing traces takes, several minutes
	$(CARGO) run --release -p atoll-e2e --bin capture

bench-report: setup ## How long a large profile takes to read and to print
	$(CARGO) test --release -p atoll-report --test large -- --ignored --nocapture

lint: setup ## Clippy, warnings are errors
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt-check: setup ## Is everything formatted?
	$(CARGO) fmt --all -- --check

docs: setup ## The code's documentation, warnings are errors
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps

install: build ## Install to PREFIX (default /usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/atoll"
	install -m 755 $(TARGET)/release/atoll "$(DESTDIR)$(PREFIX)/bin/atoll"
	for library in openmp hooks profile qemu_plugin; do install -m 644 $(TARGET)/release/libatoll_$$library.so "$(DESTDIR)$(PREFIX)/lib/atoll/" || exit 1; done

deb: build ## A Debian package, for this Debian and newer ones
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/package deb

dist: ## A tarball that runs where it is unpacked, with glibc 2.34 or newer (2.28 for all but atoll run)
	@scripts/setup --deb
	@CARGO="$(CARGO)" CARGO_TARGET_DIR="$(TARGET)" scripts/package tar

clean: ## Remove everything that was built
	rm -rf "$(TARGET)"

.PHONY: help setup build programs test model demo bench bench-quick bench-nodes bench-nodes-quick bench-trace bench-report stress soak soak-faults stress-nodes stress-samplers live lint fmt-check docs install deb dist clean
