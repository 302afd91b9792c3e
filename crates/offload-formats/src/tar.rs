//! Reads the files in a tar archive in order, from a stream or from memory. Supports POSIX archives
//! (`ustar`, `pax`), GNU tar archives with long names and all types of sparse files, and V7 Unix
//! archives.
//!
//! An archive can claim more than it contains. Names, pax records and the maps of sparse files have
//! size limits. A damaged member ends only itself: after a damaged header, the reader searches for
//! the next valid one.
//!
//! ```
//! use std::io::Read;
//!
//! use offload_formats::tar::{InMemory, TarReader};
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

#[cfg(test)]
mod tests;

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::slice;

use tar::{EntryType, GnuExtSparseHeader, GnuHeader, Header};

use super::archive::{ArchiveFault, name_fault, path_below, shown_name};
use super::magic::numbers as magic;

/// The size of a block. A header takes one block, and contents are padded to whole blocks.
const BLOCK: u64 = 512;
/// The limit on the length of names. Linux does not accept paths of more than 4 KiB.
const LONGEST_NAME: u64 = 64 << 10;
/// The limit on the size of a pax header, which may also contain extended attributes and maps of
/// sparse files.
const LARGEST_PAX: u64 = 1 << 20;

/// A file in a tar archive. Directories, links, devices and other entries without contents do not
/// count.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TarMember {
    /// The path in the archive, as stored.
    pub name: Vec<u8>,
    /// The offset of the member's first header in the archive.
    pub header: u64,
    /// The offset of the contents in the archive.
    pub offset: u64,
    /// The stored size of the contents in bytes.
    pub size: u64,
    /// The size after unpacking, which is larger than `size` for sparse files.
    pub plain_size: u64,
    /// The stored parts of a sparse file. The rest is zeros.
    sparse: Option<Vec<SparsePart>>,
}

impl TarMember {
    /// Whether the file is sparse, so that its zeros are not stored.
    pub fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    /// The path relative to the target directory. `None` if the name is absolute or leads out of
    /// that directory; unpackers reject such names.
    pub fn path(&self) -> Option<&Path> {
        path_below(&self.name)
    }

    /// The fault of an invalid name.
    pub fn name_fault(&self) -> Option<ArchiveFault> {
        name_fault(&self.name).map(|what| self.fault(what))
    }

    /// The name for messages: control characters are escaped, and a very long name is truncated.
    pub fn shown_name(&self) -> String {
        shown_name(&self.name)
    }

    /// A fault of this member.
    pub fn fault(&self, what: impl Into<String>) -> ArchiveFault {
        ArchiveFault {
            member: Some(self.shown_name()),
            what: what.into(),
            offset: self.header,
        }
    }
}

/// Whether `data` starts with a tar header: one of POSIX or GNU, or one of V7 Unix, which has a
/// checksum but no magic number.
pub fn is_tar(data: &[u8]) -> bool {
    let Some(block) = data.first_chunk::<{ BLOCK as usize }>() else {
        return false;
    };
    block
        .get(magic::TAR_AT..)
        .is_some_and(|rest| rest.starts_with(&magic::TAR))
        || has_checksum(block)
}

/// Whether the checksum of a header is correct: the sum of its bytes, with blanks for the checksum.
/// Some writers add signed bytes.
fn has_checksum(block: &[u8; BLOCK as usize]) -> bool {
    const CHECKSUM: std::ops::Range<usize> = 148..156;
    let Ok(stored) = Header::from_byte_slice(block).cksum() else {
        return false;
    };
    let bytes = block
        .iter()
        .enumerate()
        .map(|(at, byte)| if CHECKSUM.contains(&at) { b' ' } else { *byte });
    let (unsigned, signed) = bytes.fold((0_u32, 0_i32), |(sum, signed), byte| {
        (
            sum + u32::from(byte),
            signed + i32::from(byte.cast_signed()),
        )
    });
    stored == unsigned || i32::try_from(stored) == Ok(signed)
}

/// Iterates over the files in a tar archive.
#[derive(Debug)]
pub struct TarReader<R> {
    from: R,
    /// The number of bytes read so far.
    at: u64,
    /// The number of unread bytes of the current contents, and of their padding.
    left: u64,
    padding: u64,
    /// The name of the current member.
    name: Vec<u8>,
    /// Whether the last header was invalid, and the search for the next one goes on.
    is_lost: bool,
    ended: bool,
}

