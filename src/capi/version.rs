//! The versions of the library: of its binary interface, and of offld.

#![expect(unsafe_code, reason = "names that C finds")]

use super::text::{OffldString, constant};

/// The version of the binary interface that this header describes. It is raised when a function goes or means something else, and
/// the shared library has it in its name then (`liboffld.so.1`). New functions do not raise it.
pub const OFFLD_ABI_VERSION: u32 = 1;

/// The version of the binary interface of the library that the program runs with: to be compared with `OFFLD_ABI_VERSION` where the
/// library is loaded by hand.
#[unsafe(no_mangle)]
pub extern "C" fn offld_abi_version() -> u32 {
    OFFLD_ABI_VERSION
}

/// The version of offld, such as `1.2.3`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_version() -> OffldString {
    constant(concat!(env!("CARGO_PKG_VERSION"), "\0"))
}
