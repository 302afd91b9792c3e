//! The members of a zip file, which a Python wheel is, too: stored, deflated (method 8) or compressed with zstd (93), also with the
//! fields of zip64. Where they are is what the directory at the end says, as every unpacker has it; what stands before each member
//! must agree.
//!
//! A zip file can claim much that it does not hold. Members that share bytes, sizes that the compressed data cannot grow to, and
//! names that differ in the two places that have them are faults here; what comes out of a member is compared with its size and
//! checksum.
//!
//! ```
//! use offld::formats::zip;
//!
//! let empty = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
//! assert!(zip::is_zip(empty));
//! assert_eq!(zip::ZipFile::read(empty)?.members().count(), 0);
//! # Ok::<(), offld::formats::archive::ArchiveFault>(())
//! ```

pub(crate) mod resize;
#[cfg(test)]
mod tests;
mod unpack;

use std::path::Path;

use rawzip::{CompressionMethod, ErrorKind, ZipFileHeaderRecord, ZipSliceArchive, ZipSliceEntries};

pub use super::magic::{EMPTY_ZIP, ZIP};
pub use unpack::ZipReader;

use super::archive::{ArchiveFault, name, shown_name};

/// The most by which deflated data can grow, and zstd's: a block of 128 KiB takes at least 4 bytes.
const DEFLATE_GROWTH: u64 = 1032;
const ZSTD_GROWTH: u64 = 32 << 10;

/// How a member is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZipMethod {
    /// Not at all.
    Stored,
    /// RFC 1951.
    Deflate,
    /// RFC 8878.
    Zstd,
}

impl ZipMethod {
    /// Its name, for people; none for what is not compressed.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ZipMethod::Stored => None,
            ZipMethod::Deflate => Some("deflate"),
            ZipMethod::Zstd => Some("zstd"),
        }
    }
}

/// One member of a zip file. Folders are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZipMember<'data> {
    /// Its path in the zip file, as it is stored.
    pub name: &'data [u8],
    /// Where its header is, in bytes from the start of the zip file.
    pub header: u64,
    /// Where its bytes are, in bytes from the start of the zip file.
    pub offset: u64,
    /// How many bytes it has there.
    pub size: u64,
    /// How they are compressed.
    pub method: ZipMethod,
    /// How many bytes it has when it is unpacked. What is stored has as many as `size`.
    pub plain_size: u64,
    /// The CRC-32 of these bytes.
    pub crc: u32,
}

impl ZipMember<'_> {
    /// The path below the folder that the zip file is unpacked to; none where the name is absolute or leads out of that folder,
    /// which no unpacker takes.
    pub fn path(&self) -> Option<&Path> {
        name::path_below(self.name)
    }

    /// What is wrong with the name, where something is: such a name is made to deceive who unpacks the file, or who reads what is
    /// in it.
    pub fn name_fault(&self) -> Option<ArchiveFault> {
        name::name_fault(self.name).map(|what| self.fault(what))
    }

    /// The name for messages: control characters are escaped, and a very long name is cut.
    pub fn shown_name(&self) -> String {
        shown_name(self.name)
    }

    /// A fault of this member.
    pub fn fault(&self, what: impl Into<String>) -> ArchiveFault {
        ArchiveFault { member: Some(self.shown_name()), what: what.into(), offset: self.header }
    }
}

/// Whether `data` starts as a zip file does, without a program before it.
pub fn is_zip(data: &[u8]) -> bool {
    data.starts_with(&ZIP) || data.starts_with(&EMPTY_ZIP)
}

/// A zip file whose directory has been found.
#[derive(Debug)]
pub struct ZipFile<'data> {
    data: &'data [u8],
    archive: ZipSliceArchive<&'data [u8]>,
}

impl<'data> ZipFile<'data> {
    /// The zip file `data`. An error when it has no directory.
    pub fn read(data: &'data [u8]) -> Result<ZipFile<'data>, ArchiveFault> {
        let archive = rawzip::ZipArchive::from_slice(data).map_err(|error| {
            let offset = error.eocd_offset().unwrap_or(data.len() as u64);
            ArchiveFault { member: None, what: told(error.kind()).to_owned(), offset }
        })?;
        Ok(ZipFile { data, archive })
    }

    /// Its members, in the order of the directory.
    pub fn members(&self) -> ZipMembers<'_> {
        let next = self.archive.directory_offset();
        ZipMembers { zip: self, entries: self.archive.entries(), count: 0, next, held: 0, ended: false }
    }
}

