//! Archives: which members a link extracts, which definitions it uses, and in which images their
//! device code is.

mod half_images;
mod host_pulls;
mod same_definitions;
mod thin;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { half_images host_pulls same_definitions thin }
}
