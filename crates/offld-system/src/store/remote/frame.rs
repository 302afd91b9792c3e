//! Names and format of the objects on a remote cache. An object is a header and a body, which is
//! compressed if that makes it smaller.
//!
//! A record is the object `r/<key>`. A blob is the objects `b/<name>`, `b/<name>.1`, `b/<name>.2`…
//! If there is a secret key, all objects are in `signed`: `signed/r/<key>`. So users with and
//! without a secret key can share one remote cache without replacing each other's objects.
//!
//! ```text
//! 0 "offld-r2"
//! 8 compression of the body: 0 none, 1 zstd
//! 9 the size of the whole record or blob, 8 bytes, little endian
//! 17 BLAKE3 of the name and of all other bytes of the object, keyed if there is a secret key
//! 49 the body
//! ```
//!
//! Each object of a blob holds as many bytes of the blob as the first object, at most [`PART`].
//! Only the last object can hold fewer. So memory use does not grow with the size of blobs, and no
//! service's limit on the size of objects is exceeded. The digest covers the name of the object, so
//! an object under another name fails verification. The digest is checked before the body is
//! decompressed.

use crate::store::{Digest, Key, KeyBuilder, SecretKey};

/// Maximum number of bytes of a record or blob in one object.
pub(super) const PART: usize = 4 << 20;
/// Size of the largest object, in bytes: bodies that would not shrink are stored uncompressed.
pub(super) const LONGEST: usize = HEAD + PART;

const MAGIC: &[u8; 8] = b"offld-r2";
/// Offsets of the digest and of the body.
const DIGEST: usize = 17;
const HEAD: usize = 49;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Compression level of zstd: at this one it is faster than networks.
const LEVEL: i32 = 1;

/// Maximum ratio of contents to received bytes. The first [`PART`] bytes of the contents do not
/// count. Bodies that would compress by a higher ratio are sent uncompressed.
const MAX_EXPANSION: u64 = 64;

/// Whether a blob may have `written` bytes so far if `arrived` bytes came over the network. This
/// prevents a small object from filling the disk.
pub(super) fn is_plausible(written: u64, arrived: u64) -> bool {
    written
        <= arrived
            .saturating_mul(MAX_EXPANSION)
            .saturating_add(PART as u64)
}

/// Names and encodes objects, with or without signatures.
#[derive(Debug)]
pub(super) struct Frame {
    key: Option<SecretKey>,
}

impl Frame {
    /// Creates a frame for objects that are signed with `key`, if there is one.
    pub(super) fn new(key: Option<SecretKey>) -> Frame {
        Frame { key }
    }

    /// The name of the object of a record.
    pub(super) fn record_name(&self, key: Key) -> String {
        format!("{}r/{key}", self.folder())
    }

    /// The name of an object of a blob. The first object has no number in its name. It is written
    /// last, so its presence shows that the blob is complete.
    pub(super) fn part_name(&self, blob: Digest, part: u64) -> String {
        let folder = self.folder();
        if part == 0 {
            format!("{folder}b/{blob}")
        } else {
            format!("{folder}b/{blob}.{part}")
        }
    }

    fn folder(&self) -> &'static str {
        if self.key.is_some() { "signed/" } else { "" }
    }

    /// Encodes the object `name` for `bytes`, a part of a record or blob of `whole` bytes.
    pub(super) fn encode(&self, name: &str, whole: u64, bytes: &[u8]) -> Vec<u8> {
        let worth = |packed: &Vec<u8>| {
            packed.len() < bytes.len()
                && (packed.len() as u64) * MAX_EXPANSION >= bytes.len() as u64
        };
        let packed = zstd::bulk::compress(bytes, LEVEL).ok().filter(worth);
        packed.map_or_else(
            || self.object(name, PLAIN, whole, bytes),
            |packed| self.packed(name, whole, &packed),
        )
    }

    /// Encodes a part that is compressed already.
    pub(super) fn packed(&self, name: &str, whole: u64, body: &[u8]) -> Vec<u8> {
        self.object(name, ZSTD, whole, body)
    }

    fn object(&self, name: &str, packing: u8, whole: u64, body: &[u8]) -> Vec<u8> {
        let mut object = Vec::with_capacity(HEAD + body.len());
        object.extend_from_slice(MAGIC);
        object.push(packing);
        object.extend_from_slice(&whole.to_le_bytes());
        let digest = self.digest(name, &object, body);
        object.extend_from_slice(digest.bytes());
        object.extend_from_slice(body);
        object
    }

    /// Decodes an object that was fetched as `name`: the size of the whole record or blob, and the
    /// bytes of this object. Returns `None` if it is damaged, or not signed with the key.
    pub(super) fn decode(&self, name: &str, object: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (head, body) = object.split_at_checked(HEAD)?;
        let (before, digest) = head.split_at_checked(DIGEST)?;
        if !head.starts_with(MAGIC) || !self.digest(name, before, body).is(digest) {
            return None;
        }
        let whole = u64::from_le_bytes(head.get(9..DIGEST)?.try_into().ok()?);
        let bytes = match *head.get(8)? {
            PLAIN => body.to_vec(),
            // Never more than a part, whatever size the data claims.
            ZSTD => zstd::bulk::decompress(body, PART).ok()?,
            _ => return None,
        };
        Some((whole, bytes))
    }

    fn digest(&self, name: &str, head: &[u8], body: &[u8]) -> Digest {
        let mut parts = self
            .key
            .as_ref()
            .map_or_else(KeyBuilder::default, SecretKey::builder);
        parts.add(name).add(head).add(body).digest()
    }
}
