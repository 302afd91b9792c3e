//! What is looked for in a file. A handle with functions, so that options can be added without a change of any structure.

#![expect(unsafe_code, reason = "names that C finds")]

use crate::facade::InspectOptions;

/// What is looked for when something is opened. Made by `offld_options_new`, freed by `offld_options_free`; where NULL is given for
/// it, everything is as it is in a new one. It can be used for any number of calls; while one thread changes it, no other may use it.
#[derive(Debug, Default)]
pub struct OffldOptions(pub(super) InspectOptions);

/// Options as they are if nothing is said: no kernels, hashes and bytes of every image, 64 GiB at the most out of compression.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_new() -> Box<OffldOptions> {
    Box::default()
}

/// Whether the kernels of images that are ELF files are read, too. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_kernels(options: Option<&mut OffldOptions>, kernels: bool) {
    if let Some(OffldOptions(options)) = options {
        options.kernels = kernels;
    }
}

/// Whether headers alone are read: no hashes, and nothing is unpacked but compressed files, members of archives and the heads of
/// compressed bundles. The images have no bytes then. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_headers_only(options: Option<&mut OffldOptions>, headers_only: bool) {
    if let Some(OffldOptions(options)) = options {
        options.headers_only = headers_only;
    }
}

/// How many bytes may come out of what is compressed in a file, at the most; 1000 times the size of the file is a limit, too. NULL
/// is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_max_unpacked(options: Option<&mut OffldOptions>, bytes: u64) {
    if let Some(OffldOptions(options)) = options {
        options.max_unpacked = Some(bytes);
    }
}

/// Frees options. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_free(options: Option<Box<OffldOptions>>) {
    drop(options);
}
