//! Members of zip files as pieces. A stored member is a part of the zip file. A compressed one is
//! decompressed to an unnamed temporary file that is removed with the piece. Only the pages that
//! are read are in memory.

use std::io::{self, BufReader, Read};

use anyhow::{Result, anyhow};

use super::{BUFFER, FileSlice, PieceReader};
use crate::error::Malformed;
use crate::formats::zip::{ZipMember, ZipMethod, ZipReader};

/// Returns `member` of the zip file `zip`. Decompressed data is compared with its checksum; for
/// stored data, use [`check_zip_member`].
pub(crate) fn zip_member(zip: &FileSlice, member: &ZipMember<'_>) -> Result<FileSlice> {
    let stored = part(zip, member)?;
    if member.method == ZipMethod::Stored {
        return Ok(stored);
    }
    FileSlice::made(|out| {
        io::copy(&mut reader(&stored, member)?, out).map_err(|error| read_error(member, error))?;
        Ok(())
    })
}

/// Returns up to `len` bytes from the start of `member` of the zip file `zip`.
pub(crate) fn start_of_zip_member(
    zip: &FileSlice,
    member: &ZipMember<'_>,
    len: u64,
) -> Result<Vec<u8>> {
    let stored = part(zip, member)?;
    let mut start = Vec::new();
    reader(&stored, member)?
        .take(len)
        .read_to_end(&mut start)
        .map_err(|error| read_error(member, error))?;
    Ok(start)
}

/// Compares all of a `member` of the zip file `zip` with its checksum.
pub(crate) fn check_zip_member(zip: &FileSlice, member: &ZipMember<'_>) -> Result<()> {
    let stored = part(zip, member)?;
    io::copy(&mut reader(&stored, member)?, &mut io::sink())
        .map_err(|error| read_error(member, error))?;
    Ok(())
}

/// The bytes of `member` as they are in the zip file.
fn part(zip: &FileSlice, member: &ZipMember<'_>) -> Result<FileSlice> {
    zip.slice(member.offset, member.size)
        .ok_or_else(|| anyhow!(member.fault("past the end of the zip file")))
}

fn reader<'p>(
    stored: &'p FileSlice,
    member: &ZipMember<'_>,
) -> Result<ZipReader<BufReader<PieceReader<'p>>>> {
    ZipReader::new(member, BufReader::with_capacity(BUFFER, stored.reader()))
        .map_err(|fault| anyhow!(member.fault(fault.what)))
}

/// A read error: damaged contents become a fault of the member, and system errors stay unchanged.
fn read_error(member: &ZipMember<'_>, error: io::Error) -> anyhow::Error {
    match Malformed::of(&error) {
        Some(fault) => anyhow!(member.fault(fault.what)),
        None => error.into(),
    }
}
