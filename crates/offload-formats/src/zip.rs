//! Reads the members of zip files, including Python wheels: stored, deflated (method 8) or
//! compressed with zstd (93), also with zip64 fields. As in other unpackers, the directory at the
//! end has the members' positions. The header of each member must agree with it.
//!
//! A zip file can claim more than it contains. The reader rejects members that share bytes, sizes
//! that are impossible for the compressed data, and names that differ between header and directory.
//! Decompressed contents are compared with size and checksum.
//!
//! ```
//! use offload_formats::zip;
//!
//! let empty = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
//! assert!(zip::is_zip(empty));
//! assert_eq!(zip::ZipFile::read(empty)?.members().count(), 0);
//! # Ok::<(), offload_formats::archive::ArchiveFault>(())
//! ```

pub mod resize;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;

use rawzip::{CompressionMethod, ErrorKind, ZipFileHeaderRecord, ZipSliceArchive, ZipSliceEntries};

pub use super::magic::numbers::{EMPTY_ZIP, ZIP};

use super::archive::{ArchiveFault, name_fault, path_below, shown_name};
use crate::bytes::little_endian;
use crate::compressed::window_log;
use crate::error::Malformed;

/// The largest growth of deflated data, and that of zstd, where a block of 128 KiB takes at least 4
/// bytes.
const DEFLATE_GROWTH: u64 = 1032;
const ZSTD_GROWTH: u64 = 32 << 10;

/// The compression method of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZipMethod {
    /// Not compressed.
    Stored,
    /// Deflate (RFC 1951).
    Deflate,
    /// zstd (RFC 8878).
    Zstd,
}

impl ZipMethod {
    /// The method's name for messages, or `None` for stored members.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ZipMethod::Stored => None,
            ZipMethod::Deflate => Some("deflate"),
            ZipMethod::Zstd => Some("zstd"),
        }
    }
}

/// A member of a zip file. Directories are not members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZipMember<'data> {
    /// The path in the zip file, as stored.
    pub name: &'data [u8],
    /// The offset of the header in the zip file.
    pub header: u64,
    /// The offset of the contents in the zip file.
    pub offset: u64,
    /// The stored size in bytes.
    pub size: u64,
    /// The compression method.
    pub method: ZipMethod,
    /// The uncompressed size in bytes, equal to `size` for stored members.
    pub plain_size: u64,
    /// The CRC-32 of the uncompressed contents.
    pub crc: u32,
}

impl ZipMember<'_> {
    /// The path relative to the target directory. `None` if the name is absolute or leads out of
    /// that directory; unpackers reject such names.
    pub fn path(&self) -> Option<&Path> {
        path_below(self.name)
    }

    /// The fault of a name that is meant to deceive users who unpack or list the file. `None` for
    /// valid names.
    pub fn name_fault(&self) -> Option<ArchiveFault> {
        name_fault(self.name).map(|what| self.fault(what))
    }

    /// The name for messages: control characters are escaped, and a very long name is truncated.
    pub fn shown_name(&self) -> String {
        shown_name(self.name)
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

/// Whether `data` starts with a zip file that has no program before it.
pub fn is_zip(data: &[u8]) -> bool {
    data.starts_with(&ZIP) || data.starts_with(&EMPTY_ZIP)
}

/// A zip file with a located directory.
#[derive(Debug)]
pub struct ZipFile<'data> {
    data: &'data [u8],
    archive: ZipSliceArchive<&'data [u8]>,
}

impl<'data> ZipFile<'data> {
    /// Locates the directory of the zip file `data`. A missing directory is an error.
    pub fn read(data: &'data [u8]) -> Result<ZipFile<'data>, ArchiveFault> {
        let archive = rawzip::ZipArchive::from_slice(data).map_err(|error| {
            let offset = error.eocd_offset().unwrap_or(data.len() as u64);
            ArchiveFault {
                member: None,
                what: fault_text(error.kind()).to_owned(),
                offset,
            }
        })?;
        Ok(ZipFile { data, archive })
    }

    /// The members, in the order of the directory.
    pub fn members(&self) -> ZipMembers<'_> {
        let next = self.archive.directory_offset();
        ZipMembers {
            zip: self,
            entries: self.archive.entries(),
            count: 0,
            next,
            stored: 0,
            ended: false,
        }
    }
}

