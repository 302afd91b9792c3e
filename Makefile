# make demo      set up, build, and link one OpenMP program in three ways
# make check     before each commit: format, lints, unit tests, hygiene, and a few tests of the suite; some two minutes
# make test      what needs LLVM 22 alone          make test-releases   what needs LLVM 14, 15, 16 and 19, or NVIDIA's tools, too
# make test-cluster  Slurm with two nodes and an SSH server on this machine, as root: device links on other machines; some four minutes
# make test-long the same with the longest tests in full (hundreds of processes and kills), then test-book, test-files and test-reproducible   make test-no-llvm   an offld without LLVM
# make test-llvm19  an offld with LLVM 19 inside: registration code, and links with it     make test-gpu  programs on the GPUs of this machine (docs/gpu-tests.md)
# make test-reproducible  two builds in two folders give the same bytes; FULL=1: the release build     make audit  licences, crates, workflows     make lint-package  lintian
# make test-files real libraries and wheels with device code, taken apart and pruned: 1 GB to download, 10 GB of disk meanwhile
# make packages  .deb, .rpm, archive, wheel, SBOM into target/packages/out (packaging/README.md)     make test-packages   them, in bare roots of Debian 12 and 13
# make test-cinstall  liboffld installed by cargo-c (docs/c-api.md)
# make book      README and docs/ as a book with a search, into target/book; make test-book looks for something in it, in Chromium
# make install   PREFIX=/usr/local DESTDIR=         make uninstall   the same settings        make lint clean
# make bench     BENCH=--check: fail beyond the bounds   make bench-large    memory, with code objects of 2 GiB
# make fuzz-links LINKS=600 SEED=1: random programs in random arrangements, by offld and by LLVM's wrapper
# make fuzz      FUZZ_SECONDS=1200 for each target, or TARGET=name: one of them
#
# Needs Rust 1.90 or later (https://rustup.rs). Everything else brings what it needs (Debian packages) by itself, once. REQUIRE_TOOLS=1: a missing tool is an error, not a skip.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# 22, or 19 where that alone is here.
LLVM := $(or $(LLVM),$(shell scripts/llvm.sh))
FEATURES := $(if $(filter-out 22,$(LLVM)),--no-default-features --features llvm$(LLVM) --features remote-cache)
BIN := $(or $(CARGO_TARGET_DIR),target)/release/offld
LINKS := $(CURDIR)/target/demo/links
# The Rust that Cargo.toml asks for (rust-version).
RUST := 1.90
# An offld without the cache that machines share.
WITHOUT_REMOTE := --no-default-features --features llvm
SETUP := target/setup.stamp
SETUP_DEMO := target/setup-demo$(patsubst %,-%,$(filter-out 22,$(LLVM))).stamp
SETUP_RELEASES := target/setup-releases.stamp
SETUP_CUDA := target/setup-cuda.stamp
SETUP_CLUSTER := target/setup-cluster.stamp
SETUP_CI := target/setup-ci.stamp
SETUP_PACKAGES := target/setup-packages.stamp

.PHONY: all build setup setup-releases setup-cuda setup-cluster demo check test test-cluster test-long test-files test-no-llvm test-releases test-llvm19 test-gpu gpu-bundle test-reproducible test-cinstall audit lint-package lint bench bench-large book test-book fuzz fuzz-links packages test-packages install uninstall clean

all: build

# A rustup installed a minute ago is not in this shell's PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Cargo knows what is out of date; make does not try to.
build:
	@command -v $(CARGO) >/dev/null || { echo 'no cargo here: install Rust $(RUST) or later from https://rustup.rs' >&2; exit 1; }
	@scripts/rust.sh $(RUST) $(CARGO)
	$(CARGO) build --release $(FEATURES)

# The scripts write the stamp themselves, and only when nothing is missing.
setup: $(SETUP)
$(SETUP): scripts/setup.sh scripts/packages.sh
	@scripts/setup.sh $@

$(SETUP_DEMO): scripts/setup.sh scripts/packages.sh
	@LLVM=$(LLVM) scripts/setup.sh --demo $@

setup-releases: $(SETUP_RELEASES)
$(SETUP_RELEASES): scripts/setup-releases.sh scripts/packages.sh | $(SETUP)
	@scripts/setup-releases.sh $@

