//! Sources of tar archives.

use std::io::{self, Read};

/// A source of bytes that can skip.
pub trait TarInput: Read {
    /// Skips `len` bytes, or all that are left. Returns the number of skipped bytes.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn pass(&mut self, len: u64) -> io::Result<u64>;
}

/// An archive in memory or in a mapped file. Skipped data is not accessed.
#[derive(Debug)]
pub struct InMemory<'data>(&'data [u8]);

impl<'data> InMemory<'data> {
    /// The archive `data`.
    pub fn new(data: &'data [u8]) -> Self {
        InMemory(data)
    }
}

impl Read for InMemory<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl TarInput for InMemory<'_> {
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.0.len());
        self.0 = self.0.get(len..).unwrap_or_default();
        Ok(len as u64)
    }
}

/// An archive from a stream. Skipped data is read and dropped.
#[derive(Debug)]
pub struct Streamed<R>(R);

impl<R: Read> Streamed<R> {
    /// The archive that `stream` yields.
    pub fn new(stream: R) -> Self {
        Streamed(stream)
    }

    /// The stream, positioned after the data that was read.
    pub fn into_inner(self) -> R {
        self.0
    }
}

impl<R: Read> Read for Streamed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> TarInput for Streamed<R> {
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        io::copy(&mut self.0.by_ref().take(len), &mut io::sink())
    }
}
