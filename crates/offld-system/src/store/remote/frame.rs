//! Names and format of the objects in a remote cache. An object is a header and a body. The body is
//! compressed if compression makes the body smaller.
//!
//! A record is one object, `r/<key>`. A blob is split into the objects `b/<name>`, `b/<name>.1`,
//! `b/<name>.2`… If there is a secret key, the prefix `signed/` precedes all names, for example
//! `signed/r/<key>`. So users with and without a secret key can share one remote cache, and they do
//! not replace each other's objects.
//!
//! ```text
//! offset contents
//! 0 "offld-r2"
//! 8 compression of the body: 0 none, 1 zstd
//! 9 the size of the whole record or blob, 8 bytes, little endian
//! 17 BLAKE3 of the object's name, bytes 0 to 16, and the body; keyed if there is a secret key
//! 49 the body
//! ```
//!
//! Each object of a blob holds one part of the blob. The writer chooses the part size, at most
//! [`PART`] bytes. All parts except the last part have this size. Readers learn the part size from
//! the first object. Because blobs are split, memory use does not grow with the size of blobs. No
//! object exceeds a service's limit on the size of objects.
//!
//! The digest covers the name of the object, so an object under another name fails verification.
//! Readers check the digest before they decompress the body.

use crate::store::{Digest, Key, KeyBuilder, SecretKey};

/// Maximum number of uncompressed bytes of a record or blob in one object.
pub(super) const PART: usize = 4 << 20;
/// Size of the largest object, in bytes. No body is larger than [`PART`], because bodies that would
/// not shrink are stored uncompressed.
pub(super) const LONGEST: usize = HEAD + PART;

const MAGIC: &[u8; 8] = b"offld-r2";
/// Offset of the digest.
const DIGEST: usize = 17;
/// Offset of the body, and size of the header.
const HEAD: usize = 49;
/// Marks an uncompressed body.
const PLAIN: u8 = 0;
/// Marks a body that is compressed with zstd.
const ZSTD: u8 = 1;
/// zstd's compression level. At this level, zstd compresses data faster than networks transfer it.
const LEVEL: i32 = 1;

/// Maximum ratio of a blob's uncompressed bytes to received bytes. The first [`PART`] uncompressed
/// bytes do not count. Bodies that would compress by a higher ratio are sent uncompressed.
const MAX_EXPANSION: u64 = 64;

/// Whether `arrived` bytes from the network may have produced `written` bytes of a blob. This check
/// prevents small objects from filling the disk.
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
    /// Creates a frame. If there is a `key`, the frame signs all objects with the key.
    pub(super) fn new(key: Option<SecretKey>) -> Frame {
        Frame { key }
    }

    /// Returns the object name of the record under `key`.
    pub(super) fn record_name(&self, key: Key) -> String {
        format!("{}r/{key}", self.folder())
    }

    /// Returns the object name of part `part` of a blob. The name of part 0 has no number. Writers
    /// send part 0 last, so the presence of part 0 shows that the blob is complete.
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

    /// Encodes the object `name`. `bytes` is one part of a record or blob, and `whole` is the size
    /// of the record or blob in bytes.
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

    /// Encodes the object `name` for a part that is already compressed (`body`).
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

    /// Decodes an object that was fetched as `name`. Returns the size of the whole record or blob,
    /// and the uncompressed bytes of the object. Returns `None` if the object is damaged or has no
    /// valid signature.
    pub(super) fn decode(&self, name: &str, object: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (head, body) = object.split_at_checked(HEAD)?;
        let (before, digest) = head.split_at_checked(DIGEST)?;
        if !head.starts_with(MAGIC) || !self.digest(name, before, body).is(digest) {
            return None;
        }
        let whole = u64::from_le_bytes(head.get(9..DIGEST)?.try_into().ok()?);
        let bytes = match *head.get(8)? {
            PLAIN => body.to_vec(),
            // Decompress at most one part, even if the compressed data claims a larger size.
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
