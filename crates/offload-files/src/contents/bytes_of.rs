//! Readers of images through a buffer instead of the memory map, because every page of the map that
//! is read counts as memory in use.

use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use offld_system::io::file_slice::{FileSlice, PieceReader};
use offld_system::io::rope::Rope;

/// The size of the buffer.
pub(super) const CHUNK: usize = 256 << 10;

/// A reader of the bytes of `piece`.
pub(super) fn reader(piece: &FileSlice) -> BufReader<PieceReader<'_>> {
    BufReader::with_capacity(CHUNK, piece.reader())
}

/// The SHA-256 of the bytes, in hexadecimal.
pub(crate) fn sha256(piece: &FileSlice) -> io::Result<String> {
    let mut hash = Sha256::new();
    chunks(piece, |chunk| hash.update(chunk))?;
    Ok(hexadecimal(hash))
}

/// The SHA-256 of the bytes of `rope`, in hexadecimal.
pub(crate) fn rope_sha256(rope: &Rope) -> io::Result<String> {
    let mut hash = Sha256::new();
    rope.for_each_chunk(|chunk| {
        hash.update(chunk);
        Ok(())
    })?;
    Ok(hexadecimal(hash))
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A digest that identifies equal bytes (XXH3 with 128 bits). Use it only if an attacker gains
/// nothing from a collision.
pub(crate) fn quick_digest(piece: &FileSlice) -> io::Result<u128> {
    let mut hash = Xxh3::new();
    chunks(piece, |chunk| hash.update(chunk))?;
    Ok(hash.digest128())
}

/// Passes the bytes to `take` in chunks.
pub(crate) fn chunks(piece: &FileSlice, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut reader = piece.reader();
    let mut buffer = vec![
        0;
        usize::try_from(piece.size())
            .unwrap_or(CHUNK)
            .clamp(1, CHUNK)
    ];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(()),
            len => take(buffer.get(..len).unwrap_or_default()),
        }
    }
}
