//! All tests that run the offld program, with real compilers and runtimes, compared with LLVM's own
//! tools. They form one harness, so that filters work for all: `cargo test --test suite -- f13` or
//! `-- programs::weak`.
//!
//! Tests with names in `releases::` need LLVM 14, 15, 16 and 19 or NVIDIA's tools, those in
//! `cluster::` Slurm and root, and those in `book::` the book of `make book`. The others need only
//! LLVM 22. If a tool is missing, the test is ignored and names the tool; `REQUIRE_TOOLS=1` makes
//! that a failure. The longest tests are cut short, which the end of the output lists;
//! `OFFLD_TEST_LONG=1` runs them in full.

#![expect(
    clippy::disallowed_types,
    reason = "tests run offld, compilers and the programs they make"
)]
#![expect(
    clippy::expect_used,
    reason = "a test that cannot create its inputs has failed"
)]

#[path = "suite/bench.rs"]
mod bench;
#[path = "suite/book.rs"]
mod book;
#[path = "suite/build_loop.rs"]
mod build_loop;
#[path = "suite/build_systems.rs"]
mod build_systems;
#[path = "suite/bundler/mod.rs"]
mod bundler;
#[path = "suite/cache_keys.rs"]
mod cache_keys;
#[path = "suite/cache_remote/mod.rs"]
mod cache_remote;
#[path = "suite/cache_store/mod.rs"]
mod cache_store;
#[path = "suite/capi.rs"]
mod capi;
#[path = "suite/cases.rs"]
mod cases;
#[path = "suite/check/mod.rs"]
mod check;
#[path = "suite/cluster/mod.rs"]
mod cluster;
#[path = "suite/coff/mod.rs"]
mod coff;
#[path = "suite/composed.rs"]
mod composed;
#[path = "suite/cuda.rs"]
mod cuda;
#[path = "suite/docs.rs"]
mod docs;
#[path = "suite/doctor.rs"]
mod doctor;
#[path = "suite/drivers.rs"]
mod drivers;
#[path = "suite/dry_run/mod.rs"]
mod dry_run;
#[path = "suite/early_linker.rs"]
mod early_linker;
#[path = "suite/edit/mod.rs"]
mod edit;
#[path = "suite/effort.rs"]
mod effort;
#[path = "suite/fat_objects.rs"]
mod fat_objects;
#[path = "suite/faults/mod.rs"]
mod faults;
#[path = "suite/gpu.rs"]
mod gpu;
#[path = "suite/gpu_device.rs"]
mod gpu_device;
#[path = "suite/hardening.rs"]
mod hardening;
#[path = "suite/hip_builds.rs"]
mod hip_builds;
#[path = "suite/host_bitcode/mod.rs"]
mod host_bitcode;
#[path = "suite/host_outputs.rs"]
mod host_outputs;
#[path = "suite/inspect/mod.rs"]
mod inspect;
#[path = "suite/kinds.rs"]
mod kinds;
#[path = "suite/kit.rs"]
mod kit;
#[path = "suite/late/mod.rs"]
mod late;
#[path = "suite/launcher/mod.rs"]
mod launcher;
#[path = "suite/library.rs"]
mod library;
#[path = "suite/lit.rs"]
mod lit;
#[path = "suite/llvm_program.rs"]
mod llvm_program;
#[path = "suite/log.rs"]
mod log;
#[path = "suite/lto/mod.rs"]
mod lto;
#[path = "suite/malformed/mod.rs"]
mod malformed;
#[path = "suite/many.rs"]
mod many;
#[path = "suite/nvidia/mod.rs"]
mod nvidia;
#[path = "suite/packager.rs"]
mod packager;
#[path = "suite/programs.rs"]
mod programs;
#[path = "suite/prune/mod.rs"]
mod prune;
#[path = "suite/python.rs"]
mod python;
#[path = "suite/random_links/mod.rs"]
mod random_links;
#[path = "suite/regressions/mod.rs"]
mod regressions;
#[path = "suite/releases.rs"]
mod releases;
#[path = "suite/reproduce.rs"]
mod reproduce;
#[path = "suite/schedule/mod.rs"]
mod schedule;
#[path = "suite/size/mod.rs"]
mod size;
#[path = "suite/size_page/mod.rs"]
mod size_page;
#[path = "suite/support.rs"]
mod support;
#[path = "suite/terminal.rs"]
mod terminal;
#[path = "suite/units.rs"]
mod units;
#[path = "suite/without_llvm.rs"]
mod without_llvm;
#[path = "suite/wrapper/mod.rs"]
mod wrapper;

use std::process::ExitCode;

use libtest_mimic::Arguments;

/// Twice the number of cores, up to eight: the tests wait for almost half of their time, for
/// example for locks and timeouts.
fn default_threads() -> Option<usize> {
    let cores = std::thread::available_parallelism().ok()?.get();
    Some((2 * cores).min(8).max(cores))
}

fn main() -> ExitCode {
    if let Some(ended) = cache_store::worker() {
        return ended;
    }
    support::with_default_signals();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or_else(default_threads);
    let mut trials = Vec::new();
    trials.extend(programs::trials());
    trials.extend(cache_store::trials());
    trials.extend(cache_keys::trials());
    trials.extend(early_linker::trials());
    trials.extend(capi::trials());
    trials.extend(cases::trials());
    trials.extend(bench::trials());
    trials.extend(book::trials());
    trials.extend(build_loop::trials());
    trials.extend(build_systems::trials());
    trials.extend(bundler::trials());
    trials.extend(cache_remote::trials());
    trials.extend(check::trials());
    trials.extend(cluster::trials());
    trials.extend(coff::trials());
    trials.extend(composed::trials());
    trials.extend(doctor::trials());
    trials.extend(drivers::trials());
    trials.extend(edit::trials());
    trials.extend(fat_objects::trials());
    trials.extend(faults::trials());
    trials.extend(dry_run::trials());
    trials.extend(schedule::trials());
    trials.extend(size::trials());
    trials.extend(gpu::trials());
    trials.extend(gpu_device::trials());
    trials.extend(inspect::trials());
    trials.extend(hardening::trials());
    trials.extend(hip_builds::trials());
    trials.extend(host_bitcode::trials());
    trials.extend(host_outputs::trials());
    trials.extend(launcher::trials());
    trials.extend(library::trials());
    trials.extend(lit::trials());
    trials.extend(llvm_program::trials());
    trials.extend(lto::trials());
    trials.extend(malformed::trials());
    trials.extend(log::trials());
    trials.extend(many::trials());
    trials.extend(nvidia::trials());
    trials.extend(kinds::trials());
    trials.extend(late::trials());
    trials.extend(cuda::trials());
    trials.extend(packager::trials());
    trials.extend(prune::trials());
    trials.extend(python::trials());
    trials.extend(random_links::trials());
    trials.extend(regressions::trials());
    trials.extend(releases::trials());
    trials.extend(reproduce::trials());
    trials.extend(size_page::trials());
    trials.extend(terminal::trials());
    trials.extend(units::trials());
    trials.extend(without_llvm::trials());
    trials.extend(wrapper::trials());
    let documented = docs::trials(&trials);
    trials.extend(documented);
    let conclusion = libtest_mimic::run(&arguments, effort::chosen(trials));
    effort::tell();
    cluster::stop();
    support::unmake();
    conclusion.exit_code()
}
