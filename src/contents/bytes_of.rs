//! Reads images through a buffer instead of the memory map, because every page of the map that is read counts as memory in use.

use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};

use crate::io::piece::{Piece, PieceReader};

/// The size of the buffer.
pub(super) const CHUNK: usize = 256 << 10;

/// A reader of the bytes of `piece`.
pub(super) fn reader(piece: &Piece) -> BufReader<PieceReader<'_>> {
    BufReader::with_capacity(CHUNK, piece.reader())
}

/// The SHA-256 of the bytes, in hexadecimal.
pub(super) fn sha256(piece: &Piece) -> io::Result<String> {
    Ok(digest(piece)?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The SHA-256 of the bytes.
pub(crate) fn digest(piece: &Piece) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut reader = piece.reader();
    let mut buffer = vec![0; usize::try_from(piece.size()).unwrap_or(CHUNK).clamp(1, CHUNK)];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            len => hash.update(buffer.get(..len).unwrap_or_default()),
        }
    }
    Ok(hash.finalize().into())
}
