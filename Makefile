# SPDX-License-Identifier: MIT
#
# The front door: each target gets the packages it needs, configures Meson where that is due, and
# builds. Meson and Ninja do the work; `meson setup` and `meson test` work without this file too.
# Variables: BUILD (directory), prefix, libdir, DESTDIR, CC, CI=true (warnings are errors, unexpected
# skips fail), DEPS=: (install nothing), EFFORT (of make report: length of each run).

BUILD ?= build
prefix ?= /usr/local
DEPS ?= scripts/deps
NINJA ?= ninja

options = --prefix=$(prefix) $(if $(libdir),--libdir=$(libdir)) \
	-Dwerror=$(if $(filter true,$(CI)),true,false)
# Optimized less: half the time to compile, and the sanitizers see as much.
asan = -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1
tsan = -Db_sanitize=thread -Db_lundef=false -Doptimization=1

# $(call configure,DIR,OPTIONS[,ENV]): set up DIR, or change its options if it was set up with others.
configure = @echo '$(strip $(2))' | cmp -s - $(1)/made-with || { \
	$(3) meson setup $$(test -f $(1)/build.ninja && echo --reconfigure) $(1) $(2) && \
	echo '$(strip $(2))' >$(1)/made-with; }

all: ## build the library, the command and the tests (the default)
	@$(DEPS) build
	$(call configure,$(BUILD),$(options))
	@$(NINJA) -C $(BUILD)

demo: all ## build, then show Gannet working over shared memory
	@$(BUILD)/gannet demo

check: test-deps all sanitized ## every test, also under sanitizers and in guests
	@tests/run --effort 1 --exclude full $(BUILD) $(BUILD)-asan $(BUILD)-tsan

check-fast: test-deps all ## a minute: no guests, no sanitizers, nothing slow
	@tests/run --effort 1 --exclude vm --exclude slow --exclude full $(BUILD)

check-full: test-deps all sanitized ## every test at full counts, clang, and a browser
	@$(DEPS) full
	$(call configure,$(BUILD)-clang,-Dwerror=true,CC=clang)
	@$(NINJA) -C $(BUILD)-clang
	@tests/run --effort 10 $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-clang

abi: all ## write src/gannet.map and abi/ anew, after a change of the headers that was meant
	@$(DEPS) test
	@scripts/abi

report: all ## every figure of the papers, simulated anew, as one page
	@$(DEPS) report
	@evaluation/gannet-papers report --gannet $(BUILD)/gannet --effort $(or $(EFFORT),1) \
		-o $(BUILD)/report.html

bench-peers: all ## Gannet and UCX, nbdkit, memcached and Redis, each from one run
	@$(DEPS) bench
	@scripts/bench-peers $(BUILD)
	@scripts/bench-nbd $(BUILD)
	@scripts/bench-stores $(BUILD)

install: all ## install under DESTDIR/prefix
	@meson install --no-rebuild -C $(BUILD) $(if $(DESTDIR),--destdir $(abspath $(DESTDIR)))

clean: ## remove the build directories
	@for d in $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-clang; do \
		if test -d $$d/meson-private; then rm -rf $$d; fi; done

format: ## clang-format every source file
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 14

test-deps:
	@$(DEPS) build test

sanitized: test-deps
	$(call configure,$(BUILD)-asan,$(asan))
	$(call configure,$(BUILD)-tsan,$(tsan))
	@$(NINJA) -C $(BUILD)-asan meson-test-prereq
	@$(NINJA) -C $(BUILD)-tsan meson-test-prereq

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.PHONY: all abi demo check check-fast check-full report bench-peers install clean format help test-deps sanitized
