//! What one object of a remote looks like: a head, and some bytes, packed where that makes them fewer.
//!
//! ```text
//! 0   "offld-r1"
//! 8   how the body is packed: 0 not at all, 1 zstd
//! 9   the size of all that this is a part of, 8 bytes, little endian
//! 17  a digest of the name, that size and the bytes before they were packed, 16 bytes, little endian
//! 33  the body
//! ```
//!
//! A record is one object. A blob is several, each but the last of as many bytes as the first and at most [`PART`], so that memory
//! does not grow with blobs, and no service's limit on the size of an object is met.

use crate::store::{Digest, KeyBuilder};

/// How many bytes are in one object at most.
pub const PART: usize = 4 << 20;
/// How long an object can be: what does not get smaller is not packed.
pub const LONGEST: usize = HEAD + PART;

const MAGIC: &[u8; 8] = b"offld-r1";
const HEAD: usize = 33;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Networks are slower than zstd at this level.
const LEVEL: i32 = 1;

/// The object `name` for `bytes`, a part of something of `whole` bytes.
pub fn encode(name: &str, whole: u64, bytes: &[u8]) -> Vec<u8> {
    let packed = zstd::bulk::compress(bytes, LEVEL).ok().filter(|packed| packed.len() < bytes.len());
    let (packing, body) = packed.as_deref().map_or((PLAIN, bytes), |packed| (ZSTD, packed));
    let mut object = Vec::with_capacity(HEAD + body.len());
    object.extend_from_slice(MAGIC);
    object.push(packing);
    object.extend_from_slice(&whole.to_le_bytes());
    object.extend_from_slice(&digest(name, whole, bytes).0.to_le_bytes());
    object.extend_from_slice(body);
    object
}

/// The size of the whole, and the bytes in an object that was asked for as `name`; none unless all of it is right.
pub fn decode(name: &str, object: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (head, body) = object.split_at_checked(HEAD)?;
    let whole = u64::from_le_bytes(head.get(9..17)?.try_into().ok()?);
    let told = u128::from_le_bytes(head.get(17..33)?.try_into().ok()?);
    let bytes = match *head.get(8)? {
        PLAIN => body.to_vec(),
        // What claims to be more than a part is not one.
        ZSTD => zstd::bulk::decompress(body, PART).ok()?,
        _ => return None,
    };
    (head.starts_with(MAGIC) && digest(name, whole, &bytes).0 == told).then_some((whole, bytes))
}

fn digest(name: &str, whole: u64, bytes: &[u8]) -> Digest {
    KeyBuilder::default().add(name).add(whole.to_le_bytes()).add(bytes).digest()
}
