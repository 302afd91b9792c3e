//! What inspection asks of a piece of a file beyond its bytes. What is as large as an image is read in ranges: every page of a map
//! that is touched counts as memory.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::io::piece::{Piece, Reader};

const CHUNK: usize = 256 << 10;

/// All of the file at `path`, which must be a regular one.
pub(super) fn open(path: &Path) -> io::Result<Piece> {
    // A pipe would be waited for, and a folder has no bytes.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other(if meta.is_dir() { "is a folder" } else { "is not a regular file" }));
    }
    Piece::of(File::open(path)?)
}

/// Reads the bytes of `piece`, not through the map.
pub(super) fn reader(piece: &Piece) -> BufReader<Reader<'_>> {
    BufReader::with_capacity(CHUNK, piece.reader())
}

/// The SHA-256 of the bytes, in hexadecimal.
pub(super) fn sha256(piece: &Piece) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut reader = piece.reader();
    let mut buffer = vec![0; CHUNK];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            len => hash.update(buffer.get(..len).unwrap_or_default()),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
