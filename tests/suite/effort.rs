//! Selects the tests of a run. By default the tests of [`LONG`] are left out, and others are cut
//! short. A run of the tests that a filter names leaves out none.
//!
//! * `OFFLD_TEST_LONG=1` (`make test-long`): all tests in full
//! * `OFFLD_TEST_CHECK=1` (`make check`): only those of [`CHECK`]
//! * `OFFLD_TEST_LLVM=19` (`make test-llvm19`): only those of [`REGISTRATION`]
//!
//! `OFFLD_TEST_TIMES=FILE` appends a line with the seconds and the name of each test to a file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use libtest_mimic::Trial;

use crate::support::Outcome;

/// The tests that run before each commit: some quick ones for each tool and each part of a link.
const CHECK: [&str; 16] = [
    "programs::archive-members::lld",
    "programs::reduction::bfd",
    "programs::shared-only::lld",
    "programs::merged::bfd",
    "kinds::hip-rdc",
    "kinds::hip-compressed",
    "dry_run::library",
    "dry_run::amdgcn_two_units_for_real",
    "without_llvm::an_elf_object_of_the_host",
    "coff::program::x86_64-pc-windows-msvc",
    "cache_keys::the_program_changes::lld",
    "bundler::ob_01_ob_02_ob_03_ob_13_ob_16_every_type_both_ways",
    "fat_objects::archives::ob_43_of_every_form",
    "packager::linked_programs_give_the_same_files",
    "inspect::program::openmp",
    "reproduce::contents",
];

/// The tests for an offld (`OFFLD_BIN`) whose `offld-llvm` has another LLVM. They create
/// registration code as objects, bitcode or text, and link with it, by the compilers of LLVM 22 and
/// of the LLVM in `offld-llvm`.
const REGISTRATION: [&str; 9] = [
    "programs::",
    "kinds::",
    "releases::",
    "wrapper::",
    "llvm_program::",
    "drivers::",
    "coff::",
    "composed::",
    "random_links::",
];

/// The starts of the names of tests that run only in `make test-long`, because they take long and
/// cover what others cover with other inputs: more linkers, larger files, more runs.
const LONG: [&str; 22] = [
    "bench::",
    "build_systems::libtool_needs_its_word",
    "cache_remote::links::checkouts_by_redis",
    "capi::c_program_under_valgrind",
    "capi::c_program_with_sanitizers",
    "edit::merge::six_builds_are_the_build_for_six",
    "edit::prune::large_data_takes_no_memory",
    "edit::recompress::the_bar_moves_within_a_wheel",
    "faults::f33_external_images",
    "faults::f33_late_",
    "faults::f33_more_than_3_gib_of_images",
    "faults::thousands_of_images_in_a_container",
    "faults::thousands_of_targets",
    "inspect::packages::a_wheel_of_pypi_in_a_tar_archive",
    "inspect::packages::memory_does_not_grow",
    "python::",
    "schedule::a_link_in_a_group_with_a_limit_of_processes",
    "schedule::the_same_with_many_objects_and_large_ones",
    "schedule::the_same_with_the_cache",
    "size::page::a_library_of_300_mb",
    "size::page::small_tiles_are_put_together",
    "wrapper::two_gib_are_wrapped_in_64_mib",
];

/// The release of the LLVM in `offld-llvm`.
pub(crate) fn llvm_inside() -> u32 {
    let release = std::env::var("OFFLD_TEST_LLVM").ok();
    release.map_or(22, |release| {
        release
            .parse()
            .expect("OFFLD_TEST_LLVM is the number of a release")
    })
}

/// Whether a test is for a release other than the one in `offld-llvm`.
fn is_of_others(name: &str) -> bool {
    let releases = name
        .rsplit("::")
        .next()
        .unwrap_or_default()
        .split('-')
        .filter_map(|word| word.parse::<u32>().ok());
    name.starts_with("releases::") && !releases.collect::<Vec<_>>().contains(&llvm_inside())
}

static CUT_SHORT: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The number of tests of [`LONG`] that do not run.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Whether the tests run in full.
pub(crate) fn is_long() -> bool {
    is_set("OFFLD_TEST_LONG")
}

/// Returns the trials of this run. `is_named`: the user named the tests to run.
pub(crate) fn chosen(mut trials: Vec<Trial>, is_named: bool) -> Vec<Trial> {
    let is_left_out = |trial: &Trial| LONG.iter().any(|start| trial.name().starts_with(start));
    let unused: Vec<&&str> = LONG
        .iter()
        .filter(|start| !trials.iter().any(|trial| trial.name().starts_with(**start)))
        .collect();
    assert!(
        unused.is_empty(),
        "unknown tests in LONG of tests/suite/effort.rs: {unused:?}"
    );
    if !is_long() && !is_named {
        let before = trials.len();
        trials.retain(|trial| !is_left_out(trial));
        LEFT_OUT.store(before - trials.len(), Ordering::Relaxed);
    }
    if is_set("OFFLD_TEST_CHECK") {
        let unknown: Vec<&str> = CHECK
            .into_iter()
            .filter(|name| !trials.iter().any(|trial| trial.name() == *name))
            .collect();
        assert!(
            unknown.is_empty(),
            "unknown tests in CHECK of tests/suite/effort.rs: {unknown:?}"
        );
        trials.retain(|trial| CHECK.contains(&trial.name()));
    }
    if llvm_inside() != 22 {
        let wanted = |name: &str| {
            REGISTRATION.iter().any(|start| name.starts_with(start)) && !is_of_others(name)
        };
        trials.retain(|trial| wanted(trial.name()));
    }
    trials
}

/// Runs a test, and records its duration if `OFFLD_TEST_TIMES` names a file.
pub(crate) fn timed(name: &str, run: impl FnOnce() -> Outcome) -> Outcome {
    let Some(file) = std::env::var_os("OFFLD_TEST_TIMES") else {
        return run();
    };
    let start = Instant::now();
    let outcome = run();
    let line = format!("{:.2} {name}\n", start.elapsed().as_secs_f64());
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(line.as_bytes())?;
    outcome
}

/// The number of times that a test does `what`: `full`, or only `short` if the longest tests are
/// cut short. The end of the run lists the shortened tests.
pub(crate) fn rounds<T: Copy + PartialOrd + std::fmt::Display>(what: &str, full: T, short: T) -> T {
    if short >= full || is_long() {
        return full;
    }
    let cut = format!("{what}: {short} instead of {full}");
    CUT_SHORT
        .lock()
        .expect("no test panics while it holds this")
        .push(cut);
    short
}

/// Prints the number of tests that were left out, and the shortened tests.
pub(crate) fn tell() {
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    if left_out > 0 {
        eprintln!("left out: {left_out} long tests (OFFLD_TEST_LONG=1, as `make test-long`)\n");
    }
    let mut cut = CUT_SHORT
        .lock()
        .expect("no test panics while it holds this");
    cut.sort();
    cut.dedup();
    if !cut.is_empty() {
        eprintln!(
            "cut short (in full with OFFLD_TEST_LONG=1, as `make test-long`):\n  {}\n",
            cut.join("\n  ")
        );
    }
}
