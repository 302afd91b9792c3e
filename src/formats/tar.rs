//! The files in a tar archive, read in order, from a stream or from what is in memory: as POSIX has them (`ustar`, `pax`), as GNU
//! tar writes them, with long names and sparse files of every kind, and those of the first Unix.
//!
//! An archive can claim much that it does not hold. Names, pax records and the maps of sparse files are read up to a limit; what is
//! wrong with one member ends that member alone, and behind a damaged header the next whole one is looked for.
//!
//! ```
//! use std::io::Read;
//!
//! use offld::formats::tar::{InMemory, TarReader};
//!
//! let mut archive = tar::Builder::new(Vec::new());
//! let mut header = tar::Header::new_gnu();
//! header.set_size(5);
//! archive.append_data(&mut header, "a/b", &b"plain"[..])?;
//! let archive = archive.into_inner()?;
//! let mut tar = TarReader::new(InMemory::new(&archive));
//! let member = tar.next_member()?.ok_or("no member")?;
//! assert_eq!((&member.name[..], member.offset, member.size), (&b"a/b"[..], 512, 5));
//! let mut plain = String::new();
//! tar.contents(&member).read_to_string(&mut plain)?;
//! assert_eq!(plain, "plain");
//! assert!(tar.next_member()?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod contents;
mod input;
mod pax;
mod sparse;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

use tar::{EntryType, Header};

pub use contents::TarContents;
pub use input::{InMemory, Streamed, TarInput};

use super::archive::{ArchiveFault, name, shown_name};
use super::magic;
use pax::Records;
use sparse::Part;

/// The size of a block: headers are one, and contents are padded to whole ones.
const BLOCK: u64 = 512;
/// The longest name that is read; Linux takes no path of more than 4 KiB.
const LONGEST_NAME: u64 = 64 << 10;
/// The most that is read of a pax header: it may have extended attributes and maps of sparse files, too.
const LARGEST_PAX: u64 = 1 << 20;

/// A file in a tar archive. Folders, links, devices and what is else without contents are none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TarMember {
    /// Its path in the archive, as it is stored.
    pub name: Vec<u8>,
    /// Where its first header is, in bytes from the start of the archive.
    pub header: u64,
    /// Where its bytes are, in bytes from the start of the archive.
    pub offset: u64,
    /// How many bytes it has there.
    pub size: u64,
    /// How many bytes it has when it is unpacked: more than `size` where it is sparse.
    pub plain_size: u64,
    /// Of a sparse file, which parts of it are stored; all else of it is zeros.
    sparse: Option<Vec<Part>>,
}

impl TarMember {
    /// Whether the zeros in it are left out.
    pub fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    /// The path below the folder that the archive is unpacked to; none where the name is absolute or leads out of that folder,
    /// which no unpacker takes.
    pub fn path(&self) -> Option<&Path> {
        name::path_below(&self.name)
    }

    /// What is wrong with the name, where something is.
    pub fn name_fault(&self) -> Option<ArchiveFault> {
        name::name_fault(&self.name).map(|what| self.fault(what))
    }

    /// The name for messages: control characters are escaped, and a very long name is cut.
    pub fn shown_name(&self) -> String {
        shown_name(&self.name)
    }

    /// A fault of this member.
    pub fn fault(&self, what: impl Into<String>) -> ArchiveFault {
        ArchiveFault { member: Some(self.shown_name()), what: what.into(), offset: self.header }
    }
}

/// Whether `data` starts as a tar archive does: with a header of POSIX or GNU, or with one of the first Unix, which has no magic
/// number but a checksum.
pub fn is_tar(data: &[u8]) -> bool {
    let Some(block) = data.first_chunk::<{ BLOCK as usize }>() else { return false };
    block.get(magic::TAR_AT..).is_some_and(|rest| rest.starts_with(&magic::TAR)) || has_checksum(block)
}

/// Whether the checksum of a header is right: the sum of its bytes, with blanks for the checksum. Some wrote it of signed bytes.
fn has_checksum(block: &[u8; BLOCK as usize]) -> bool {
    const CHECKSUM: std::ops::Range<usize> = 148..156;
    let Ok(told) = Header::from_byte_slice(block).cksum() else { return false };
    let bytes = block.iter().enumerate().map(|(at, byte)| if CHECKSUM.contains(&at) { b' ' } else { *byte });
    let (unsigned, signed) =
        bytes.fold((0_u32, 0_i32), |(sum, signed), byte| (sum + u32::from(byte), signed + i32::from(byte.cast_signed())));
    told == unsigned || i32::try_from(told) == Ok(signed)
}

