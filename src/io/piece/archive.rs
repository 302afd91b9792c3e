//! Archives whose members are pieces: large members are copied from file to file by the system, without passing through memory.

use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::Piece;
use crate::formats::archive::{MemberContents, NewMember, member_at, write};
use crate::formats::{bitcode, magic};
use crate::io::outputs::Output;
use crate::sys::session::Session;

/// The member of the archive at `path` whose header is at `header`: what a thin archive names that archives were added to.
pub(crate) fn member_of(path: &Path, header: u64) -> Result<Piece> {
    let archive = Piece::open_member(path)?;
    let found = member_at(archive.bytes(), header).map_err(|fault| anyhow!(fault.in_archive(&path.display())))?;
    let piece = found.and_then(|member| match member.contents {
        MemberContents::Within { offset, size } => archive.slice(offset, size),
        _ => None,
    });
    piece.with_context(|| format!("{}: it has no member at {header:#x} any more", path.display()))
}

/// Writes a GNU archive of `members`, each with its name, to `out`. Its symbol index covers native objects and bitcode;
/// bitcode that cannot be read is stored without symbols, with a warning.
pub(crate) fn write_archive<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a Piece)>,
    out: &mut Output,
    session: &Session,
) -> io::Result<()> {
    let members: Vec<(&str, &Piece)> = members.into_iter().collect();
    for (name, piece) in &members {
        if magic::is_bitcode(piece.bytes())
            && let Err(fault) = bitcode::symbols(piece.bytes())
        {
            session.shell.warn(&format!(
                "'{name}': nothing of this bitcode is in the archive's index, because it cannot be read at offset {:#x}: {}",
                fault.at, fault.what
            ));
        }
    }
    let pieces = members.iter().map(|(_, piece)| (place(piece.bytes()), *piece)).collect();
    let members = members.into_iter().map(|(name, piece)| NewMember { name: name.to_owned(), bytes: Box::new(piece) });
    write(members.collect(), &mut ByPiece { out, pieces })
}

/// Copies a piece's bytes from its file where the archive writer writes exactly that piece; passes everything else on. The writer
/// is only given byte slices, so a piece is recognised by where its slice is in memory.
struct ByPiece<'a> {
    out: &'a mut Output,
    pieces: HashMap<(usize, usize), &'a Piece>,
}

/// The address and length of a slice.
fn place(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

impl Write for ByPiece<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pieces.get(&place(bytes)) {
            Some(piece) => piece.copy_to(self.out).map(|()| bytes.len()),
            None => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for ByPiece<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}