setup-cuda: $(SETUP_CUDA)
$(SETUP_CUDA): scripts/setup-cuda.sh scripts/packages.sh
	@scripts/setup-cuda.sh $@

setup-cluster: $(SETUP_CLUSTER)
$(SETUP_CLUSTER): scripts/setup-cluster.sh scripts/packages.sh
	@scripts/setup-cluster.sh $@

$(SETUP_CI): scripts/setup-ci.sh scripts/ci-tools.txt scripts/packages.sh
	@scripts/setup-ci.sh $@

$(SETUP_PACKAGES): packaging/setup.sh scripts/packages.sh
	@packaging/setup.sh $@

# What building needs and what the demo compiles with, and nothing of the tests.
demo: $(SETUP_DEMO)
	@$(MAKE) --no-print-directory build
	$(BIN) links $(LINKS)
	$(MAKE) --no-print-directory -C examples/zaxpy run LINKS=$(LINKS) LLVM=$(LLVM)

# What a contributor runs before each commit. The lints and the unit tests are those of an offld without LLVM, which is built sooner;
# the list of the suite's tests is in tests/suite/effort.rs. `make lint test` looks at the rest.
check: $(SETUP)
	$(CARGO) fmt --check
	$(CARGO) clippy --no-default-features --all-targets -- -D warnings
	$(CARGO) test --no-default-features --lib --test hygiene --test docs
	OFFLD_TEST_CHECK=1 $(CARGO) test $(WITHOUT_REMOTE) --test suite

# Only tests/suite.rs knows these names; it is the harness for everything that is not a unit test. Last an offld that holds no LLVM.
# Other releases and CUDA's tools are hidden: a test that needs them and is not named releases:: fails here as on a fresh machine.
test: $(SETUP)
	OFFLD_RELEASES=/none OFFLD_CUDA=/none $(CARGO) test --no-fail-fast -- --skip releases:: --skip cluster:: --skip book::
	@$(MAKE) --no-print-directory test-no-llvm

# The same with the longest tests in full: what `make test` cuts short it tells at the end.
test-long: $(SETUP)
	@OFFLD_TEST_LONG=1 OFFLD_TEST_SIZES=1 OFFLD_TEST_PARTS=1 $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-book
	@$(MAKE) --no-print-directory test-files
	@$(MAKE) --no-print-directory test-reproducible

# The files are large, and go when the tests are done.
FILES := $(CURDIR)/target/files
test-files: $(SETUP) $(SETUP_CUDA)
	scripts/setup-files.sh $(FILES)
	OFFLD_TEST_FILES=$(FILES) $(CARGO) test --no-fail-fast --test suite -- edit::real_files::; ended=$$?; rm -rf $(FILES); exit $$ended

# mdbook is compiled once, which takes three minutes: too long for `make test`, which checks the links of the documents without it (tests/docs.rs).
book:
	@CARGO=$(CARGO) scripts/book.sh
test-book: $(SETUP) book
	$(CARGO) test --test suite -- book::

test-no-llvm: $(SETUP)
	$(CARGO) test --no-default-features --features capi --no-fail-fast --lib
	$(CARGO) test --no-default-features --test suite -- without_llvm::

test-releases: $(SETUP_RELEASES) $(SETUP_CUDA)
	$(CARGO) test --test suite -- releases::

# LLVM 19 inside, in a folder of its own: its unit tests, and the tests of the suite that make registration code (tests/suite/effort.rs).
LLVM19 := --target-dir target/llvm19 --no-default-features --features llvm19,remote-cache
test-llvm19: $(SETUP) $(SETUP_RELEASES) $(SETUP_CUDA)
	$(CARGO) test $(LLVM19) --bin offld-llvm
	$(CARGO) build $(LLVM19)
	OFFLD_BIN=$(CURDIR)/target/llvm19/debug/offld OFFLD_TEST_LLVM=19 $(CARGO) test --test suite

# Programs on the GPUs of this machine. Without a GPU they are built and looked at, and not run, which REQUIRE_GPU=1 makes a failure.
test-gpu: $(SETUP) $(SETUP_CUDA)
	$(CARGO) test --test suite -- gpu_device::

