//! Archives whose members are pieces: the kernel copies large members from file to file, not
//! through memory.

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::FileSlice;
use crate::formats::archive::{MemberContents, NewMember, member_at, write};
use crate::formats::{bitcode, magic};
use crate::io::outputs::Output;
use crate::sys::session::Session;

/// Returns the member with its header at offset `header` of the archive at `path`. A thin archive
/// refers to members of other archives this way.
pub(crate) fn member_of(path: &Path, header: u64) -> Result<FileSlice> {
    let archive = FileSlice::open_member(path)?;
    let found = member_at(archive.bytes(), header)
        .map_err(|fault| anyhow!(fault.in_archive(&path.display())))?;
    let piece = found.and_then(|member| match member.contents {
        MemberContents::Within { offset, size } => archive.slice(offset, size),
        _ => None,
    });
    piece.with_context(|| {
        format!(
            "{}: no member at offset {header:#x}: the archive has changed",
            path.display()
        )
    })
}

/// Writes a GNU archive of `members`, each with its name, to `out`. Its symbol index covers native
/// objects and bitcode. Unreadable bitcode is stored without symbols, with a warning.
pub(crate) fn write_archive<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a FileSlice)>,
    out: &mut Output,
    session: &Session,
) -> io::Result<()> {
    let members: Vec<(&str, &FileSlice)> = members.into_iter().collect();
    for (name, piece) in &members {
        if magic::is_bitcode(piece.bytes())
            && let Err(fault) = bitcode::symbols(piece.bytes())
        {
            session.shell.warn(&format!(
                "'{name}': its symbols are missing from the archive's index: cannot read the bitcode at offset {:#x}: {}",
                fault.at, fault.what
            ));
        }
    }
    let pieces = members
        .iter()
        .map(|(_, piece)| (address(piece.bytes()), *piece))
        .collect();
    let members = members.into_iter().map(|(name, piece)| NewMember {
        name: name.to_owned(),
        bytes: Box::new(piece),
    });
    write(members.collect(), &mut PieceWriter { out, pieces })
}

/// Copies a piece's bytes from its file if the archive writer writes exactly that piece, and passes
/// everything else on. The writer gets byte slices only, so a piece is recognised by the address of
/// its slice.
struct PieceWriter<'a> {
    out: &'a mut Output,
    pieces: HashMap<(usize, usize), &'a FileSlice>,
}

/// The address and length of a slice.
fn address(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pieces.get(&address(bytes)) {
            Some(piece) => piece.copy_to(self.out).map(|()| bytes.len()),
            None => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for PieceWriter<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}