/// Properties of a file from the headers before its own.
#[derive(Debug, Default)]
struct PrecedingHeaders {
    header: Option<u64>,
    name: Option<Vec<u8>>,
    records: Records,
}

impl<R: TarInput> TarReader<R> {
    /// A reader of the archive in `from`.
    pub fn new(from: R) -> Self {
        TarReader {
            from,
            at: 0,
            left: 0,
            padding: 0,
            name: Vec::new(),
            is_lost: false,
            ended: false,
        }
    }

    /// Returns the next file, or `None` at the end of the archive. Skips the unread rest of the
    /// previous one.
    ///
    /// # Errors
    /// An [`ArchiveFault`] for damaged data; the next call continues after it if possible. Any
    /// other error is an I/O error, after which the next call returns the end.
    pub fn next_member(&mut self) -> io::Result<Option<TarMember>> {
        let mut before = PrecedingHeaders::default();
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

    /// The number of bytes of the archive that have been read or skipped.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The contents of `member`, the last one returned.
    pub fn contents<'t>(&'t mut self, member: &'t TarMember) -> TarContents<'t, R> {
        TarContents::new(self, member)
    }

    /// The source of the archive, which may contain more data.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// Reads the next header. Returns a file, or `None` for another entry.
    fn next_header(&mut self, before: &mut PrecedingHeaders) -> io::Result<Option<TarMember>> {
        self.finish()?;
        let at = self.at;
        let Some(block) = self.block()? else {
            self.ended = true;
            return if before.header.is_some() {
                Err(fault(&[], "the archive ends after an extended header", at))
            } else {
                Ok(None)
            };
        };
        if block == [0; BLOCK as usize] && !self.is_lost {
            // Two such blocks are the end, and so is one without a valid header after it.
            let next = self.block()?.filter(has_checksum);
            self.ended = next.is_none();
            return next.map_or(Ok(None), |next| self.header(&next, at + BLOCK, before));
        }
        if !has_checksum(&block) {
            if std::mem::replace(&mut self.is_lost, true) {
                return Ok(None);
            }
            *before = PrecedingHeaders::default();
            return Err(fault(
                &Header::from_byte_slice(&block).path_bytes(),
                "the header does not match its checksum",
                at,
            ));
        }
        self.header(&block, at, before)
    }

    /// Processes the header `block` at offset `at`.
    fn header(
        &mut self,
        block: &[u8; BLOCK as usize],
        at: u64,
        before: &mut PrecedingHeaders,
    ) -> io::Result<Option<TarMember>> {
        self.is_lost = false;
        let header = Header::from_byte_slice(block);
        let own_name = header.path_bytes();
        let size = header
            .entry_size()
            .map_err(|_| fault(&own_name, "the header has no valid size", at))?;
        let kind = header.entry_type();
        let first = *before.header.get_or_insert(at);
        match kind {
            EntryType::GNULongName => {
                let mut name = self.small(size, LONGEST_NAME, "a long name", at)?;
                name.truncate(
                    name.iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(name.len()),
                );
                before.name = Some(name);
                return Ok(None);
            }
            EntryType::XHeader => {
                let bytes = self.small(size, LARGEST_PAX, "a pax header", at)?;
                before
                    .records
                    .read(&bytes)
                    .map_err(|what| fault(&own_name, what, at))?;
                return Ok(None);
            }
            EntryType::GNULongLink | EntryType::XGlobalHeader => {
                self.expect(size, &own_name, at)?;
                return Ok(None);
            }
            _ => {}
        }
        let PrecedingHeaders { name, records, .. } = std::mem::take(before);
        let name = records
            .name
            .clone()
            .or(name)
            .unwrap_or_else(|| own_name.into_owned());
        // Links have no contents. Their size field is that of their target.
        let size = if kind.is_hard_link() {
            0
        } else {
            records.size.unwrap_or(size)
        };
        self.expect(size, &name, at)?;
        if !is_file(kind, &name) {
            return Ok(None);
        }
        let sparse = match header.as_gnu().filter(|_| kind.is_gnu_sparse()) {
            Some(header) => Some(gnu_map(self, header)),
            None => pax_map(self, records),
        };
        let (sparse, plain_size) = match sparse
            .transpose()
            .map_err(|error| within(error, &name, first))?
        {
            Some(map) => (Some(map.parts), map.plain_size),
            None => (None, self.left),
        };
        Ok(Some(TarMember {
            name,
            header: first,
            offset: self.at,
            size: self.left,
            plain_size,
            sparse,
        }))
    }

    /// Registers contents of `size` bytes at the current position, of the member `name` with a
    /// header at `header`.
    fn expect(&mut self, size: u64, name: &[u8], header: u64) -> io::Result<()> {
        let padded = size
            .checked_next_multiple_of(BLOCK)
            .filter(|padded| self.at.checked_add(*padded).is_some());
        let padded =
            padded.ok_or_else(|| fault(name, "the size is too large for a file", header))?;
        (self.left, self.padding) = (size, padded - size);
        name.clone_into(&mut self.name);
        Ok(())
    }

    /// Reads contents of `size` bytes, at most `most`. `what` names them in errors.
    fn small(&mut self, size: u64, most: u64, what: &str, header: u64) -> io::Result<Vec<u8>> {
        self.expect(size, &[], header)?;
        if size > most {
            return Err(fault(
                &[],
                format!("{what} of {size} bytes exceeds the limit of {most}"),
                header,
            ));
        }
        let mut bytes = Vec::new();
        self.stored().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A reader of the stored current contents. A premature end is an error.
    fn stored(&mut self) -> Stored<'_, R> {
        Stored(self)
    }

    /// Skips the rest of the current contents.
    fn finish(&mut self) -> io::Result<()> {
        let (left, padding) = (
            std::mem::take(&mut self.left),
            std::mem::take(&mut self.padding),
        );
        let passed = self.from.pass(left.saturating_add(padding))?;
        self.at += passed;
        // The padding of the last member may be missing.
        if passed < left {
            Err(self.cut(left - passed))
        } else {
            Ok(())
        }
    }

    /// The fault that `missing` bytes of the current contents are absent.
    fn cut(&mut self, missing: u64) -> io::Error {
        self.ended = true;
        (self.left, self.padding) = (0, 0);
        fault(
            &self.name,
            format!("the archive ends {missing} bytes before the end of the member"),
            self.at,
        )
    }

    /// The next block, or `None` at the end of the archive.
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
        if len > 0 && !self.is_lost {
            Err(fault(&[], "the archive ends within a header", at))
        } else {
            Ok(None)
        }
    }
}

