//! Selects the tests of a run. By default all run, but the longest are cut short.
//!
//! * `OFFLD_TEST_LONG=1` (`make test-long`): also the longest in full
//! * `OFFLD_TEST_CHECK=1` (`make check`): only those of [`CHECK`]
//! * `OFFLD_TEST_LLVM=19` (`make test-llvm19`): only those of [`REGISTRATION`]
//!
//! `OFFLD_TEST_TIMES=FILE` appends a line with the seconds and the name of each test to a file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Mutex;
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

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Returns the trials of this run.
pub(crate) fn chosen(mut trials: Vec<Trial>) -> Vec<Trial> {
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
    if short >= full || is_set("OFFLD_TEST_LONG") {
        return full;
    }
    let cut = format!("{what}: {short} instead of {full}");
    CUT_SHORT
        .lock()
        .expect("no test panics while it holds this")
        .push(cut);
    short
}

/// Prints the shortened tests, if any.
pub(crate) fn tell() {
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
