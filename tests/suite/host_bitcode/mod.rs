//! Host objects that are bitcode: what the reader in `formats::bitcode` finds in them, against LLVM's tools; and damaged ones, given to the
//! real program.

mod beside;
mod damage;

use libtest_mimic::Trial;

/// All tests of this folder.
pub(crate) fn trials() -> Vec<Trial> {
    beside::trials().into_iter().chain(damage::trials()).collect()
}