# The same programs in an archive, for a machine that has a GPU and none of these tools: unpack it there, and call run.sh.
GPU := target/gpu/offld-gpu
gpu-bundle: $(SETUP) $(SETUP_CUDA)
	$(if $(PROGRAMS),,$(CARGO) build --locked)
	rm -rf $(GPU) && mkdir -p $(GPU)
	OFFLD=$(abspath $(or $(PROGRAMS),$(or $(CARGO_TARGET_DIR),target)/debug))/offld tests/gpu/build.sh $(GPU)
	tar -czf $(GPU).tar.gz -C $(dir $(GPU)) $(notdir $(GPU))
	@echo 'On a machine with a GPU: tar -xzf $(notdir $(GPU)).tar.gz && $(notdir $(GPU))/run.sh    ($(GPU).tar.gz)'

# The long form builds both programs as packages have them, twice.
test-reproducible: $(SETUP)
	scripts/reproducible.sh $(if $(filter 1,$(FULL)),--full)

# liboffld as cargo-c installs it, and a program built by its .pc file. The first time cargo-c is built, a quarter of an hour.
test-cinstall: $(SETUP)
	scripts/cinstall.sh

# What needs no build: licences and sources of the crates, who has looked at them, and the workflows.
audit: $(SETUP_CI)
	scripts/audit.sh

# lintian on a quickly made .deb of programs that are built: of a debug build unless PROGRAMS= names another folder.
lint-package: $(SETUP) $(SETUP_CI)
	$(if $(PROGRAMS),,$(CARGO) build --locked)
	packaging/lint.sh $(or $(PROGRAMS),$(or $(CARGO_TARGET_DIR),target)/debug)

# One after the other: each has the cluster for itself, which tests/cluster/cluster.sh starts and ends.
test-cluster: $(SETUP) $(SETUP_CLUSTER)
	$(CARGO) test --test suite -- cluster:: --test-threads=1

