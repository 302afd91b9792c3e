//! The form of a record's file: a head that says what it is and under which key, then the bytes. The digest is of key and bytes, so that
//! a file under another's name is as little a record as one with a flipped bit.
//!
//! ```text
//! 0   8   "offld\0r1"
//! 8   16  digest of key and bytes, little endian
//! 24      the bytes, to the end of the file
//! ```

use std::fs::File;
use std::io::Read;

use anyhow::{Result, bail};

use super::super::KeyBuilder;
use super::Digest;

const MAGIC: &[u8; 8] = b"offld\0r1";
const HEAD: usize = 24;
/// A record is read into memory whole; what is larger was not written by us.
const LARGEST: u64 = 64 << 20;

/// The file of a record.
pub(super) fn write(key: Digest, bytes: &[u8]) -> Result<Vec<u8>> {
    let len = bytes.len() as u64;
    if len > LARGEST - HEAD as u64 {
        bail!("a record of {len} bytes: they are at most 64 MiB");
    }
    Ok([MAGIC.as_slice(), &digest(key, bytes), bytes].concat())
}

/// The bytes of the record that is in `file`; none where that is no record under `key`.
pub(super) fn read(file: &File, key: Digest) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut whole).ok()?;
    if whole.len() as u64 > LARGEST {
        return None;
    }
    let rest = whole.strip_prefix(MAGIC)?;
    let (found, bytes) = rest.split_at_checked(HEAD - MAGIC.len())?;
    (found == digest(key, bytes)).then(|| bytes.to_vec())
}

fn digest(key: Digest, bytes: &[u8]) -> [u8; 16] {
    let mut parts = KeyBuilder::default();
    parts.add(key.0.to_le_bytes()).add(bytes);
    parts.digest().0.to_le_bytes()
}