/// The stored current contents.
#[derive(Debug)]
struct Stored<'t, R>(&'t mut TarReader<R>);

impl<R: TarInput> Read for Stored<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let tar = &mut *self.0;
        let wanted = usize::try_from(tar.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        let len = tar.from.read(buffer)?;
        if len == 0 {
            return Err(tar.cut(tar.left));
        }
        tar.at += len as u64;
        tar.left -= len as u64;
        Ok(len)
    }
}

/// Whether `kind` has the contents of a file. POSIX demands that unknown kinds count as files. In
/// V7 Unix archives, names of directories end with a slash.
fn is_file(kind: EntryType, name: &[u8]) -> bool {
    // GNU's directories in incremental archives, volume labels, and continuations of files from the
    // previous volume.
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

/// A fault of the member `name`, which may be empty if unknown, as an I/O error.
fn fault(name: &[u8], what: impl Into<String>, offset: u64) -> io::Error {
    let member = if name.is_empty() {
        None
    } else {
        Some(shown_name(name))
    };
    io::Error::other(ArchiveFault {
        member,
        what: what.into(),
        offset,
    })
}

/// The archive fault in `error`, if it is one.
pub fn fault_of(error: &io::Error) -> Option<&ArchiveFault> {
    error.get_ref()?.downcast_ref()
}

/// Adds the member `name` to an archive fault without one.
fn within(error: io::Error, name: &[u8], header: u64) -> io::Error {
    match fault_of(&error) {
        Some(found) if found.member.is_none() => fault(name, found.what.clone(), header),
        _ => error,
    }
}

// The contents of a file in a tar archive, with the zeros of sparse files.

/// Reads a file in a tar archive.
#[derive(Debug)]
pub struct TarContents<'t, R> {
    tar: &'t mut TarReader<R>,
    plain_size: u64,
    /// The remaining parts of a sparse file. `None` for other files.
    parts: Option<slice::Iter<'t, SparsePart>>,
    /// The next part, or the one being read.
    next: Option<SparsePart>,
    at: u64,
}

