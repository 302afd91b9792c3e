# make           install LLVM 22 and build the programs, optimized as for packages
# make demo      set up, build quickly, and link one OpenMP program in three ways
# make check     before each commit: format, lints, unit tests, hygiene, and a few tests of the suite; some two minutes
# make test      the tests that need only LLVM 22     make test-releases   the tests that also need LLVM 14, 15, 16 and 19, or NVIDIA's tools
# make test-cluster  device links on other machines, with two Slurm nodes and an SSH server on this machine, as root; some four minutes
# make test-long make test with the longest tests in full (hundreds of processes and kills), then test-book, test-files and test-reproducible   make test-no-llvm   an offld without LLVM
# make test-llvm19  an offld built with LLVM 19: registration code, and links with it     make test-gpu  programs on the GPUs of this machine (docs/dev/gpu-tests.md)
# make test-reproducible  builds in two directories give the same bytes, also those of OpenMP programs; FULL=1: the release build     make audit  licences, crates, workflows     make lint-package  lintian
# make test-files split, merge and prune of real libraries and wheels with device code: downloads 1 GB, needs 10 GB of disk meanwhile
# make packages  .deb, .rpm, archive, wheel, SBOM into target/packages/out (packaging/README.md)     make test-packages   tests them in bare roots of Debian 12 and 13
# make test-clone  the README's commands one after the other in one clone, in bare roots of Debian 12 and 13, as root and as a user with sudo
# make test-cinstall  liboffld installed by cargo-c (docs/reference/c.md)
# make book      README and docs/ as a book with a search, into target/book; make test-book tests it in Chromium
# make install   PREFIX=/usr/local DESTDIR=         make uninstall   with the same settings        make lint clean
# make bench     BENCH=--check: fails beyond the bounds   make bench-large    memory, with code objects of 2 GiB
# make fuzz-links LINKS=600 SEED=1: random programs in random arrangements, linked by offld and by LLVM's wrapper
# make fuzz      FUZZ_SECONDS=1200 for each target; TARGET=name: only that one
#
# Needs Rust 1.90 or later (https://rustup.rs). The other targets install the Debian packages that they need, once. REQUIRE_TOOLS=1: a missing tool is an error, not a skip.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# 22, or 19 if only that is installed.
LLVM := $(or $(LLVM),$(shell scripts/llvm.sh))
FEATURES := $(if $(filter-out 22,$(LLVM)),--no-default-features --features llvm$(LLVM) --features remote-cache)
BIN := $(or $(CARGO_TARGET_DIR),target)/release/offld
# The demo has an offld of its own, which takes half of the time to build: it is less optimized, and has no remote cache.
DEMO_BIN := $(or $(CARGO_TARGET_DIR),target)/demo/offld
# A relative path, because make splits paths at spaces and the clone's directory may have some.
DEMO := target/demo/links
# The minimum Rust version, as in Cargo.toml (rust-version).
RUST := 1.90
# An offld without the remote cache.
WITHOUT_REMOTE := --no-default-features --features llvm
SETUP := target/setup.stamp
SETUP_DEMO := target/setup-demo$(patsubst %,-%,$(filter-out 22,$(LLVM))).stamp
SETUP_RELEASES := target/setup-releases.stamp
SETUP_CUDA := target/setup-cuda.stamp
SETUP_CLUSTER := target/setup-cluster.stamp
SETUP_CI := target/setup-ci.stamp
SETUP_PACKAGES := target/setup-packages.stamp

.PHONY: all rust build setup setup-releases setup-cuda setup-cluster demo check test test-cluster test-long test-files test-no-llvm test-releases test-llvm19 test-gpu gpu-bundle test-reproducible test-cinstall audit lint-package lint lint-code lint-features bench bench-large book test-book fuzz fuzz-links packages test-packages test-clone install uninstall clean

all: $(SETUP_DEMO)
	@$(MAKE) --no-print-directory build

# If rustup has just been installed, this shell's PATH does not have it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

rust:
	@command -v $(CARGO) >/dev/null || { echo 'cargo not found: install Rust $(RUST) or later from https://rustup.rs' >&2; exit 1; }
	@scripts/rust.sh $(RUST) $(CARGO)

# Cargo decides what is out of date, so make always runs it.
build: rust
	$(CARGO) build --release $(FEATURES)

# The scripts write the stamp file themselves, and only if nothing is missing.
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

