//! Archives: which members a link extracts, and which definitions it uses. In which images their
//! device code is, `tests/cases/clang-linker-wrapper/archive-*.case` test.

mod host_pulls;
mod same_definitions;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { host_pulls same_definitions }
}
