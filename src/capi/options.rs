//! Options for reading a file. They are a handle with functions, so that new options change no
//! structure.

#![expect(unsafe_code, reason = "exported C symbols")]

use crate::facade::InspectOptions;

/// Options for opening something. Created by `offld_options_new`, freed by `offld_options_free`.
/// NULL in place of options means the defaults. One handle can be used for any number of calls;
/// while one thread changes it, no other may use it.
#[derive(Debug, Default)]
pub struct OffldOptions(pub(super) InspectOptions);

/// Creates options with the defaults: no kernels, hashes and bytes of every image, at most 64 GiB
/// of decompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_new() -> Box<OffldOptions> {
    Box::default()
}

/// Sets whether the kernels of ELF images are read, too (default: false). Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_kernels(options: Option<&mut OffldOptions>, kernels: bool) {
    if let Some(OffldOptions(options)) = options {
        options.kernels = kernels;
    }
}

/// Sets whether only headers are read (default: false): no hashes, and only compressed files,
/// archive members and the headers of compressed bundles are decompressed. The bytes of the images
/// are then unavailable. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_headers_only(
    options: Option<&mut OffldOptions>,
    headers_only: bool,
) {
    if let Some(OffldOptions(options)) = options {
        options.headers_only = headers_only;
    }
}

/// Sets the limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
/// is a limit, too. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_max_unpacked(options: Option<&mut OffldOptions>, bytes: u64) {
    if let Some(OffldOptions(options)) = options {
        options.max_unpacked = Some(bytes);
    }
}

/// Frees options. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_free(options: Option<Box<OffldOptions>>) {
    drop(options);
}
