//! The bytes of an image: some at hand, most in files, from which they are copied by the system.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::io::outputs::Output;

/// How much of a file is at hand at once, where its bytes have to be looked at.
const CHUNK: usize = 64 << 10;

/// The bytes of an image.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Bytes(Vec<u8>),
    File { file: Arc<File>, at: u64, size: u64 },
}

impl Content {
    /// These bytes.
    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Content { pieces: vec![Piece::Bytes(bytes)] }
    }

    /// Adds bytes.
    pub(super) fn add_bytes(&mut self, bytes: Vec<u8>) {
        self.pieces.push(Piece::Bytes(bytes));
    }

    /// Adds part of a file.
    pub(super) fn add_file(&mut self, file: &Arc<File>, at: u64, size: u64) {
        self.pieces.push(Piece::File { file: Arc::clone(file), at, size });
    }

    /// How many bytes there are.
    pub(super) fn size(&self) -> u64 {
        let size = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { size, .. } => *size,
        };
        self.pieces.iter().map(size).sum()
    }

    /// All of them.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.each_chunk(|chunk| all.write_all(chunk))?;
        Ok(all)
    }

    /// Hands over all bytes, some at a time.
    pub(super) fn each_chunk(&self, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => take(bytes)?,
                Piece::File { file, at, size } => {
                    let mut buffer = vec![0; CHUNK.min(usize::try_from(*size).unwrap_or(CHUNK))];
                    let mut done = 0;
                    while done < *size {
                        let left = usize::try_from(*size - done).unwrap_or(CHUNK).min(CHUNK);
                        let chunk = buffer.get_mut(..left).unwrap_or_default();
                        file.read_exact_at(chunk, at + done)?;
                        take(chunk)?;
                        done += left as u64;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies all bytes to where `out` stands.
    pub(super) fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.write_all(bytes)?,
                Piece::File { file, at, size } => out.copy_range(file, *at, *size)?,
            }
        }
        Ok(())
    }
}
