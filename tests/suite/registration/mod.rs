//! Registration code for runtimes of several releases: SYCL's input, and both forms of entry
//! tables in one program.

mod entry_tables;
mod sycl_runtimes;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { entry_tables sycl_runtimes }
}
