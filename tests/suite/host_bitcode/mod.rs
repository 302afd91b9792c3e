//! Host objects that are bitcode: the results of the reader in `formats::bitcode` compared with
//! LLVM's tools, and damaged bitcode given to the real program.

mod beside;
mod damage;

use libtest_mimic::Trial;

/// All tests of this folder.
pub(crate) fn trials() -> Vec<Trial> {
    beside::trials()
        .into_iter()
        .chain(damage::trials())
        .collect()
}