lint: $(SETUP)
	$(CARGO) fmt --check
	$(CARGO) fmt --check --package offld-python
	$(CARGO) clippy --package offld-python -- -D warnings
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy $(WITHOUT_REMOTE) --all-targets -- -D warnings
	$(CARGO) clippy --no-default-features --features capi --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --no-default-features
	@scripts/msrv.sh
	@scripts/notice.sh --check
	@if command -v shellcheck >/dev/null; then shellcheck -x scripts/*.sh benches/*.sh packaging/*.sh tests/packages/*.sh tests/cluster/*.sh tests/gpu/*.sh .ci/run; \
	elif [ "$(REQUIRE_TOOLS)" = 1 ]; then echo 'lint: no shellcheck' >&2; exit 1; \
	else echo 'lint: no shellcheck, scripts not looked at' >&2; fi

# Beside LLVM's tools: docs/performance.md. BENCH='zaxpy many': these groups alone; BENCH=--write: into benches/RESULTS.md
# Rows that need NVIDIA's tools are left out where these cannot be had, and the table says so.
bench: $(SETUP) $(SETUP_CUDA)
	@$(MAKE) --no-print-directory build
	benches/compare.sh $(BENCH)

# The memory that code objects of 2 GiB take; some 10 GiB of disk.
bench-large: $(SETUP)
	@$(MAKE) --no-print-directory build
	benches/large.sh --check

# Every reader and every tool's command line is given files and lines that nobody would write: FUZZ_SECONDS each, or one TARGET.
# Needs cargo-fuzz (`cargo install cargo-fuzz`) and a nightly compiler (`rustup toolchain install nightly`). See fuzz/README.md.
FUZZ_SECONDS ?= 1200
fuzz:
	fuzz/run.sh $(FUZZ_SECONDS) $(TARGET)

# The suite has 30 with a fixed seed; each pool of objects gives six. A failure names its seed; OFFLD_LINKS_KEEP=1 leaves its folder in /tmp.
LINKS ?= 600
SEED ?= 1000
fuzz-links: $(SETUP)
	OFFLD_LINKS_COUNT=$(LINKS) OFFLD_LINKS_SEED=$(SEED) $(CARGO) test --test suite -- random_links::

# PROGRAMS=DIR: of the programs that are built there, in place of a build of its own with the list of crates inside and no folder's name.
packages: $(SETUP) $(SETUP_PACKAGES)
	packaging/make.sh $(PROGRAMS)

# Of what `make packages` has made; needs root. ROOTS=bookworm: that one alone. 1.5 GB to download, once.
test-packages: $(SETUP) $(SETUP_PACKAGES)
	tests/packages/run.sh $(ROOTS)

# The names go into a folder of their own, made for clang's -B: none of them gets in the way of LLVM's own in bin/
# What is built is not built again, because this is run as root, who often has no Rust.
NAMES := $(PREFIX)/libexec/offld
MAN := $(PREFIX)/share/man/man1
COMPLETIONS := $(PREFIX)/share
# Where the names and pages are made before they are installed.
STAGE := $(or $(CARGO_TARGET_DIR),target)/install
# What CMake, Meson and pkg-config find offld by (docs/build-systems.md).
FOR_BUILDS := $(addprefix share/,$(addprefix cmake/offld/offld,Config.cmake ConfigVersion.cmake Toolchain.cmake) meson/native/offld.ini pkgconfig/offld.pc)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
install:
	@test -x $(BIN) -a -x $(BIN)-llvm || $(MAKE) --no-print-directory build
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/offld
	install -D -m 755 $(BIN)-llvm $(DESTDIR)$(NAMES)/offld-llvm
	ln -sfn offld $(DESTDIR)$(PREFIX)/bin/ld.offld
	rm -rf $(STAGE)/names
	$(BIN) links $(STAGE)/names
	install -d $(DESTDIR)$(NAMES)
	for name in $$(ls $(STAGE)/names); do ln -sfn ../../bin/offld $(DESTDIR)$(NAMES)/$$name; done
	rm -rf $(STAGE)/man
	$(BIN) man $(STAGE)/man
	install -d $(DESTDIR)$(MAN)
	install -m 644 $(STAGE)/man/*.1 $(DESTDIR)$(MAN)
	install -d $(DESTDIR)$(COMPLETIONS)/bash-completion/completions $(DESTDIR)$(COMPLETIONS)/zsh/site-functions \
	    $(DESTDIR)$(COMPLETIONS)/fish/vendor_completions.d
	$(BIN) completions bash > $(DESTDIR)$(COMPLETIONS)/bash-completion/completions/offld
	$(BIN) completions zsh > $(DESTDIR)$(COMPLETIONS)/zsh/site-functions/_offld
	$(BIN) completions fish > $(DESTDIR)$(COMPLETIONS)/fish/vendor_completions.d/offld.fish
	for file in $(FOR_BUILDS); do mkdir -p "$$(dirname "$(DESTDIR)$(PREFIX)/$$file")" && \
	    sed 's|@VERSION@|$(VERSION)|; s|@PREFIX@|$(PREFIX)|' "$$file" > "$(DESTDIR)$(PREFIX)/$$file" && chmod 644 "$(DESTDIR)$(PREFIX)/$$file" || exit 1; done
	@echo
	@echo 'Instead of LLVM'\''s wrapper:    clang++ -fopenmp --offload-arch=... -B$(NAMES) ...'
	@echo 'As the linker of any driver:   clang++ --ld-path=$(PREFIX)/bin/ld.offld ...   (or -fuse-ld=offld, where it is in PATH)'

# Takes away what `make install` has put there with the same PREFIX and DESTDIR, and no folder that others may use.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/offld $(DESTDIR)$(PREFIX)/bin/ld.offld
	rm -rf $(DESTDIR)$(NAMES)
	rm -f $(DESTDIR)$(MAN)/offld.1 $(DESTDIR)$(MAN)/offld-*.1 $(DESTDIR)$(MAN)/ld.offld.1
	rm -f $(DESTDIR)$(COMPLETIONS)/bash-completion/completions/offld $(DESTDIR)$(COMPLETIONS)/zsh/site-functions/_offld \
	    $(DESTDIR)$(COMPLETIONS)/fish/vendor_completions.d/offld.fish
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(FOR_BUILDS))
	rmdir $(DESTDIR)$(PREFIX)/share/cmake/offld 2>/dev/null || :

clean:
	$(CARGO) clean
