//! Writes GNU archives that equal those of `llvm-ar rcsD` byte for byte, with times and owners 0
//! and mode 644. The symbol index `/` is first (`/SYM64/` from 4 GiB on), then the long names `//`,
//! then the members. An archive without any symbol has no index.
//!
//! The index has the symbols of native objects and of bitcode (`bitcode`).

use std::io::{self, Seek, SeekFrom, Write};

use ar_archive_writer::{
    ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember, ObjectReader, write_archive_to_stream,
};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::{bitcode, magic};

#[cfg(test)]
mod tests;

/// A member of an archive to write.
pub struct NewMember<'a> {
    /// The stored name. Several members may have the same name.
    pub name: String,
    /// The contents: owned, borrowed, or a mapped file.
    pub bytes: Box<dyn AsRef<[u8]> + 'a>,
}

impl std::fmt::Debug for NewMember<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewMember")
            .field("name", &self.name)
            .field("size", &(*self.bytes).as_ref().len())
            .finish_non_exhaustive()
    }
}

/// Writes an archive of `members`, in their order, to `out`. Fails if the size of a member does not
/// fit into a header (10 digits), or if `out` fails.
pub fn write(members: Vec<NewMember<'_>>, out: &mut (impl Write + Seek)) -> io::Result<()> {
    let indexed = members
        .iter()
        .any(|member| has_symbols((*member.bytes).as_ref()));
    let members: Vec<NewArchiveMember<'_>> = members
        .into_iter()
        .map(|member| NewArchiveMember {
            buf: member.bytes,
            object_reader: READER,
            member_name: member.name,
            mtime: 0,
            uid: 0,
            gid: 0,
            perms: 0o644,
        })
        .collect();
    let mut out = Unindexed {
        out,
        skip: if indexed || members.is_empty() {
            0
        } else {
            EMPTY_INDEX
        },
        at: 0,
    };
    write_archive_to_stream(&mut out, &members, ArchiveKind::Gnu, false, None)
}

/// Writes a GNU archive of `members` without an index, for a linker that takes all members. Names
/// must not contain `/` or line feeds. Fails if the size of a member does not fit into a header (10
/// digits), or if `out` fails.
pub fn write_plain<'a>(
    members: impl Iterator<Item = (String, &'a [u8])> + Clone,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(&magic::ARCHIVE)?;
    let names: String = members
        .clone()
        .map(|(name, _)| format!("{name}/\n"))
        .collect();
    header("//", names.len(), out)?;
    out.write_all(names.as_bytes())?;
    pad(names.len(), out)?;
    let mut at = 0;
    for (name, bytes) in members {
        header(&format!("/{at}"), bytes.len(), out)?;
        out.write_all(bytes)?;
        pad(bytes.len(), out)?;
        at += name.len() + 2;
    }
    Ok(())
}

fn header(name: &str, size: usize, out: &mut impl Write) -> io::Result<()> {
    if size > 9_999_999_999 {
        return Err(io::Error::other("too large for a member of an archive"));
    }
    // Name, time, owner, group, mode, size, end: 60 bytes.
    writeln!(
        out,
        "{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`",
        0, 0, 0, 644
    )
}

fn pad(size: usize, out: &mut impl Write) -> io::Result<()> {
    if size.is_multiple_of(2) {
        Ok(())
    } else {
        out.write_all(b"\n")
    }
}

const READER: &ObjectReader = &ObjectReader {
    get_symbols: symbols,
    ..DEFAULT_OBJECT_READER
};

/// Passes the names that `bytes` exports to `take`. Returns whether `bytes` has a symbol table.
/// Other data and damaged objects are members without symbols.
fn symbols(bytes: &[u8], take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
    if magic::is_bitcode(bytes) {
        let Ok(module) = bitcode::symbols(bytes) else {
            return Ok(false);
        };
        module
            .defined
            .iter()
            .try_for_each(|symbol| take(&symbol.name))?;
        return Ok(true);
    }
    let Ok(file) = object::File::parse(bytes) else {
        return Ok(false);
    };
    for symbol in file.symbols() {
        let special = matches!(symbol.kind(), SymbolKind::File | SymbolKind::Section);
        if !special && symbol.is_global() && !symbol.is_undefined() {
            take(symbol.name_bytes().map_err(io::Error::other)?)?;
        }
    }
    Ok(true)
}

/// Whether `bytes` is readable bitcode or a readable native object.
fn has_symbols(bytes: &[u8]) -> bool {
    if magic::is_bitcode(bytes) {
        bitcode::symbols(bytes).is_ok()
    } else {
        object::File::parse(bytes).is_ok()
    }
}

/// The size of an index without symbols: a header, the number 0, and the three zeros and the
/// padding that LLVM appends.
const EMPTY_INDEX: u64 = 60 + 8;
/// A writer that drops `skip` bytes after the magic. `ar_archive_writer` writes an index even for
/// an archive of texts; `llvm-ar` does not. No offset points past an empty index, so it can be
/// dropped.
struct Unindexed<'a, W> {
    out: &'a mut W,
    skip: u64,
    at: u64,
}

impl<W: Write> Write for Unindexed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = magic::ARCHIVE.len() as u64;
        let gap = start..start + self.skip;
        let len = bytes.len() as u64;
        let written = if gap.contains(&self.at) {
            len.min(gap.end - self.at) as usize
        } else if self.at < gap.start {
            let until = len.min(gap.start - self.at) as usize;
            self.out.write(bytes.get(..until).unwrap_or(bytes))?
        } else {
            self.out.write(bytes)?
        };
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Seek> Seek for Unindexed<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}