# Installs only the packages for the build and for the demo, none for the tests.
demo: $(SETUP_DEMO) rust
	$(CARGO) build --profile demo --no-default-features --features llvm$(LLVM)
	'$(DEMO_BIN)' links $(DEMO)
	$(MAKE) --no-print-directory -C examples/zaxpy run LINKS=../../$(DEMO) LLVM=$(LLVM)

# For contributors, before each commit. Lints and unit tests run without LLVM, because that builds faster.
# tests/suite/effort.rs lists the tests of the suite that run. `make lint test` checks the rest.
check: $(SETUP)
	$(CARGO) fmt --check
	$(CARGO) clippy --no-default-features --all-targets -- -D warnings
	$(CARGO) test --no-default-features --lib --test hygiene --test docs -- --skip releases::
	OFFLD_TEST_CHECK=1 $(CARGO) test $(WITHOUT_REMOTE) --test suite

# Only tests/suite/ has tests with these names; it is one harness for all tests that run offld. The last step tests an offld without LLVM.
# Other LLVM releases and the CUDA tools are hidden: a test that needs them must be named releases::, or it fails here as on a fresh machine.
test: $(SETUP)
	OFFLD_RELEASES=/none OFFLD_CUDA=/none $(CARGO) test --no-fail-fast -- --skip releases:: --skip cluster:: --skip book::
	@$(MAKE) --no-print-directory test-no-llvm

# `make test` with the longest tests in full. `make test` lists at its end the tests that it cut short.
test-long: $(SETUP)
	@OFFLD_TEST_LONG=1 OFFLD_TEST_SIZES=1 OFFLD_TEST_PARTS=1 $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-book
	@$(MAKE) --no-print-directory test-files
	@$(MAKE) --no-print-directory test-reproducible

# The files are large, so they are removed after the tests.
FILES := target/files
test-files: $(SETUP) $(SETUP_CUDA)
	scripts/setup-files.sh $(FILES)
	OFFLD_TEST_FILES="$$PWD/$(FILES)" $(CARGO) test --no-fail-fast --test suite -- edit::real_files::; ended=$$?; rm -rf $(FILES); exit $$ended

# The first run compiles mdbook, which takes three minutes. That is too long for `make test`, so tests/docs.rs checks the links without mdbook.
book:
	@CARGO=$(CARGO) scripts/book.sh
test-book: $(SETUP) book
	$(CARGO) test --test suite -- book::

# Builds only offld, from the crates that the tests of liboffld need too. The suite that `make test` built runs it.
WITHOUT_LLVM := $(or $(CARGO_TARGET_DIR),target)/without-llvm
test-no-llvm: $(SETUP)
	$(CARGO) build --no-default-features --features capi --bin offld
	mkdir -p $(WITHOUT_LLVM) && cp $(or $(CARGO_TARGET_DIR),target)/debug/offld $(WITHOUT_LLVM)/
	OFFLD_BIN="$$(realpath $(WITHOUT_LLVM)/offld)" $(CARGO) test --test suite -- without_llvm::

test-releases: $(SETUP_RELEASES) $(SETUP_CUDA)
	$(CARGO) test --lib --test suite -- releases::

# An offld with LLVM 19, in its own target directory: its unit tests, and the tests of the suite that make registration code (tests/suite/effort.rs).
LLVM19 := --target-dir target/llvm19 --no-default-features --features llvm19,remote-cache
test-llvm19: $(SETUP) $(SETUP_RELEASES) $(SETUP_CUDA)
	$(CARGO) test $(LLVM19) --bin offld-llvm
	$(CARGO) build $(LLVM19)
	OFFLD_BIN="$$PWD"/target/llvm19/debug/offld OFFLD_TEST_LLVM=19 $(CARGO) test --test suite

# Programs on the GPUs of this machine. Without a GPU, they are built and inspected but not run. REQUIRE_GPU=1 makes that a failure.
test-gpu: $(SETUP) $(SETUP_CUDA)
	$(CARGO) test --test suite -- gpu_device::

# The same programs in an archive, for a machine that has a GPU but none of these tools: unpack it there, and run run.sh.
GPU := target/gpu/offld-gpu
gpu-bundle: $(SETUP) $(SETUP_CUDA)
	$(if $(PROGRAMS),,$(CARGO) build --locked)
	rm -rf $(GPU) && mkdir -p $(GPU)
	OFFLD="$$(realpath "$(or $(PROGRAMS),$(or $(CARGO_TARGET_DIR),target)/debug)/offld")" tests/gpu/build.sh $(GPU)
	tar -czf $(GPU).tar.gz -C $(dir $(GPU)) $(notdir $(GPU))
	@echo 'On a machine with a GPU: tar -xzf $(notdir $(GPU)).tar.gz && $(notdir $(GPU))/run.sh    ($(GPU).tar.gz)'

