//! The enclosing things of an image: archive members, compressed files, sections, variables,
//! containers.

#![expect(unsafe_code, reason = "exported C symbols")]

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
        let plain = |kind: &str, name: &str, offset: Option<u64>, size: u64| {
            let (kind, name) = (Text::from(kind), Text::from(name));
            OffldStep {
                kind,
                name,
                compression: Text::from(""),
                offset,
                size,
                plain_size: None,
                version: 0,
            }
        };
        match step {
            Step::Member {
                name,
                offset,
                size,
                compression,
                plain_size,
                ..
            } => OffldStep {
                compression: Text::of(*compression),
                plain_size: *plain_size,
                ..plain("member", name, *offset, *size)
            },
            Step::Compressed {
                name,
                offset,
                size,
                plain_size,
            } => OffldStep {
                compression: Text::from(*name),
                plain_size: *plain_size,
                ..plain("compressed", name, *offset, *size)
            },
            Step::Section { name, offset, size } => plain("section", name, *offset, *size),
            Step::Symbol { name, offset, size } => plain("symbol", name, *offset, *size),
            Step::Container {
                name,
                offset,
                size,
                version,
                compression,
                plain_size,
                ..
            } => OffldStep {
                compression: Text::of(*compression),
                plain_size: *plain_size,
                version: version.unwrap_or(0),
                ..plain("container", name, *offset, *size)
            },
        }
    }
}

/// Returns the kind: `member` of an archive, `compressed` file, `section`, `symbol` (a variable),
/// `container`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_kind(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.kind))
}

/// Returns the name of the member, section or variable, the format of a container
/// (`offload-binary`, `bundle`, `fatbinary`, …), or the compression of a compressed file.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_name(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.name))
}

/// Returns the offset in the file or buffer, in bytes; `OFFLD_NONE` inside decompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_offset(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.offset).unwrap_or(u64::MAX)
}

/// Returns the stored size in bytes, which is the compressed size for compressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_size(step: Option<&OffldStep>) -> u64 {
    step.map_or(0, |step| step.size)
}

/// Returns the uncompressed size; `OFFLD_NONE` if the data is not compressed, or if the size is
/// unknown.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_plain_size(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.plain_size).unwrap_or(u64::MAX)
}

/// Returns the compression: `zstd`, `zlib`, `lz4`, …; empty for uncompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_compression(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.compression))
}

/// Returns the version of a container's format; 0 if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_version(step: Option<&OffldStep>) -> u32 {
    step.map_or(0, |step| step.version)
}