/// Goes through the files in a tar archive.
#[derive(Debug)]
pub struct TarReader<R> {
    from: R,
    /// How far it has been read.
    at: u64,
    /// How many bytes of the contents at hand have not been read, and what pads them.
    left: u64,
    padding: u64,
    /// The name of the member that they are of.
    name: Vec<u8>,
    /// Whether the last header was none, and the next one is being looked for.
    is_lost: bool,
    ended: bool,
}

/// What the headers before that of a file say of it.
#[derive(Debug, Default)]
struct Before {
    header: Option<u64>,
    name: Option<Vec<u8>>,
    records: Records,
}

impl<R: TarInput> TarReader<R> {
    /// A reader of the archive that `from` gives.
    pub fn new(from: R) -> Self {
        TarReader { from, at: 0, left: 0, padding: 0, name: Vec::new(), is_lost: false, ended: false }
    }

    /// The next file; none at the end of the archive. What has not been read of the one before it is passed over.
    ///
    /// # Errors
    /// An [`ArchiveFault`] for what is wrong with the archive: the next call goes on behind it, if there is anything. Any other error is
    /// one of reading, and the next call will find the end.
    pub fn next_member(&mut self) -> io::Result<Option<TarMember>> {
        let mut before = Before::default();
        while !self.ended {
            match self.next_header(&mut before) {
                Ok(Some(member)) => return Ok(Some(member)),
                Ok(None) => {}
                Err(error) => {
                    self.ended |= fault_of(&error).is_none();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// How many bytes of the archive have been read or passed over.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// What is in `member`, the last one that was found.
    pub fn contents<'t>(&'t mut self, member: &'t TarMember) -> TarContents<'t, R> {
        TarContents::new(self, member)
    }

    /// What the archive is read from, to the end of which there may be more.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// Reads the next header: a file, or none where it is of something else.
    fn next_header(&mut self, before: &mut Before) -> io::Result<Option<TarMember>> {
        self.finish()?;
        let at = self.at;
        let Some(block) = self.block()? else {
            self.ended = true;
            return if before.header.is_some() { Err(fault(&[], "ends behind half a header", at)) } else { Ok(None) };
        };
        if block == [0; BLOCK as usize] && !self.is_lost {
            // Two such blocks are the end, and so is one that no header follows.
            let next = self.block()?.filter(has_checksum);
            self.ended = next.is_none();
            return next.map_or(Ok(None), |next| self.header(&next, at + BLOCK, before));
        }
        if !has_checksum(&block) {
            if std::mem::replace(&mut self.is_lost, true) {
                return Ok(None);
            }
            *before = Before::default();
            return Err(fault(&Header::from_byte_slice(&block).path_bytes(), "its header does not match its checksum", at));
        }
        self.header(&block, at, before)
    }

    /// What the header `block`, which is at `at`, is of.
    fn header(&mut self, block: &[u8; BLOCK as usize], at: u64, before: &mut Before) -> io::Result<Option<TarMember>> {
        self.is_lost = false;
        let header = Header::from_byte_slice(block);
        let own_name = header.path_bytes();
        let size = header.entry_size().map_err(|_| fault(&own_name, "its header has no size", at))?;
        let kind = header.entry_type();
        let first = *before.header.get_or_insert(at);
        match kind {
            EntryType::GNULongName => {
                let mut name = self.small(size, LONGEST_NAME, "a long name", at)?;
                name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
                before.name = Some(name);
                return Ok(None);
            }
            EntryType::XHeader => {
                let bytes = self.small(size, LARGEST_PAX, "a pax header", at)?;
                before.records.read(&bytes).map_err(|what| fault(&own_name, what, at))?;
                return Ok(None);
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => {
                self.expect(size, &own_name, at)?;
                return Ok(None);
            }
            _ => {}
        }
        let Before { name, records, .. } = std::mem::take(before);
        let name = records.name.clone().or(name).unwrap_or_else(|| own_name.into_owned());
        // Links have no contents, whatever their size says: it is that of what they lead to.
        let size = if kind.is_hard_link() { 0 } else { records.size.unwrap_or(size) };
        self.expect(size, &name, at)?;
        if !is_file(kind, &name) {
            return Ok(None);
        }
        let sparse = match header.as_gnu().filter(|_| kind.is_gnu_sparse()) {
            Some(header) => Some(sparse::of_gnu(self, header)),
            None => sparse::of_pax(self, records),
        };
        let (sparse, plain_size) = match sparse.transpose().map_err(|error| within(error, &name, first))? {
            Some(map) => (Some(map.parts), map.plain_size),
            None => (None, self.left),
        };
        Ok(Some(TarMember { name, header: first, offset: self.at, size: self.left, plain_size, sparse }))
    }

    /// Takes note of contents of `size` bytes that begin here, of the member `name` with a header at `header`.
    fn expect(&mut self, size: u64, name: &[u8], header: u64) -> io::Result<()> {
        let padded = size.checked_next_multiple_of(BLOCK).filter(|padded| self.at.checked_add(*padded).is_some());
        let padded = padded.ok_or_else(|| fault(name, "its size is beyond what any file has", header))?;
        (self.left, self.padding) = (size, padded - size);
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// Contents of `size` bytes, which are `what` and no longer than `most`.
    fn small(&mut self, size: u64, most: u64, what: &str, header: u64) -> io::Result<Vec<u8>> {
        self.expect(size, &[], header)?;
        if size > most {
            return Err(fault(&[], format!("{what} of {size} bytes, and more than {most} are not read"), header));
        }
        let mut bytes = Vec::new();
        self.stored().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A reader of the contents at hand, as they are stored. That they end too early is an error.
    fn stored(&mut self) -> Stored<'_, R> {
        Stored(self)
    }

    /// Passes over what is left of the contents at hand.
    fn finish(&mut self) -> io::Result<()> {
        let (left, padding) = (std::mem::take(&mut self.left), std::mem::take(&mut self.padding));
        let passed = self.from.pass(left.saturating_add(padding))?;
        self.at += passed;
        // Of the last member, the padding may be missing.
        if passed < left { Err(self.cut(left - passed)) } else { Ok(()) }
    }

    /// The fault that `missing` bytes of the contents at hand are not there.
    fn cut(&mut self, missing: u64) -> io::Error {
        self.ended = true;
        (self.left, self.padding) = (0, 0);
        fault(&self.name, format!("the archive ends {missing} bytes before the end of it"), self.at)
    }

    /// The next block; none at the end of the archive.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK as usize]>> {
        let mut block = [0; BLOCK as usize];
        let mut len = 0;
        while let Some(rest) = block.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let at = self.at;
        self.at += len as u64;
        if len == block.len() {
            return Ok(Some(block));
        }
        self.ended = true;
        if len > 0 && !self.is_lost { Err(fault(&[], "the archive ends within a header", at)) } else { Ok(None) }
    }
}

/// The contents at hand, as they are stored.
#[derive(Debug)]
struct Stored<'t, R>(&'t mut TarReader<R>);

impl<R: TarInput> Read for Stored<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let tar = &mut *self.0;
        let wanted = usize::try_from(tar.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let len = tar.from.read(buffer)?;
        if len == 0 {
            return Err(tar.cut(tar.left));
        }
        tar.at += len as u64;
        tar.left -= len as u64;
        Ok(len)
    }
}

/// Whether `kind` has the contents of a file. Unknown kinds are to be taken for files, by POSIX; the first Unix had folders whose
/// names end with a slash.
fn is_file(kind: EntryType, name: &[u8]) -> bool {
    // GNU's folders in incremental archives, labels, and the rest of a file of the volume before.
    const OF_GNU: &[u8] = b"DVM";
    let other = kind.is_hard_link()
        || kind.is_symlink()
        || kind.is_character_special()
        || kind.is_block_special()
        || kind.is_dir()
        || kind.is_fifo()
        || OF_GNU.contains(&kind.as_byte());
    !other && !name.ends_with(b"/")
}

/// A fault of the member `name`, where that is known, as an error of reading.
fn fault(name: &[u8], what: impl Into<String>, offset: u64) -> io::Error {
    let member = if name.is_empty() { None } else { Some(shown_name(name)) };
    io::Error::other(ArchiveFault { member, what: what.into(), offset })
}

/// The fault of the archive that `error` is, if it is one.
pub fn fault_of(error: &io::Error) -> Option<&ArchiveFault> {
    error.get_ref()?.downcast_ref()
}

/// `error`, which is one of the member `name`.
fn within(error: io::Error, name: &[u8], header: u64) -> io::Error {
    match fault_of(&error) {
        Some(found) if found.member.is_none() => fault(name, found.what.clone(), header),
        _ => error,
    }
}
