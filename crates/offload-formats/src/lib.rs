//! Parsers and writers for every format that holds device code, from bytes and to bytes: archives,
//! ELF and COFF objects, OffloadBinaries, bundles, fatbinaries, bitcode. Also the targets of device
//! code and the rule for which image serves which device ([`target`]), and the contract of each
//! offload runtime as plain data ([`registration`]). Nothing here opens a file, starts a process or
//! contains LLVM.
//!
//! Readers borrow from the bytes that they get and check every bound before they index. Errors
//! ([`error::Malformed`]) have the offset of the fault.
//!
//! ```
//! use offload_formats::magic::{Magic, magic};
//!
//! assert_eq!(magic(b"\x10\xff\x10\xad"), Magic::OffloadBinary);
//! ```

// An index out of bounds would panic, so each use of indexing needs a reason here. Tests may index.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run compilers and the compiled programs"
    )
)]

pub mod archive;
pub mod bitcode;
pub mod bitstream;
pub mod bundle;
pub mod bundled_object;
pub mod bytes;
pub mod coff;
pub mod compose;
pub mod compressed;
pub mod compression;
pub mod containers;
pub mod deferred_section;
pub mod dynamic;
pub mod elf;
pub mod embedded;
pub mod error;
pub mod external_images;
pub mod fatbin;
pub mod gpu;
pub mod kernels;
pub mod kpack;
pub mod magic;
pub mod model;
pub mod nvcc;
pub mod offload_binary;
pub mod offload_entries;
pub mod offload_sections;
pub mod producer;
pub mod ptx;
pub mod recipe;
#[cfg(test)]
mod reference;
pub mod registration;
pub mod spirv;
pub mod stable_names;
pub mod tar;
pub mod target;
pub mod zip;