/// Iterates over the members of a zip file. More members may follow an error.
#[derive(Debug)]
pub struct ZipMembers<'zip> {
    zip: &'zip ZipFile<'zip>,
    entries: ZipSliceEntries<'zip>,
    /// The number of directory entries read so far.
    count: u64,
    /// The offset of the next entry.
    next: u64,
    /// The total stored size of the members so far.
    stored: u64,
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
                    let what = format!(
                        "entry {} of the directory: {}",
                        self.count + 1,
                        fault_text(error.kind())
                    );
                    return Some(Err(ArchiveFault {
                        member: None,
                        what,
                        offset: self.next,
                    }));
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
    /// Checks the number of entries against the end record. Without zip64, its field has only 16
    /// bits.
    fn end(&mut self) -> Option<Result<ZipMember<'zip>, ArchiveFault>> {
        self.ended = true;
        let expected = self.zip.archive.entries_hint();
        if expected as u16 == self.count as u16 {
            return None;
        }
        let what = format!(
            "the directory has {} entries, expected {expected}",
            self.count
        );
        Some(Err(ArchiveFault {
            member: None,
            what,
            offset: self.zip.archive.directory_offset(),
        }))
    }

    fn member(
        &mut self,
        entry: &ZipFileHeaderRecord<'zip>,
    ) -> Result<ZipMember<'zip>, ArchiveFault> {
        let name: &'zip [u8] = name_of(self.zip.data, entry);
        let (header, size) = (entry.local_header_offset(), entry.compressed_size_hint());
        let fault = |what: String| ArchiveFault {
            member: Some(shown_name(name)),
            what,
            offset: header,
        };
        let found = self
            .zip
            .archive
            .get_entry(entry.wayfinder())
            .map_err(|error| fault(fault_text(error.kind()).to_owned()))?;
        if found.local_header().file_path().as_ref() != name {
            return Err(fault(
                "the names in the header and in the directory differ".to_owned(),
            ));
        }
        let (offset, end) = found.compressed_data_range();
        self.stored = self.stored.saturating_add(size);
        if end > self.zip.archive.directory_offset() || self.stored > self.zip.data.len() as u64 {
            return Err(fault(
                "the contents overlap other members or the directory".to_owned(),
            ));
        }
        if entry.flags().is_encrypted() {
            return Err(fault("encrypted members are not supported".to_owned()));
        }
        let (method, most) = match entry.compression_method() {
            CompressionMethod::STORE => (ZipMethod::Stored, size),
            CompressionMethod::DEFLATE => (ZipMethod::Deflate, size.saturating_mul(DEFLATE_GROWTH)),
            CompressionMethod::ZSTD => (ZipMethod::Zstd, size.saturating_mul(ZSTD_GROWTH)),
            other => return Err(fault(format!("unsupported compression method {other}"))),
        };
        let plain_size = entry.uncompressed_size_hint();
        if plain_size > most || (method == ZipMethod::Stored && plain_size != size) {
            return Err(fault(format!(
                "{size} bytes cannot decompress to the {plain_size} bytes that the directory states"
            )));
        }
        Ok(ZipMember {
            name,
            header,
            offset,
            size,
            method,
            plain_size,
            crc: entry.crc32(),
        })
    }
}

/// The fixed size of a directory entry, without its name and other parts of variable length, and
/// the offset of their lengths.
const ENTRY: u64 = 46;
const LENGTHS: u64 = 28;

/// The end of an entry of the directory of `data`.
fn end_of(data: &[u8], entry: &ZipFileHeaderRecord<'_>) -> u64 {
    let at = entry.central_directory_offset();
    let lengths = crate::bytes::slice(data, at + LENGTHS, 6, "", at).unwrap_or_default();
    let variable: u64 = lengths.chunks_exact(2).map(little_endian).sum();
    at + ENTRY + variable
}

/// The name in an entry of the directory of `data`.
fn name_of<'data>(data: &'data [u8], entry: &ZipFileHeaderRecord<'_>) -> &'data [u8] {
    let at = entry.central_directory_offset();
    crate::bytes::slice(data, at + ENTRY, entry.file_path().len() as u64, "", at)
        .unwrap_or_default()
}

/// Converts an error of `rawzip` to our message.
fn fault_text(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::MissingEndOfCentralDirectory => {
            "a zip file without an end record: no directory in the last MiB"
        }
        ErrorKind::InvalidEndOfCentralDirectory => {
            "the end record names an impossible offset of the directory"
        }
        ErrorKind::InvalidSignature { .. } => "no header of a member or a directory entry",
        _ => "past the end of the zip file",
    }
}

// Decompresses a member as a stream and compares size and checksum with the directory at the end.
// At most one excess byte is decompressed.

/// A reader of a member's contents. Errors in the data are a [`Malformed`] with the offset of the
/// member's header. After an error, the data read before must not be used.
pub struct ZipReader<R: BufRead> {
    stream: Stream<R>,
    at: u64,
    left: u64,
    expected_crc: u32,
    crc: flate2::Crc,
}

enum Stream<R: BufRead> {
    Stored(R),
    Deflate(flate2::bufread::DeflateDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

impl<R: BufRead> fmt::Debug for ZipReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZipReader")
            .field("at", &self.at)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> ZipReader<R> {
    /// A reader of `member`, whose stored bytes `packed` yields.
    pub fn new(member: &ZipMember<'_>, packed: R) -> Result<Self, Malformed> {
        let ZipMember {
            header: at,
            plain_size: left,
            crc: expected_crc,
            ..
        } = *member;
        let stream = match member.method {
            ZipMethod::Stored => Stream::Stored(packed),
            ZipMethod::Deflate => Stream::Deflate(flate2::bufread::DeflateDecoder::new(packed)),
            ZipMethod::Zstd => Stream::Zstd(
                zstd_stream(packed, left).map_err(|_| Malformed::new("cannot decompress", at))?,
            ),
        };
        Ok(ZipReader {
            stream,
            at,
            left,
            expected_crc,
            crc: flate2::Crc::new(),
        })
    }

    fn fault(&self, what: &'static str) -> io::Error {
        Malformed::new(what, self.at).into()
    }
}

fn zstd_stream<R: BufRead>(
    packed: R,
    size: u64,
) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?.single_frame();
    decoder.window_log_max(window_log(size))?;
    Ok(decoder)
}

impl<R: BufRead> Read for ZipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.stream {
            Stream::Stored(bytes) => bytes.read(buffer),
            Stream::Deflate(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
        };
        // I/O errors are not faults of the contents.
        let len = read.map_err(|error| {
            if error.raw_os_error().is_some() {
                error
            } else {
                self.fault("cannot decompress")
            }
        })?;
        self.left = self
            .left
            .checked_sub(len as u64)
            .ok_or_else(|| self.fault("more data than the directory states"))?;
        self.crc.update(buffer.get(..len).unwrap_or_default());
        if len == 0 && !buffer.is_empty() {
            if self.left > 0 {
                return Err(self.fault("less data than the directory states"));
            }
            if self.crc.sum() != self.expected_crc {
                return Err(self.fault("the data does not match its checksum"));
            }
        }
        Ok(len)
    }
}
