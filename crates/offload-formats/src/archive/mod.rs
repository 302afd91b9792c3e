//! Archives of objects (`ar`): one reader for all variants that linkers accept, and a writer of GNU
//! archives.
//!
//! The reader returns the members in order: GNU (also with the 64-bit symbol index `/SYM64/`), BSD,
//! COFF and AIX, regular or thin. Symbol indexes and tables of long names are not members. An
//! archive inside an archive is a regular member.
//!
//! The written archives equal those of `llvm-ar rcsD` byte for byte, with times and owners 0 and
//! mode 644. The symbol index `/` is first (`/SYM64/` from 4 GiB on), then the long names `//`,
//! then the members. The index has the symbols of native objects and of bitcode. An archive without
//! any symbol has no index.
//!
//! ```
//! use offload_formats::archive::{MemberContents, members, write_plain};
//!
//! let mut file = Vec::new();
//! write_plain([("a.o".to_owned(), &b"first"[..]), ("b.o".to_owned(), b"second")].into_iter(), &mut file)?;
//! let member = members(&file)?.nth(1).ok_or("no second member")??;
//! assert_eq!(member.name, b"b.o");
//! let MemberContents::Within { offset, size } = member.contents else { return Err("a thin archive".into()) };
//! assert_eq!(&file[offset as usize..(offset + size) as usize], b"second");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod resize;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ar_archive_writer::{
    DEFAULT_OBJECT_READER, NewArchiveMember, ObjectReader, write_archive_to_stream,
};
use object::archive::Header;
use object::read::archive::{ArchiveFile, ArchiveKind, ArchiveMemberIterator};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::bitcode;
use crate::error::Error;
use crate::magic::numbers::{self, is_bitcode};
use crate::model::printable;

/// The limit on a member's name in messages. Any number of members may share a name of any length.
const LONGEST_SHOWN_NAME: usize = 512;

/// A member of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveMember<'data> {
    /// The full name. For a member of a thin archive, the path of its file.
    pub name: &'data [u8],
    /// The location of the contents.
    pub contents: MemberContents,
}

/// The location of a member's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberContents {
    /// In the archive, completely.
    Within {
        /// The offset of the contents in the archive.
        offset: u64,
        /// The size of the contents in bytes.
        size: u64,
    },
    /// In a separate file, because the archive is thin. See [`ArchiveMember::file`].
    File,
    /// In another archive that GNU ar added to this thin one. [`ArchiveMember::file`] is that
    /// archive, and [`member_at`] finds the member in it.
    InArchive {
        /// The offset of the member's header in the other archive.
        header: u64,
    },
}

impl ArchiveMember<'_> {
    /// The file of a thin archive's member. Its name is a path relative to the directory of
    /// `archive`, the file that contains this archive. For other members, the path that they would
    /// have in a thin archive.
    pub fn file(&self, archive: &Path) -> PathBuf {
        archive.with_file_name(OsStr::from_bytes(self.name))
    }

    /// The name for messages: invalid UTF-8 is replaced, and a very long name is truncated.
    pub fn shown_name(&self) -> String {
        shown_name(self.name)
    }
}

/// The name of a member for messages: invalid UTF-8 is replaced, control characters are escaped,
/// and a very long name is truncated.
pub fn shown_name(name: &[u8]) -> String {
    let start = name.get(..LONGEST_SHOWN_NAME).unwrap_or(name);
    let rest = if start.len() < name.len() { "…" } else { "" };
    format!("{}{rest}", printable(&String::from_utf8_lossy(start)))
}

/// A fault of an archive, and its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveFault {
    /// The name of the damaged member, as far as known. The stored form if the table of names
    /// cannot be used.
    pub member: Option<String>,
    /// The fault, as a fragment of a sentence.
    pub what: String,
    /// The offset in the archive: that of the member's contents if these are truncated, else that
    /// of its header.
    pub offset: u64,
}

impl ArchiveFault {
    /// The whole message for an archive with the name `archive`:
    /// `lib.a(k.o): past the end of the archive, at offset 0x90`.
    pub fn in_archive(&self, archive: &dyn fmt::Display) -> Error {
        let member = self
            .member
            .as_ref()
            .map_or_else(String::new, |member| format!("({member})"));
        Error::Malformed {
            place: format!("{archive}{member}"),
            what: self.to_string(),
            offset: None,
        }
    }
}

impl fmt::Display for ArchiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at offset {:#x}", self.what, self.offset)
    }
}

impl std::error::Error for ArchiveFault {}

/// Whether the archive `data` is thin: its members are files of their own.
pub fn is_thin(data: &[u8]) -> bool {
    data.starts_with(&numbers::THIN_ARCHIVE)
}