# FULL=1 builds both programs twice, as for packages.
test-reproducible: $(SETUP)
	scripts/reproducible.sh $(if $(filter 1,$(FULL)),--full)
	$(CARGO) test --test suite -- stable_names::same_bytes

# liboffld installed by cargo-c, and a program built with its .pc file. The first run builds cargo-c, which takes a quarter of an hour.
test-cinstall: $(SETUP)
	scripts/cinstall.sh

# Checks without a build: licences, sources and audits of the crates, and the workflows.
audit: $(SETUP_CI)
	scripts/audit.sh

# lintian on a quickly made .deb of built programs. PROGRAMS=DIR: those in DIR (default: the debug build).
lint-package: $(SETUP) $(SETUP_CI)
	$(if $(PROGRAMS),,$(CARGO) build --locked)
	packaging/lint.sh "$(or $(PROGRAMS),$(or $(CARGO_TARGET_DIR),target)/debug)"
	packaging/recipes.sh

# One test at a time, because each needs the whole cluster, which tests/cluster/cluster.sh starts and stops.
test-cluster: $(SETUP) $(SETUP_CLUSTER)
	$(CARGO) test --test suite -- cluster:: --test-threads=1

lint: lint-code lint-features

# The lints of the default features, for `.ci/run`.
lint-code: $(SETUP)
	$(CARGO) fmt --check
	$(CARGO) fmt --check --package offld-python
	$(CARGO) clippy --all-targets -- -D warnings
	@scripts/msrv.sh
	@scripts/notice.sh --check
	@if command -v shellcheck >/dev/null; then shellcheck -x scripts/*.sh benches/*.sh packaging/*.sh packaging/action/*.sh tests/packages/*.sh tests/cluster/*.sh tests/gpu/*.sh .ci/run; \
	elif [ "$(REQUIRE_TOOLS)" = 1 ]; then echo 'lint: shellcheck not found' >&2; exit 1; \
	else echo 'lint: shellcheck not found: scripts were not checked' >&2; fi

# Each set of features compiles most crates again, so the workflow has a job for this.
lint-features: $(SETUP)
	$(CARGO) clippy --package offld-python -- -D warnings
	$(CARGO) clippy $(WITHOUT_REMOTE) --all-targets -- -D warnings
	$(CARGO) clippy --no-default-features --features capi --all-targets -- -D warnings
	RUSTFLAGS="--cfg fuzzing" $(CARGO) check --manifest-path fuzz/Cargo.toml
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --no-default-features

# Compares offld with LLVM's tools (docs/dev/benchmarks.md). BENCH='zaxpy many': only these groups; BENCH=--write: updates benches/RESULTS.md
# If NVIDIA's tools are missing, the table lists the omitted rows.
bench: $(SETUP) $(SETUP_CUDA)
	@$(MAKE) --no-print-directory build
	benches/compare.sh $(BENCH)

# Peak memory with code objects of 2 GiB; needs some 10 GiB of disk.
bench-large: $(SETUP)
	@$(MAKE) --no-print-directory build
	benches/large.sh --check

# Fuzzes every reader and every tool's command line with damaged and unusual input, FUZZ_SECONDS each; TARGET selects one.
# Needs cargo-fuzz (`cargo install cargo-fuzz`) and a nightly compiler (`rustup toolchain install nightly`). See fuzz/README.md.
FUZZ_SECONDS ?= 1200
fuzz:
	fuzz/run.sh $(FUZZ_SECONDS) $(TARGET)

# `make test` runs 6 with a fixed seed; each pool of objects gives six. A failure names its seed; OFFLD_LINKS_KEEP=1 leaves its directory in /tmp.
LINKS ?= 600
SEED ?= 1000
fuzz-links: $(SETUP)
	OFFLD_LINKS_COUNT=$(LINKS) OFFLD_LINKS_SEED=$(SEED) $(CARGO) test --test suite -- random_links::

# PROGRAMS=DIR packs the programs built in DIR. The default is a new build, with the list of crates inside and without names of local directories.
packages: $(SETUP) $(SETUP_PACKAGES)
	packaging/make.sh $(if $(PROGRAMS),"$(PROGRAMS)")

# Tests the result of `make packages`; needs root. ROOTS=bookworm: only that release. The first run downloads 1.5 GB.
test-packages: $(SETUP) $(SETUP_PACKAGES)
	tests/packages/run.sh $(ROOTS)

# The README's commands in one clone, in bare roots of Debian 12 and 13; needs root. PAIRS=bookworm:root: only that pair. Some 80 minutes each.
test-clone: $(SETUP) $(SETUP_PACKAGES)
	tests/packages/clone.sh $(PAIRS)

# The tool links go into their own directory, for clang's -B, so that they do not shadow LLVM's tools in bin/.
# Existing programs are not rebuilt, because root often has no Rust.
NAMES := $(PREFIX)/libexec/offld
TO := $(DESTDIR)$(PREFIX)
# The build-system files contain PREFIX.
PREFIX_IS_ABSOLUTE = @case "$(PREFIX)" in (/*) ;; (*) echo 'PREFIX is not an absolute path: $(PREFIX)' >&2; exit 1 ;; esac
COMPLETION_DIRS := share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d
PAPERS := share/doc/offld
# Staging directory for tool links and manual pages.
STAGE := $(or $(CARGO_TARGET_DIR),target)/install
# Files by which CMake, Meson and pkg-config find offld (docs/guides/build-systems.md).
FOR_BUILDS := $(addprefix share/,$(addprefix cmake/offld/offld,Config.cmake ConfigVersion.cmake Toolchain.cmake) meson/native/offld.ini pkgconfig/offld.pc)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# `install` sets all file modes, also for files that offld prints, so they do not depend on the umask.
install:
	$(PREFIX_IS_ABSOLUTE)
	@test -x "$(BIN)" -a -x "$(BIN)-llvm" || $(MAKE) --no-print-directory build
	@install -d $(foreach dir,bin libexec/offld share/man/man1 $(PAPERS) $(COMPLETION_DIRS) $(dir $(FOR_BUILDS)),"$(TO)/$(dir)")
	@install -m 755 "$(BIN)" "$(TO)/bin/offld"
	@install -m 755 "$(BIN)-llvm" "$(TO)/libexec/offld/offld-llvm"
	@ln -sfn offld "$(TO)/bin/ld.offld"
	@rm -rf "$(STAGE)/names" "$(STAGE)/man"
	@"$(BIN)" links "$(STAGE)/names" >/dev/null
	@for name in $$(ls "$(STAGE)/names"); do ln -sfn ../../bin/offld "$(TO)/libexec/offld/$$name"; done
	@"$(BIN)" man "$(STAGE)/man" >/dev/null
	@install -m 644 "$(STAGE)"/man/*.1 "$(TO)/share/man/man1"
	@"$(BIN)" completions bash | install -m 644 /dev/stdin "$(TO)/share/bash-completion/completions/offld"
	@"$(BIN)" completions zsh | install -m 644 /dev/stdin "$(TO)/share/zsh/site-functions/_offld"
	@"$(BIN)" completions fish | install -m 644 /dev/stdin "$(TO)/share/fish/vendor_completions.d/offld.fish"
	@install -m 644 LICENSE NOTICE "$(TO)/$(PAPERS)"
	@for file in $(FOR_BUILDS); do \
	    sed 's|@VERSION@|$(VERSION)|; s|@PREFIX@|$(PREFIX)|' "$$file" | install -m 644 /dev/stdin "$(TO)/$$file" || exit 1; done
	@echo 'offld $(VERSION) is installed in $(TO)'
	@echo 'Instead of LLVM'\''s wrapper:    clang++ -fopenmp --offload-arch=... -B$(NAMES) ...'
	@echo 'As the linker of any driver:   clang++ --ld-path=$(PREFIX)/bin/ld.offld ...   (or -fuse-ld=offld, if it is in PATH)'

# Removes the files that `make install` wrote with the same PREFIX and DESTDIR, and no directory that other packages may use.
uninstall:
	$(PREFIX_IS_ABSOLUTE)
	rm -f "$(TO)/bin/offld" "$(TO)/bin/ld.offld"
	rm -rf "$(TO)/libexec/offld"
	rm -f "$(TO)"/share/man/man1/offld.1 "$(TO)"/share/man/man1/offld-*.1 "$(TO)"/share/man/man1/ld.offld.1
	rm -f "$(TO)/share/bash-completion/completions/offld" "$(TO)/share/zsh/site-functions/_offld" "$(TO)/share/fish/vendor_completions.d/offld.fish"
	rm -f $(foreach file,$(FOR_BUILDS),"$(TO)/$(file)") "$(TO)/$(PAPERS)/LICENSE" "$(TO)/$(PAPERS)/NOTICE"
	rmdir "$(TO)/share/cmake/offld" "$(TO)/$(PAPERS)" 2>/dev/null || :

clean:
	$(CARGO) clean