/// Goes through the members of a zip file. After an error there may be more members.
#[derive(Debug)]
pub struct ZipMembers<'zip> {
    zip: &'zip ZipFile<'zip>,
    entries: ZipSliceEntries<'zip>,
    /// How many entries of the directory have been read.
    count: u64,
    /// Where the next one is.
    next: u64,
    /// How many bytes the members have in the file, all together.
    held: u64,
    ended: bool,
}

impl<'zip> Iterator for ZipMembers<'zip> {
    type Item = Result<ZipMember<'zip>, ArchiveFault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let entry = match self.entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return self.end(),
                Err(error) => {
                    self.ended = true;
                    let what = format!("entry {} of its directory: {}", self.count + 1, told(error.kind()));
                    return Some(Err(ArchiveFault { member: None, what, offset: self.next }));
                }
            };
            self.count += 1;
            self.next = end_of(self.zip.data, &entry);
            if !entry.is_dir() {
                return Some(self.member(&entry));
            }
        }
        None
    }
}

impl<'zip> ZipMembers<'zip> {
    /// After the last entry: whether they are as many as the end of the file says, which has 16 bits for it where it is not of
    /// zip64.
    fn end(&mut self) -> Option<Result<ZipMember<'zip>, ArchiveFault>> {
        self.ended = true;
        let told = self.zip.archive.entries_hint();
        if told as u16 == self.count as u16 {
            return None;
        }
        let what = format!("its directory has {} entries and should have {told}", self.count);
        Some(Err(ArchiveFault { member: None, what, offset: self.zip.archive.directory_offset() }))
    }

    fn member(&mut self, entry: &ZipFileHeaderRecord<'zip>) -> Result<ZipMember<'zip>, ArchiveFault> {
        let name: &'zip [u8] = name_of(self.zip.data, entry);
        let (header, size) = (entry.local_header_offset(), entry.compressed_size_hint());
        let fault = |what: String| ArchiveFault { member: Some(shown_name(name)), what, offset: header };
        let found = self.zip.archive.get_entry(entry.wayfinder()).map_err(|error| fault(told(error.kind()).to_owned()))?;
        if found.local_header().file_path().as_ref() != name {
            return Err(fault("its header has another name than the directory".to_owned()));
        }
        let (offset, end) = found.compressed_data_range();
        self.held = self.held.saturating_add(size);
        if end > self.zip.archive.directory_offset() || self.held > self.zip.data.len() as u64 {
            return Err(fault("its bytes are those of other members, or of the directory, too".to_owned()));
        }
        if entry.flags().is_encrypted() {
            return Err(fault("it is encrypted, and cannot be read".to_owned()));
        }
        let (method, most) = match entry.compression_method() {
            CompressionMethod::STORE => (ZipMethod::Stored, size),
            CompressionMethod::DEFLATE => (ZipMethod::Deflate, size.saturating_mul(DEFLATE_GROWTH)),
            CompressionMethod::ZSTD => (ZipMethod::Zstd, size.saturating_mul(ZSTD_GROWTH)),
            other => return Err(fault(format!("it is compressed with method {other}, which is not read"))),
        };
        let plain_size = entry.uncompressed_size_hint();
        if plain_size > most || (method == ZipMethod::Stored && plain_size != size) {
            return Err(fault(format!("{size} bytes of it cannot be the {plain_size} that the directory has for it")));
        }
        Ok(ZipMember { name, header, offset, size, method, plain_size, crc: entry.crc32() })
    }
}

/// The size of an entry of the directory without its name and what else has no fixed length, and where in it these lengths are.
const ENTRY: u64 = 46;
const LENGTHS: u64 = 28;

/// The end of an entry of the directory of `data`.
fn end_of(data: &[u8], entry: &ZipFileHeaderRecord<'_>) -> u64 {
    let at = entry.central_directory_offset();
    let lengths = super::slice(data, at + LENGTHS, 6, "", at).unwrap_or_default();
    let variable: u64 =
        lengths.chunks_exact(2).map(|pair| pair.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))).sum();
    at + ENTRY + variable
}

/// The name in an entry of the directory of `data`.
fn name_of<'data>(data: &'data [u8], entry: &ZipFileHeaderRecord<'_>) -> &'data [u8] {
    let at = entry.central_directory_offset();
    super::slice(data, at + ENTRY, entry.file_path().len() as u64, "", at).unwrap_or_default()
}

/// What is wrong, in our words.
fn told(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::MissingEndOfCentralDirectory => "a zip file without its end: no directory is in the last MiB",
        ErrorKind::InvalidEndOfCentralDirectory => "the end of the zip file has a place for its directory where none can be",
        ErrorKind::InvalidSignature { .. } => "no header of a member or of an entry is here",
        _ => "past the end of the zip file",
    }
}