impl<'t, R: TarInput> TarContents<'t, R> {
    fn new(tar: &'t mut TarReader<R>, member: &'t TarMember) -> Self {
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

// Sources of tar archives.

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

// Sparse files, whose zeros are not stored, in the four formats of GNU tar. The oldest has its own
// header type. In pax archives, the map is in records (0.0: two per part, 0.1: one for all) or at
// the start of the contents (1.0).

/// The limit on the number of parts, so that maps stay small.
const MOST_PARTS: usize = 64 << 10;
const TOO_MANY: &str = "a sparse file of more than 65536 parts is not supported";
/// The longest number in a map of version 1.0, including its newline.
const LONGEST_NUMBER: u64 = 21;

/// A stored part of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SparsePart {
    /// The offset in the unpacked file.
    offset: u64,
    /// The size in bytes.
    size: u64,
}

/// The stored parts of a file.
struct SparseMap {
    parts: Vec<SparsePart>,
    plain_size: u64,
}

/// Reads the map in a GNU header and in its extension blocks.
fn gnu_map<R: TarInput>(tar: &mut TarReader<R>, header: &GnuHeader) -> io::Result<SparseMap> {
    let at = tar.at;
    let no_map = |_| fault(&[], "a sparse file without a valid map in its header", at);
    let mut numbers = Vec::new();
    let mut is_extended = header.is_extended();
    let mut extension = GnuExtSparseHeader::new();
    let mut add = |entries: &[tar::GnuSparseHeader]| -> io::Result<()> {
        for entry in entries.iter().filter(|entry| !entry.is_empty()) {
            numbers.extend([
                entry.offset().map_err(no_map)?,
                entry.length().map_err(no_map)?,
            ]);
        }
        if numbers.len() / 2 > MOST_PARTS {
            Err(fault(&[], TOO_MANY, at))
        } else {
            Ok(())
        }
    };
    // These blocks come before the contents and are not part of their size.
    let mut done = add(&header.sparse);
    while is_extended {
        let Some(block) = tar.block()? else {
            return Err(fault(
                &[],
                "the archive ends within the map of a sparse file",
                at,
            ));
        };
        extension.as_mut_bytes().copy_from_slice(&block);
        done = done.and_then(|()| add(extension.sparse()));
        is_extended = extension.is_extended();
    }
    done?;
    checked_map(&numbers, header.real_size().map_err(no_map)?, tar.left, at)
}

/// The map in pax records or in the contents, or `None` if the file is not sparse.
fn pax_map<R: TarInput>(tar: &mut TarReader<R>, records: Records) -> Option<io::Result<SparseMap>> {
    let at = tar.at;
    let numbers = match records {
        Records { major: Some(1), .. } => contents_map(tar),
        Records { map: Some(map), .. } => Ok(map),
        Records {
            major: None | Some(0),
            ..
        } => return None,
        Records {
            major: Some(other), ..
        } => Err(fault(
            &[],
            format!("unsupported format {other}.x of a sparse file"),
            at,
        )),
    };
    let real_size = || {
        records
            .real_size
            .ok_or_else(|| fault(&[], "a sparse file without a size", at))
    };
    Some(numbers.and_then(|numbers| checked_map(&numbers, real_size()?, tar.left, at)))
}

/// Reads the map at the start of the contents. It has the number of parts, then their offsets and
/// sizes, one decimal number per line, padded to whole blocks.
fn contents_map<R: TarInput>(tar: &mut TarReader<R>) -> io::Result<Vec<u64>> {
    let start = tar.at;
    let mut map = BufReader::with_capacity(BLOCK as usize, Blocks(tar));
    let mut line = || -> io::Result<u64> {
        let mut digits = Vec::new();
        map.by_ref()
            .take(LONGEST_NUMBER)
            .read_until(b'\n', &mut digits)?;
        let digits = digits
            .strip_suffix(b"\n")
            .and_then(|digits| number(digits).ok());
        digits.ok_or_else(|| fault(&[], "invalid number in the map of a sparse file", start))
    };
    let count = line()?;
    if count > MOST_PARTS as u64 {
        return Err(fault(&[], TOO_MANY, start));
    }
    (0..2 * count).map(|_| line()).collect()
}

/// The current contents, one block at a time.
struct Blocks<'t, R>(&'t mut TarReader<R>);