/// Returns the members of the archive `data`. Fails if `data` is not an archive, or if its symbol
/// index or table of names is damaged.
pub fn members(data: &[u8]) -> Result<ArchiveMembers<'_>, ArchiveFault> {
    let start = numbers::ARCHIVE.len().min(data.len()) as u64;
    let archive = ArchiveFile::parse(data).map_err(|error| fault(data, start, &error))?;
    let members = archive.members();
    Ok(ArchiveMembers {
        data,
        members,
        is_aix: archive.kind() == ArchiveKind::AixBig,
        end: start,
        thin_from: None,
    })
}

/// Returns the member of the archive `data` whose header is at offset `header`; `None` if no header
/// is there.
pub fn member_at(data: &[u8], header: u64) -> Result<Option<ArchiveMember<'_>>, ArchiveFault> {
    let contents_at = header.saturating_add(size_of::<Header>() as u64);
    for member in members(data)? {
        let member = member?;
        if matches!(member.contents, MemberContents::Within { offset, .. } if offset == contents_at)
        {
            return Ok(Some(member));
        }
    }
    Ok(None)
}

/// Iterates over the members of an archive; see [`members`]. More members may follow an error.
#[derive(Debug)]
pub struct ArchiveMembers<'data> {
    data: &'data [u8],
    members: ArchiveMemberIterator<'data>,
    is_aix: bool,
    /// The end of the last member that was read.
    end: u64,
    /// In a thin archive with members of other archives, the offset of the rest, which `members`
    /// cannot read.
    thin_from: Option<u64>,
}

impl<'data> Iterator for ArchiveMembers<'data> {
    type Item = Result<ArchiveMember<'data>, ArchiveFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(from) = self.thin_from {
            return self.next_thin(from);
        }
        let member = match self.members.next()? {
            Ok(member) => member,
            // AIX archives chain their members by offsets, so the end of the last readable member
            // is the best known position.
            Err(error) if self.is_aix => {
                return Some(Err(ArchiveFault {
                    member: None,
                    what: error.to_string(),
                    offset: self.end,
                }));
            }
            Err(error) => {
                let (at, header) = first_member_header(self.data, self.end);
                let is_thin = is_thin(self.data);
                if is_thin
                    && header.is_some_and(|header| nested(header.name.trim_ascii_end()).is_some())
                {
                    return self.next_thin(at);
                }
                return Some(Err(fault(self.data, self.end, &error)));
            }
        };
        let name = member.name();
        if member.is_thin() {
            // The member consists of its header only. Both slices are parts of the same data, so
            // the addresses give the header's offset.
            let header = member.header().map_or(0, |header| {
                (&raw const *header).addr() - self.data.as_ptr().addr()
            });
            self.end = (header + size_of::<Header>()) as u64;
            return Some(Ok(ArchiveMember {
                name,
                contents: MemberContents::File,
            }));
        }
        let (offset, size) = member.file_range();
        let end = offset.saturating_add(size);
        if end > self.data.len() as u64 {
            return Some(Err(ArchiveFault {
                member: Some(shown_name(name)),
                what: "past the end of the archive".into(),
                offset,
            }));
        }
        self.end = end.next_multiple_of(2);
        Some(Ok(ArchiveMember {
            name,
            contents: MemberContents::Within { offset, size },
        }))
    }
}

impl<'data> ArchiveMembers<'data> {
    /// The next member of a thin archive: the one with the first member header at or after `from`.
    fn next_thin(&mut self, from: u64) -> Option<Result<ArchiveMember<'data>, ArchiveFault>> {
        let (at, header) = first_member_header(self.data, from);
        self.thin_from = Some(self.data.len() as u64);
        if at >= self.data.len() as u64 {
            return None;
        }
        let fault = |what: &str| {
            Some(Err(ArchiveFault {
                member: None,
                what: what.to_owned(),
                offset: at,
            }))
        };
        let Some(header) = header.filter(|header| header.terminator == *b"`\n") else {
            return fault("no member header");
        };
        let stored = header.name.trim_ascii_end();
        let (place, contents) = match nested(stored) {
            Some((place, header)) => (Some(place), MemberContents::InArchive { header }),
            None => (
                stored.strip_prefix(b"/").and_then(number),
                MemberContents::File,
            ),
        };
        let name = match place {
            None => Some(stored.strip_suffix(b"/").unwrap_or(stored)),
            Some(place) => long_name(self.data, place),
        };
        let Some(name) = name else {
            return fault("a name outside the table of names");
        };
        self.end = at + size_of::<Header>() as u64;
        self.thin_from = Some(self.end);
        Some(Ok(ArchiveMember { name, contents }))
    }
}

