//! The faults of LLVM 22's linker wrapper that offld must not have. Each has at least one test with
//! its number, here or in `tests/cases/clang-linker-wrapper/`. The test shows offld's behaviour and,
//! if that is cheap, that LLVM's wrapper still behaves differently.

pub(crate) mod full_disk;
mod hostile;
mod images;
mod inputs;
mod jobs;
mod kinds;
mod large;
mod line;
mod options;
mod relocatable;
pub(crate) mod stopped;

use libtest_mimic::Trial;

/// Every test in this directory.
pub(crate) fn trials() -> Vec<Trial> {
    trials_of! {
        line large inputs jobs kinds images options relocatable stopped full_disk
        hostile
    }
}
