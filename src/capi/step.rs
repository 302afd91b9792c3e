//! What an image is in: members of archives, compressed files, sections, variables, containers.

#![expect(unsafe_code, reason = "names that C finds")]

use super::text::{OffldString, Text, shown};
use crate::contents::report::Step;

/// One of the things that enclose an image. It belongs to the report.
#[derive(Debug)]
pub struct OffldStep {
    kind: Text,
    name: Text,
    compression: Text,
    offset: Option<u64>,
    size: u64,
    plain_size: Option<u64>,
    version: u32,
}

impl OffldStep {
    pub(super) fn new(step: &Step) -> OffldStep {
        let of = |kind: &str, name: &str, offset: Option<u64>, size: u64| {
            let (kind, name) = (Text::from(kind), Text::from(name));
            OffldStep { kind, name, compression: Text::from(""), offset, size, plain_size: None, version: 0 }
        };
        match step {
            Step::Member { name, offset, size, compression, plain_size, .. } => {
                OffldStep { compression: Text::of(*compression), plain_size: *plain_size, ..of("member", name, *offset, *size) }
            }
            Step::Compressed { name, offset, size, plain_size } => {
                OffldStep { compression: Text::from(*name), plain_size: *plain_size, ..of("compressed", name, *offset, *size) }
            }
            Step::Section { name, offset, size } => of("section", name, *offset, *size),
            Step::Symbol { name, offset, size } => of("symbol", name, *offset, *size),
            Step::Container { name, offset, size, version, compression, plain_size, .. } => OffldStep {
                compression: Text::of(*compression),
                plain_size: *plain_size,
                version: version.unwrap_or(0),
                ..of("container", name, *offset, *size)
            },
        }
    }
}

/// What it is: `member` of an archive, `compressed` file, `section`, `symbol` (a variable), `container`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_kind(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.kind))
}

/// The name of the member, section or variable; of a container its format (`offload-binary`, `bundle`, `fatbinary`, …), of a
/// compressed file what compressed it.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_name(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.name))
}

/// Where it starts in the file on disk or in the buffer; `OFFLD_NONE` in something that was decompressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_offset(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.offset).unwrap_or(u64::MAX)
}

/// Its size in bytes as stored, which may be compressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_size(step: Option<&OffldStep>) -> u64 {
    step.map_or(0, |step| step.size)
}

/// Its decompressed size; `OFFLD_NONE` if it is not compressed, or that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_plain_size(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.plain_size).unwrap_or(u64::MAX)
}

/// How it is compressed: `zstd`, `zlib`, `lz4`, …; empty if it is not.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_compression(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.compression))
}

/// The version of a container's format; 0 where it has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_version(step: Option<&OffldStep>) -> u32 {
    step.map_or(0, |step| step.version)
}
