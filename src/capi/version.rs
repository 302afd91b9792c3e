//! The versions of the library: of its binary interface, and of offld.

#![expect(unsafe_code, reason = "exported C symbols")]

use super::text::{OffldString, constant};

/// The version of the binary interface that this header describes. It increases when a function is
/// removed or changes its meaning, and it is part of the shared library's name (`liboffld.so.1`).
/// New functions do not increase it.
pub const OFFLD_ABI_VERSION: u32 = 1;

/// Returns the version of the binary interface of the loaded library. Compare it with
/// `OFFLD_ABI_VERSION` if the program loads the library at run time.
#[unsafe(no_mangle)]
pub extern "C" fn offld_abi_version() -> u32 {
    OFFLD_ABI_VERSION
}

/// Returns the version of offld, such as `1.2.3`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_version() -> OffldString {
    constant(concat!(env!("CARGO_PKG_VERSION"), "\0"))
}
