//! The file format of a record: a header, then the bytes. The digest covers key and bytes, so a
//! record under the name of another one is as invalid as one with a flipped bit.
//!
//! ```text
//! 0 8 "offld\0r2"
//! 8 32 digest of key and bytes
//! 40 the bytes, to the end of the file
//! ```

use std::fs::File;
use std::io::Read;

use anyhow::{Result, bail};

use super::super::{Digest, Key, KeyBuilder};

const MAGIC: &[u8; 8] = b"offld\0r2";
const HEAD: usize = 40;
/// Maximum file size, in bytes: records are read into memory whole. Larger files were not written
/// by offld.
const LARGEST: u64 = 64 << 20;

/// Returns the contents of a record file.
///
/// # Errors
/// There are too many bytes.
pub(super) fn write(key: Key, bytes: &[u8]) -> Result<Vec<u8>> {
    let len = bytes.len() as u64;
    if len > LARGEST - HEAD as u64 {
        bail!("a record of {len} bytes exceeds the limit of 64 MiB");
    }
    Ok([MAGIC.as_slice(), digest(key, bytes).bytes(), bytes].concat())
}

/// Returns the bytes of the record in `file`, or `None` if it is not a valid record under `key`.
pub(super) fn read(file: &File, key: Key) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut whole).ok()?;
    if whole.len() as u64 > LARGEST {
        return None;
    }
    let rest = whole.strip_prefix(MAGIC)?;
    let (found, bytes) = rest.split_at_checked(HEAD - MAGIC.len())?;
    (found == digest(key, bytes).bytes()).then(|| bytes.to_vec())
}

fn digest(key: Key, bytes: &[u8]) -> Digest {
    KeyBuilder::default().add(key.bytes()).add(bytes).digest()
}
