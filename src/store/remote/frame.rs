//! The objects of a remote: their names, and their format, a header and bytes, compressed where that makes them fewer.
//!
//! A record is the object `r/<key>`. A blob is the objects `b/<name>`, `b/<name>.1`, `b/<name>.2`…
//!
//! ```text
//! 0   "offld-r1"
//! 8   how the body is compressed: 0 not at all, 1 zstd
//! 9   the size of the whole record or blob, 8 bytes, little endian
//! 17  a digest of the name, that size and the uncompressed bytes, 16 bytes, little endian
//! 33  the body
//! ```
//!
//! The objects of a blob all have as many bytes as the first, but for the last, and at most [`PART`], so that memory does not grow
//! with blobs, and no service's limit on the size of objects is exceeded.

use crate::store::{Digest, KeyBuilder};

/// The most bytes of a record or blob in one object.
pub(super) const PART: usize = 4 << 20;
/// The size of the largest object: bytes that do not become fewer are not compressed.
pub(super) const LONGEST: usize = HEAD + PART;

const MAGIC: &[u8; 8] = b"offld-r1";
const HEAD: usize = 33;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// The level of zstd: at this one it is faster than networks.
const LEVEL: i32 = 1;

/// How many times as long as what arrives its contents may be, beyond one part. What would become shorter than that is sent as it
/// is.
const MOST_INFLATED: u64 = 64;

/// Whether a blob may have `written` bytes so far of which `arrived` came over the network: few bytes cannot have a disk filled.
pub(super) fn is_plausible(written: u64, arrived: u64) -> bool {
    written <= arrived.saturating_mul(MOST_INFLATED).saturating_add(PART as u64)
}

/// The name of the object of a record.
pub(super) fn record_name(key: Digest) -> String {
    format!("r/{key}")
}

/// The name of an object of a blob; the first one's, without a number, stands for the blob.
pub(super) fn part_name(blob: Digest, part: u64) -> String {
    if part == 0 { format!("b/{blob}") } else { format!("b/{blob}.{part}") }
}

/// The object `name` for `bytes`, a part of a record or blob of `whole` bytes.
pub(super) fn encode(name: &str, whole: u64, bytes: &[u8]) -> Vec<u8> {
    let worth = |packed: &Vec<u8>| packed.len() < bytes.len() && (packed.len() as u64) * MOST_INFLATED >= bytes.len() as u64;
    let packed = zstd::bulk::compress(bytes, LEVEL).ok().filter(worth);
    let (packing, body) = packed.as_deref().map_or((PLAIN, bytes), |packed| (ZSTD, packed));
    let mut object = Vec::with_capacity(HEAD + body.len());
    object.extend_from_slice(MAGIC);
    object.push(packing);
    object.extend_from_slice(&whole.to_le_bytes());
    object.extend_from_slice(&digest(name, whole, bytes).0.to_le_bytes());
    object.extend_from_slice(body);
    object
}

/// The size of the whole record or blob, and the bytes of this object, which was fetched as `name`; `None` for a damaged object.
pub(super) fn decode(name: &str, object: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (head, body) = object.split_at_checked(HEAD)?;
    let whole = u64::from_le_bytes(head.get(9..17)?.try_into().ok()?);
    let stored = u128::from_le_bytes(head.get(17..33)?.try_into().ok()?);
    let bytes = match *head.get(8)? {
        PLAIN => body.to_vec(),
        // Never more than a part, whatever the data says.
        ZSTD => zstd::bulk::decompress(body, PART).ok()?,
        _ => return None,
    };
    (head.starts_with(MAGIC) && digest(name, whole, &bytes).0 == stored).then_some((whole, bytes))
}

fn digest(name: &str, whole: u64, bytes: &[u8]) -> Digest {
    KeyBuilder::default().add(name).add(whole.to_le_bytes()).add(bytes).digest()
}
