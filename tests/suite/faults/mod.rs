//! The faults of LLVM 22's linker wrapper that offld must not have, a test or more for each by its number: what offld promises
//! instead, and where that is cheap, that LLVM's wrapper still does otherwise.

pub(crate) mod full_disk;
mod images;
mod inputs;
mod jobs;
mod kinds;
mod large;
mod line;
mod options;
mod relocatable;
mod steps;
pub(crate) mod stopped;

use libtest_mimic::Trial;

/// Every test here.
pub(crate) fn trials() -> Vec<Trial> {
    [
        line::trials(),
        large::trials(),
        inputs::trials(),
        jobs::trials(),
        kinds::trials(),
        images::trials(),
        options::trials(),
        relocatable::trials(),
        steps::trials(),
        stopped::trials(),
        full_disk::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
