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

/// The trials of modules, in this order. A module that is in no list is an unused function.
macro_rules! trials_of {
    ($($module:ident)*) => {
        [$($module::trials()),*].into_iter().flatten().collect::<Vec<libtest_mimic::Trial>>()
    };
}

mod archives;
mod bench;
mod book;
mod build_loop;
mod build_systems;
mod bundler;
mod cache_keys;
mod cache_remote;
mod cache_store;
mod capi;
mod cases;
mod check;
mod cluster;
mod coff;
mod composed;
mod cuda;
mod device_links;
mod diff;
mod docs;
mod doctor;
mod drivers;
mod dry_run;
mod early_linker;
mod edit;
mod effort;
mod external_images;
mod fat_objects;
mod faults;
mod gate;
mod gpu;
mod gpu_device;
mod hardening;
mod hip_builds;
mod hip_units;
mod host_bitcode;
mod host_outputs;
mod inspect;
mod kinds;
mod kit;
mod kpack;
mod late;
mod launcher;
mod ld_offld;
mod lit;
mod llvm_program;
mod log;
mod lto;
mod malformed;
mod many;
mod nvcc;
mod nvidia;
mod packager;
mod programs;
mod python;
mod random_links;
mod registration;
mod releases;
mod reproduce;
mod schedule;
mod setup;
mod signals;
mod size;
mod stable_names;
mod support;
mod surroundings;
mod targets;
mod terminal;
mod units;
mod usage;
mod without_llvm;
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
    let mut trials = trials_of! {
        programs cache_store cache_keys early_linker capi cases bench book build_loop diff gate
        build_systems bundler cache_remote check cluster coff composed doctor drivers edit
        external_images fat_objects faults dry_run schedule size gpu gpu_device inspect hardening hip_builds hip_units
        host_bitcode host_outputs launcher lit llvm_program lto malformed log many
        nvcc nvidia kinds kpack late cuda packager python random_links releases reproduce
        terminal units without_llvm wrapper archives device_links ld_offld
        registration setup signals stable_names surroundings targets usage
    };
    let documented = docs::trials(&trials);
    trials.extend(documented);
    let trials = effort::chosen(trials, arguments.filter.is_some());
    let conclusion = libtest_mimic::run(&arguments, trials);
    effort::tell();
    cluster::stop();
    support::unmake();
    conclusion.exit_code()
}
