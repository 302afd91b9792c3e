//! `offld diff`: kernels that differ, and kernels that only moved.

mod mutations;
mod occupancy;
mod output;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { mutations occupancy output }
}
