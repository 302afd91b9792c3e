//! Containers that are compressed, written anew.

use std::io::Write;

use anyhow::{Context, Result};

use super::{Levels, Outcome};
use crate::formats::compressed::{Compressor, Header, Method, Options, Version};
use crate::formats::u64_at;
use crate::io::file_slice::Spool;
use crate::io::rope::Rope;

/// The level of zstd that compilers use.
const LEVEL: i32 = 3;
/// The level of zlib that compilers use.
const ZLIB_LEVEL: u32 = 6;

/// The bundle `plain`, compressed as a whole, in the version of the format and by the method that
/// the old one had, whose header is `header`.
pub(super) fn bundle(
    plain: &Rope,
    header: Header,
    levels: Levels,
    spool: &mut Spool,
) -> Result<Outcome> {
    let usual = if header.method == Method::Zlib {
        ZLIB_LEVEL as i32
    } else {
        LEVEL
    };
    let version = Version::of(header.version).unwrap_or(Version::V3);
    let options = Options {
        version,
        method: header.method,
        level: levels.level.unwrap_or(usual),
        ..Options::default()
    };
    let packed = spool.add(|file| {
        let mut compressor = Compressor::new(file, plain.size(), options)?;
        plain.write_to(&mut compressor)?;
        compressor.finish()?;
        Ok(())
    })?;
    Ok(Outcome::New(Rope::from(packed).into()))
}

/// The OffloadBinary `plain`, compressed as those of version 3 are: all behind its header, by the
/// method that the old one had.
pub(super) fn offload_binary(
    plain: &Rope,
    method: Method,
    levels: Levels,
    spool: &mut Spool,
) -> Result<Outcome> {
    let whole = plain.clone().into_piece(spool)?;
    let head = whole.bytes().get(..48);
    let entries_at = u64_at(head.context("OffloadBinary without a header")?, 16);
    let mut head = whole
        .bytes()
        .get(..usize::try_from(entries_at)?)
        .context("entries past the end")?
        .to_vec();
    let packed = spool.add(|file| {
        match method {
            Method::Zstd => {
                let mut encoder =
                    zstd::stream::write::Encoder::new(&mut *file, levels.level.unwrap_or(LEVEL))?;
                encoder.set_pledged_src_size(Some(whole.size() - entries_at))?;
                encoder.include_contentsize(true)?;
                Rope::from(whole.from(entries_at)).write_to(&mut encoder)?;
                encoder.finish()?;
            }
            Method::Zlib => {
                let level = levels
                    .level
                    .and_then(|level| u32::try_from(level.clamp(1, 9)).ok())
                    .unwrap_or(ZLIB_LEVEL);
                let mut encoder =
                    flate2::write::ZlibEncoder::new(&mut *file, flate2::Compression::new(level));
                Rope::from(whole.from(entries_at)).write_to(&mut encoder)?;
                encoder.finish()?;
            }
        }
        file.flush()?;
        Ok(())
    })?;
    let total = entries_at + packed.size();
    let mut set = |at: usize, value: u64| {
        head.get_mut(at..at + 8)
            .map(|field| field.copy_from_slice(&value.to_le_bytes()))
    };
    set(8, total)
        .zip(set(32, whole.size()))
        .context("OffloadBinary header too small for its sizes")?;
    let mut bytes = Rope::from(head);
    bytes.push_piece(packed);
    Ok(Outcome::New(bytes.into()))
}
