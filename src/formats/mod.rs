//! Parsers and writers for file formats, from bytes and to bytes, without files, processes or LLVM.
//!
//! Readers borrow from the bytes that they get and check every bound before they index. Errors
//! ([`Malformed`]) have the offset of the fault.

// An index out of bounds would panic, so each use of indexing needs a reason here. Tests may index.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod archive;
pub mod bitcode;
pub mod bitstream;
pub mod bundle;
pub mod bundled_object;
pub mod coff;
pub mod compose;
pub mod compressed;
pub mod compression;
pub mod deferred_section;
pub mod dynamic;
pub mod elf;
pub mod embedded;
pub mod fatbin;
pub mod gpu;
pub mod intel_spirv;
pub mod kernels;
pub mod magic;
pub mod offload_binary;
pub mod offload_entries;
pub mod offload_sections;
pub mod producer;
pub mod ptx;
pub mod recipe;
#[cfg(test)]
pub(crate) mod reference;
pub mod tar;
pub mod zip;

use crate::error::Malformed;

/// Returns `len` bytes of `data` from `offset`. A range outside of `data` is the fault `what` at
/// offset `at`.
pub(crate) fn slice<'a>(
    data: &'a [u8],
    offset: u64,
    len: u64,
    what: &'static str,
    at: u64,
) -> Result<&'a [u8], Malformed> {
    let fault = Malformed::new(what, at);
    let start = usize::try_from(offset).map_err(|_| fault)?;
    let end = usize::try_from(offset.checked_add(len).ok_or(fault)?).map_err(|_| fault)?;
    data.get(start..end).ok_or(fault)
}
