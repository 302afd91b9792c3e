//! OffloadBinary headers: enough to skip a binary, or to decompress it elsewhere.

use super::{HEADER_SIZE, is_offload_binary};
use crate::error::Malformed;
use crate::formats::{magic, slice, u32_at, u64_at};

/// The largest growth of zstd or zlib data: a zstd block of 128 KiB takes at least 4 bytes. A
/// header that claims more is wrong.
const MAX_GROWTH: u64 = 32 << 10;

/// The header of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The version: 1, 2 or 3.
    pub version: u32,
    /// The size of the binary in the data, in bytes.
    pub size: u64,
    /// The compressed part, if there is one.
    pub packed: Option<PackedPart>,
}

/// The location of the compressed data in a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedPart {
    /// The offset in the binary. The compressed data extends to the binary's end; the bytes before
    /// it are not compressed.
    pub at: u64,
    /// Whether the data is a zstd frame. Otherwise it is a zlib stream.
    pub zstd: bool,
    /// The size of the whole binary after decompression.
    pub plain_size: u64,
}

impl Head {
    /// Reads the header of the binary at offset `at` of `data`. Any data may follow the binary.
    pub fn read(data: &[u8], at: u64) -> Result<Head, Malformed> {
        let fault = |what| Malformed::new(what, at);
        let rest = slice(
            data,
            at,
            (data.len() as u64).saturating_sub(at),
            "offload binary past the end",
            at,
        )?;
        if !is_offload_binary(rest) {
            return Err(fault("not an offload binary"));
        }
        let header = slice(rest, 0, HEADER_SIZE, "header past the end", at)?;
        let (version, size) = (u32_at(header, 4), u64_at(header, 8));
        if !(1..=3).contains(&version) {
            return Err(fault("unsupported offload binary version"));
        }
        let whole = slice(rest, 0, size, "size field past the end", at)?;
        if size < HEADER_SIZE {
            return Err(fault("size field too small"));
        }
        let mut head = Head {
            version,
            size,
            packed: None,
        };
        if version < 3 {
            return Ok(head);
        }
        let long = slice(whole, 0, HEADER_SIZE + 8, "size field too small", at)?;
        let (packed_at, plain_size) = (u64_at(long, 16), u64_at(long, 32));
        if plain_size == 0 {
            return Ok(head);
        }
        let packed = slice(
            whole,
            packed_at,
            size.saturating_sub(packed_at),
            "entry past the end",
            at,
        )?;
        if packed_at < HEADER_SIZE + 8 {
            return Err(fault("entry inside the header"));
        }
        let grown = plain_size
            .checked_sub(packed_at)
            .ok_or(fault("uncompressed size too small"))?;
        if grown > (packed.len() as u64).saturating_mul(MAX_GROWTH) {
            return Err(fault(
                "uncompressed size is more than the compressed data can hold",
            ));
        }
        let zstd = packed.starts_with(&magic::ZSTD);
        head.packed = Some(PackedPart {
            at: packed_at,
            zstd,
            plain_size,
        });
        Ok(head)
    }

    /// The start of the uncompressed form of `whole`: its bytes before the compressed data, with
    /// the fields of an uncompressed binary. `None` if the binary is not compressed.
    pub fn plain_start(&self, whole: &[u8]) -> Option<Vec<u8>> {
        let packed = self.packed?;
        let mut start = whole.get(..usize::try_from(packed.at).ok()?)?.to_vec();
        start
            .get_mut(8..16)?
            .copy_from_slice(&packed.plain_size.to_le_bytes());
        start.get_mut(32..40)?.fill(0);
        Some(start)
    }
}
