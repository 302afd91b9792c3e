//! The contents of a file in a tar archive, with the zeros of sparse files.

use std::io::{self, Read};
use std::slice;

use super::sparse::Part;
use super::{TarInput, TarMember, TarReader};

/// Reads a file in a tar archive.
#[derive(Debug)]
pub struct TarContents<'t, R> {
    tar: &'t mut TarReader<R>,
    plain_size: u64,
    /// The remaining parts of a sparse file. `None` for other files.
    parts: Option<slice::Iter<'t, Part>>,
    /// The next part, or the one being read.
    next: Option<Part>,
    at: u64,
}

impl<'t, R: TarInput> TarContents<'t, R> {
    pub(super) fn new(tar: &'t mut TarReader<R>, member: &'t TarMember) -> Self {
        let mut parts = member.sparse.as_ref().map(|parts| parts.iter());
        let next = parts.as_mut().and_then(Iterator::next).copied();
        TarContents {
            tar,
            plain_size: member.plain_size,
            parts,
            next,
            at: 0,
        }
    }
}

impl<R: TarInput> Read for TarContents<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(parts) = &mut self.parts else {
            return self.tar.stored().read(buffer);
        };
        if let Some(part) = self.next.filter(|part| part.offset <= self.at) {
            let most = usize::try_from(part.offset + part.size - self.at)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let len = self
                .tar
                .stored()
                .read(buffer.get_mut(..most).unwrap_or_default())?;
            self.at += len as u64;
            if self.at == part.offset + part.size {
                self.next = parts.next().copied();
            }
            return Ok(len);
        }
        let zeros = self.next.map_or(self.plain_size, |part| part.offset) - self.at;
        let most = usize::try_from(zeros)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        buffer.get_mut(..most).unwrap_or_default().fill(0);
        self.at += most as u64;
        Ok(most)
    }
}
