//! The command lines of device links: options of other releases, arguments that a device linker
//! does not accept, the libraries of GPUs, and kernels of releases with other arguments.

mod arguments;
mod gpu_libraries;
mod kernel_arguments;
mod later_options;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { arguments gpu_libraries kernel_arguments later_options }
}
