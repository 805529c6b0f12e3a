# SPDX-License-Identifier: GPL-2.0-only
# `make help` lists what there is. Everything downloaded or built is under ~/.cache/scx_magpie.

SHELL := /bin/bash
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/scx_magpie
export CARGO_TARGET_DIR ?= $(CACHE)/target
ifneq ($(words $(CARGO_TARGET_DIR)),1)
$(error libbpf cannot be built below "$(CARGO_TARGET_DIR)", for the space in it: set CARGO_TARGET_DIR to another folder)
endif

C_SOURCES := $(wildcard src/bpf/*.[ch] src/bpf/*/*.h sim/native/*.[ch] sim/native/scx/*.h sim/conformance/*.c)
# Where words of tools/words are not used.
PROSE := $(wildcard *.md) docs src tests vm bench/README.md sim/README.md
# Where spelling is not looked at.
NOT_SPELLED := ./.git,*.svg,*.json*,*.snap,./target,./bench-results,./sim-failures,__pycache__
# The environment for a build: which clang.
ENV = set -e; env="$$(tools/setup --env)"; eval "$$env";
ENV_ARM64 = set -e; env="$$(tools/setup --env-arm64)"; eval "$$env";

# The simulator; SIM_SANITIZED is the one whose C code is watched for what C leaves undefined.
SIM = cargo run --quiet --release --locked -p magpie-sim --bin magpie-sim
SIM_SANITIZED = $(SIM) --features sanitize

.PHONY: help demo test run build build-arm64 check advisories msrv unit litmus litmus-cached sim-test soak soak-vm experiments growth pictures pictures-record bench bench-host vm-test test-matrix test-longterm verifier-stats deb rpm source test-packages image vm-service vm-loader vm-kube fmt setup clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 22

demo: setup build build-demo ## in a VM: from idle to twice the load, and containers; then EEVDF and scx_magpie compared
	@tools/demo

test: setup-test check unit litmus-cached sim-test vm-test ## all tests: style, lints, unit tests, simulations, and the VM tests on the default kernel

run: build ## attach on this machine, which must run a sched_ext kernel; Ctrl-C detaches
	@sudo="$$([ "$$(id -u)" = 0 ] || echo sudo)"; $$sudo "$$CARGO_TARGET_DIR/release/scx_magpie" --stats 1

build: setup-build ## the scheduler, in $CARGO_TARGET_DIR/release
	@$(ENV) cargo build --release --locked

build-arm64: ## the same and what tests take into the guest, for arm64, in aarch64-unknown-linux-gnu/release there
	@tools/setup arm64
	@$(ENV_ARM64) cargo build --release --locked --target aarch64-unknown-linux-gnu -p scx_magpie -p magpie-bench \
		--bin scx_magpie --bin magpie-capacity --bin magpie-wakeup --bin magpie-numa --bin magpie-conservation

check: setup-build ## formatting, lints, spelling, licences of crates, the Nix expressions
	@$(ENV) cargo fmt --all --check
	@codespell --ignore-words-list crate,ratatui --skip '$(NOT_SPELLED)' .
	@codespell --dictionary tools/words --skip '$(NOT_SPELLED),experiments' $(PROSE)
	@$(ENV) "$$CLANG_FORMAT" --dry-run -Werror $(C_SOURCES)
	@$(ENV) cargo clippy --release --locked --workspace --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked --log-level error check bans licenses sources; \
		else echo "left out, for it is not here: cargo deny (cargo install --locked cargo-deny)"; fi
	@tests/nix/run

advisories: ## are there advisories against crates that are used? Needs cargo-deny, and GitHub
	@cargo deny --locked check advisories

MSRV = $$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv: setup-build ## does the oldest Rust that Cargo.toml names compile it? Needs rustup
	@rustup --quiet toolchain install --profile minimal "$(MSRV)"
	@$(ENV) CARGO_TARGET_DIR="$$CARGO_TARGET_DIR/msrv" cargo "+$(MSRV)" check --quiet --locked --workspace

unit: setup-build ## native unit tests, the simulator's (sim/) included
	@$(ENV) cargo test --release --locked --workspace

litmus: ## the handshakes of docs/concurrency.md under the kernel's memory model, with Debian's herd7
	@tests/litmus/run

litmus-cached:
	@tests/litmus/run --cached

sim-test: setup-build ## 200 scenarios by chance in the simulator, its C code under sanitizers
	@$(ENV) $(SIM_SANITIZED) -- fuzz --seeds 0..200

soak: SEEDS ?= 0..5000
soak: setup-build ## SEEDS=FROM..TO (0..5000) scenarios by chance, with and without sanitizers: some 10 minutes
	@$(ENV) failed=; \
	$(SIM_SANITIZED) -- fuzz --seeds $(SEEDS) || failed=1; \
	$(SIM) -- fuzz --seeds $(SEEDS) || failed=1; \
	[ -z "$$failed" ]

experiments: setup-build ## in the simulator, each feature off against on, and what its author claims for it: three minutes
	@$(ENV) $(SIM) -- experiments

growth: setup-build ## how the cost of a wakeup and a dispatch grows with the CPUs of an LLC
	@$(ENV) $(SIM) -- growth

pictures: setup-build ## draw docs/pictures anew, of what is recorded there and the table of docs/benchmarks.md
	@$(ENV) cargo run --quiet --release --locked -p magpie-pictures

pictures-record: setup build build-demo ## measure what pictures are drawn from, in VMs; WHAT=top or shares (default: all)
	@tools/pictures/record $(WHAT)
	@$(MAKE) --no-print-directory pictures

bench: ## side by side in a VM: EEVDF, scx_magpie, and what a user would pick instead (bench/README.md); hours under emulation
	@tools/setup bench
	@$(MAKE) --no-print-directory build build-carried
	@$(ENV) bench/run $(BENCH_FLAGS)

bench-host: ## the same on this machine, which must run a sched_ext kernel
	@tools/setup bench
	@$(MAKE) --no-print-directory build build-carried
	@$(ENV) bench/run --host $(BENCH_FLAGS)

vm-test: setup build build-carried build-arm64 ## the tests on real kernels: most on the default one, some on each
	@tests/vm/run

test-matrix: setup msrv litmus build build-carried build-arm64 vm-service test-packages vm-loader vm-kube ## the VM tests on each kernel of the matrix, long ones too, the service, packages, scx_loader, pods; hours
	@MAGPIE_RUNS=5 MAGPIE_LOOPS=300 tests/vm/run --matrix

LONGTERM_TESTS = load affinity affinity_storm cgroup_churn cgroup_max cgroup_weight eject fairness handoff hotplug_new interrupt \
	light numa pinned preempt record rt scan smt spread start starve stats steal util yield
test-longterm: setup build build-carried ## VM tests on Linux 6.12, and on 7.3 with core scheduling, built once and kept in the cache
	@tools/setup longterm
	@echo "not on 6.12: hotplug, at which that kernel warns (docs/experiments/kernel-facts.md)"
	@tests/vm/run --kernel "$$(vm/longterm.py)" $(LONGTERM_TESTS)
	@tests/vm/run --kernel "$$(vm/longterm.py 7.3 CONFIG_SCHED_CORE=y)" built/core_sched

soak-vm: HOURS ?= 1
soak-vm: setup build ## HOURS=H (1) under a load of all kinds in a VM, KERNEL=SERIES: does the loader grow, does anything go wrong?
	@seconds=$$(awk 'BEGIN { printf "%d", $(HOURS) * 3600 }'); \
	vm/run $(if $(KERNEL),--kernel $(KERNEL)) --cpus 8 --llcs 2 --nodes 2 --append hpet=disable \
		--timeout $$((seconds * 2 + 600)) --carry tests/vm/lib.sh:/root/lib.sh --carry tests/vm/soak/mixed.sh:/root/mixed.sh \
		-- sh /root/mixed.sh $$seconds

verifier-stats: setup build ## what each BPF program costs the verifier, on each kernel of the matrix
	@set -e; for series in $$(vm/run --matrix); do \
		vm/run --kernel "$$series" --cpus 2 --llcs 1 --nodes 1 -- sh -c 'uname -r; scx_magpie verifier-stats'; \
	done

# What packages have besides the command: it writes its own manual pages and completions.
DIST = $(CARGO_TARGET_DIR)/release/dist

.PHONY: dist
dist: build
	@rm -rf "$(DIST)"; "$(CARGO_TARGET_DIR)/release/scx_magpie" man "$(DIST)/man" && gzip -9n "$(DIST)"/man/*
	@for shell in bash fish zsh; do \
		"$(CARGO_TARGET_DIR)/release/scx_magpie" completions $$shell >"$(DIST)/scx_magpie.$$shell" || exit 1; \
	done

deb: dist ## a Debian package, in $CARGO_TARGET_DIR/debian; MAINTAINER='Name <address>', by default the last commit's author
	@tools/package deb "$(DIST)"

# dpkg and what it and the package's scripts run, this machine's.
DPKG = $(foreach name,dpkg dpkg-deb dpkg-split tar perl deb-systemd-helper deb-systemd-invoke,--carry /usr/bin/$(name):/usr/bin/$(name)) \
	--carry /sbin/ldconfig:/sbin/ldconfig --carry "$$(perl -e 'print grep { /perl-base/ } @INC'):/usr/lib/perl-base"
vm-service: setup deb ## the Debian package under systemd in a VM: install, starts, restarts, refusals, watchdog, metrics, upgrade, purge
	@rm -rf "$(DIST)/root"; dpkg-deb -R "$$(ls -t "$(CARGO_TARGET_DIR)"/debian/*.deb | head -n 1)" "$(DIST)/root"
	@dpkg-deb --root-owner-group -b "$(DIST)/root" "$(DIST)/scx-magpie.deb" >/dev/null
	@sed -i 's/^Version: /&1:/' "$(DIST)/root/DEBIAN/control"
	@dpkg-deb --root-owner-group -b "$(DIST)/root" "$(DIST)/newer.deb" >/dev/null
	@vm/run --systemd --cpus 4 --llcs 2 --nodes 2 --timeout 900 --scheduler "$(DIST)/root/usr/bin/scx_magpie" $(DPKG) \
		$(foreach name,scx-magpie newer,--carry "$(DIST)/$(name).deb:/root/$(name).deb") --carry tests/vm/lib.sh:/root/lib.sh \
		$(foreach name,unit service,--carry tests/vm/service/$(name).sh:/root/$(name).sh) -- env PERL5LIB=/usr/lib/perl-base sh /root/service.sh

# Named by its version in dist/kubernetes.
IMAGE = $(CARGO_TARGET_DIR)/image/scx_magpie.tar
image: build ## an OCI image with the scheduler and its libraries, in $CARGO_TARGET_DIR/image
	@tools/setup image
	@tools/image "$(CARGO_TARGET_DIR)/release/scx_magpie" "$(IMAGE)"

vm-kube: image ## the image and dist/kubernetes with podman in a VM: attach, metrics, limits, reload, update, crash loop, refusals
	@tools/setup kube
	@kubectl kustomize dist/kubernetes >"$(CARGO_TARGET_DIR)/image/kube.yaml"
	@tools/check-manifests "$(CARGO_TARGET_DIR)/image/kube.yaml" tests/vm/kube/load.yaml
	@vm/run --podman --cpus 4 --llcs 2 --nodes 2 --mem 3G --timeout 1800 --carry "$(IMAGE):/root/scx_magpie.tar" \
		--carry "$(CARGO_TARGET_DIR)/image/kube.yaml:/root/kube.yaml" --carry tests/vm/lib.sh:/root/lib.sh \
		$(foreach name,kube.sh load.yaml,--carry tests/vm/kube/$(name):/root/$(name)) -- sh /root/kube.sh

vm-loader: setup build ## scx_loader with dist/scx_loader.patch in a VM: scxctl starts, switches and stops scx_magpie; VERSION= another one
	@tests/vm/service/loader $(VERSION)

rpm: dist ## an RPM package, in $CARGO_TARGET_DIR/generate-rpm
	@tools/package rpm "$(DIST)"

source: ## an archive with all crates, which builds without a network: for distributions, in $CARGO_TARGET_DIR/source
	@tools/package source "$(CARGO_TARGET_DIR)/source"

test-packages: setup deb rpm source ## packages linted, built from the source without a network, installed and removed; minutes
	@tools/setup packages
	@tests/packages/run

fmt: setup-build ## format Rust and C
	@$(ENV) cargo fmt --all; "$$CLANG_FORMAT" -i $(C_SOURCES)

setup: ## install what building and testing need
	@tools/setup all

.PHONY: setup-build setup-test build-carried build-demo
setup-build:
	@tools/setup build
setup-test:
	@tools/setup test

# What tests take into the guest (their heads say so), and what tells of benchmarks.
CARRIED := $(filter magpie-%,$(shell sed -n 's/^# carry: //p' tests/vm/*.sh tests/vm/*/*.sh)) magpie-table magpie-pictures
build-carried: setup-build
	@$(ENV) cargo build --release --locked -p magpie-sim -p magpie-bench -p magpie-pictures $(addprefix --bin ,$(sort $(CARRIED)))

build-demo: setup-build
	@$(ENV) cargo build --release --locked -p magpie-bench --bin magpie-wakeup --bin magpie-longrun

clean: ## forget what was built and downloaded
	rm -rf "$(CACHE)"