impl<R: TarInput> Read for Blocks<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let block = usize::try_from(self.0.left.min(BLOCK))
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        self.0
            .stored()
            .read_exact(buffer.get_mut(..block).unwrap_or_default())?;
        Ok(block)
    }
}

/// Checks that the parts are in order, within the `plain_size` bytes of the file, and together as
/// large as the `stored` bytes of its contents.
fn checked_map(numbers: &[u64], plain_size: u64, stored: u64, at: u64) -> io::Result<SparseMap> {
    let (mut end, mut sum) = (0, 0);
    let mut parts = Vec::new();
    let wrong = || {
        fault(
            &[],
            "the map of a sparse file does not fit the contents",
            at,
        )
    };
    for pair in numbers.chunks(2) {
        let &[offset, size] = pair else {
            return Err(wrong());
        };
        if offset < end {
            return Err(wrong());
        }
        end = offset.checked_add(size).ok_or_else(wrong)?;
        sum += size;
        if size > 0 {
            parts.push(SparsePart { offset, size });
        }
    }
    if end > plain_size || sum != stored {
        Err(wrong())
    } else {
        Ok(SparseMap { parts, plain_size })
    }
}

// The records of a pax header: one `LENGTH KEY=VALUE` line each. The length is that of the whole
// line. Values may contain newlines, so only the length marks the end of a record.

/// Properties of the next file from its records.
#[derive(Debug, Default)]
struct Records {
    /// The name. For sparse files, GNU tar uses a separate record.
    name: Option<Vec<u8>>,
    /// The size in the archive.
    size: Option<u64>,
    /// The major version of GNU tar's sparse format, if given.
    major: Option<u64>,
    /// The full size of a sparse file.
    real_size: Option<u64>,
    /// Offset and size of each part of a sparse file, alternating.
    map: Option<Vec<u64>>,
    has_sparse_name: bool,
}

impl Records {
    /// Adds the records in `bytes`. If one is damaged, those before it are still added.
    fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        const BROKEN: &str = "a record of the pax header has a wrong length";
        while !bytes.is_empty() {
            let blank = bytes.iter().position(|byte| *byte == b' ').ok_or(BROKEN)?;
            let (length, _) = bytes.split_at_checked(blank).ok_or(BROKEN)?;
            let length = usize::try_from(number(length)?).map_err(|_| BROKEN)?;
            let (line, rest) = bytes.split_at_checked(length).ok_or(BROKEN)?;
            let record = line
                .get(blank + 1..)
                .and_then(|line| line.strip_suffix(b"\n"))
                .ok_or(BROKEN)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
            let (key, value) = record.split_at_checked(equals).ok_or(BROKEN)?;
            self.take(key, value.get(1..).unwrap_or_default())?;
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" if !self.has_sparse_name => self.name = Some(value.to_vec()),
            b"GNU.sparse.name" => (self.name, self.has_sparse_name) = (Some(value.to_vec()), true),
            b"size" => self.size = Some(number(value)?),
            b"GNU.sparse.major" => self.major = Some(number(value)?),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.real_size = Some(number(value)?),
            b"GNU.sparse.map" => {
                let numbers = value
                    .split(|byte| *byte == b',')
                    .filter(|part| !part.is_empty())
                    .map(number);
                self.map = Some(numbers.collect::<Result<_, _>>()?);
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                self.map.get_or_insert_default().push(number(value)?)
            }
            _ => {}
        }
        if self
            .map
            .as_ref()
            .is_some_and(|map| map.len() / 2 > MOST_PARTS)
        {
            Err(TOO_MANY)
        } else {
            Ok(())
        }
    }
}

/// Parses a decimal number.
fn number(digits: &[u8]) -> Result<u64, &'static str> {
    const NONE: &str = "invalid number in the pax header";
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NONE);
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(NONE)
}