/// The name at offset `place` of the table of names.
fn long_name(data: &[u8], place: u64) -> Option<&[u8]> {
    let mut at = numbers::THIN_ARCHIVE.len() as u64;
    loop {
        let header = header(data, at)?;
        let (start, size) = (at + size_of::<Header>() as u64, special_size(header)?);
        if header.name.trim_ascii_end() == b"//" {
            let table = data.get(
                usize::try_from(start).ok()?..usize::try_from(start.checked_add(size)?).ok()?,
            )?;
            let line = table
                .get(usize::try_from(place).ok()?..)?
                .split(|byte| *byte == b'\n')
                .next()?;
            return Some(line.strip_suffix(b"/").unwrap_or(line));
        }
        at = start.checked_add(size)?.checked_next_multiple_of(2)?;
    }
}

/// Converts `error` of a reader that visited the headers from offset `start` on. Adds the offset of
/// the affected header.
fn fault(data: &[u8], start: u64, error: &object::read::Error) -> ArchiveFault {
    let (offset, header) = first_member_header(data, start);
    let member = header.map(|header| shown_name(header.name.trim_ascii_end()));
    ArchiveFault {
        member,
        what: error.to_string(),
        offset,
    }
}

/// Parses the name that GNU ar stores for a member of an archive in a thin archive, such as
/// `/0:198`. The first number is the offset of the archive's name in the table of names. The second
/// one is the offset of the member's header in the archive.
fn nested(name: &[u8]) -> Option<(u64, u64)> {
    let rest = name.strip_prefix(b"/")?;
    let colon = rest.iter().position(|byte| *byte == b':')?;
    Some((number(rest.get(..colon)?)?, number(rest.get(colon + 1..)?)?))
}

fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// The first header at or after `start` that does not belong to a complete symbol index or table of
/// names, and its offset.
fn first_member_header(data: &[u8], start: u64) -> (u64, Option<&Header>) {
    let mut at = start;
    loop {
        let header = header(data, at);
        let next = header
            .and_then(special_size)
            .map(|size| at + size_of::<Header>() as u64 + size.next_multiple_of(2));
        match next {
            Some(next) if next < data.len() as u64 => at = next,
            _ => return (at, header),
        }
    }
}

fn header(data: &[u8], at: u64) -> Option<&Header> {
    let rest = data.get(usize::try_from(at).ok()?..)?;
    Some(object::pod::from_bytes::<Header>(rest).ok()?.0)
}

/// The size in the header of a symbol index or table of names. `None` for other headers and for
/// invalid numbers.
fn special_size(header: &Header) -> Option<u64> {
    const SPECIAL: [&[u8]; 4] = [b"/", b"//", b"/SYM64/", b"/<ECSYMBOLS>/"];
    let name = header.name.trim_ascii_end();
    let is_special = SPECIAL.contains(&name) || name.starts_with(b"__.SYMDEF");
    let size = std::str::from_utf8(&header.size)
        .ok()
        .filter(|_| is_special)?;
    size.trim_end()
        .parse::<u64>()
        .ok()
        .filter(|size| *size <= i64::MAX as u64)
}

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
    write_archive_to_stream(
        &mut out,
        &members,
        ar_archive_writer::ArchiveKind::Gnu,
        false,
        None,
    )
}

/// Writes a GNU archive of `members` without an index, for a linker that takes all members. Names
/// must not contain `/` or line feeds. Fails if the size of a member does not fit into a header (10
/// digits), or if `out` fails.
pub fn write_plain<'a>(
    members: impl Iterator<Item = (String, &'a [u8])> + Clone,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(&numbers::ARCHIVE)?;
    let names: String = members
        .clone()
        .map(|(name, _)| format!("{name}/\n"))
        .collect();
    write_header("//", names.len(), out)?;
    out.write_all(names.as_bytes())?;
    pad(names.len(), out)?;
    let mut at = 0;
    for (name, bytes) in members {
        write_header(&format!("/{at}"), bytes.len(), out)?;
        out.write_all(bytes)?;
        pad(bytes.len(), out)?;
        at += name.len() + 2;
    }
    Ok(())
}

fn write_header(name: &str, size: usize, out: &mut impl Write) -> io::Result<()> {
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
    if is_bitcode(bytes) {
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
    if is_bitcode(bytes) {
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
        let start = numbers::ARCHIVE.len() as u64;
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

// Checks of the names of members of archives that are unpacked to directories (zip, tar).

/// The path of the member `name`, relative to the target directory. `None` if the name is absolute
/// or leads out of that directory; unpackers reject such names.
pub(crate) fn path_below(name: &[u8]) -> Option<&Path> {
    let path = Path::new(OsStr::from_bytes(name));
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_below.then_some(path)
}

/// The fault of a name that is meant to deceive users who unpack or list the archive. `None` for
/// valid names.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    if path_below(name).is_none() {
        return Some("the name leads out of the target directory");
    }
    name.iter()
        .any(u8::is_ascii_control)
        .then_some("the name has control characters")
}
