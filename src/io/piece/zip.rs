//! Members of zip files as pieces: what is stored is where it is, and what is compressed is inflated to an unnamed temporary file
//! that goes with the piece. Nothing is in memory but what is looked at.

use std::io::{self, BufReader, Read};

use anyhow::{Result, anyhow};

use super::{BUFFER, Piece, PieceReader};
use crate::error::Malformed;
use crate::formats::zip::{ZipMember, ZipMethod, ZipReader};

/// `member` of the zip file `zip`. What is inflated is compared with its checksum; for what is stored, that is
/// [`check_zip_member`].
pub(crate) fn zip_member(zip: &Piece, member: &ZipMember<'_>) -> Result<Piece> {
    let stored = part(zip, member)?;
    if member.method == ZipMethod::Stored {
        return Ok(stored);
    }
    Piece::made(|out| {
        io::copy(&mut reader(&stored, member)?, out).map_err(|error| told(member, error))?;
        Ok(())
    })
}

/// Up to `len` bytes from the start of `member` of the zip file `zip`.
pub(crate) fn start_of_zip_member(zip: &Piece, member: &ZipMember<'_>, len: u64) -> Result<Vec<u8>> {
    let stored = part(zip, member)?;
    let mut start = Vec::new();
    reader(&stored, member)?.take(len).read_to_end(&mut start).map_err(|error| told(member, error))?;
    Ok(start)
}

/// Compares all of a `member` of the zip file `zip` with its checksum.
pub(crate) fn check_zip_member(zip: &Piece, member: &ZipMember<'_>) -> Result<()> {
    let stored = part(zip, member)?;
    io::copy(&mut reader(&stored, member)?, &mut io::sink()).map_err(|error| told(member, error))?;
    Ok(())
}

/// The bytes of `member` as they are in the zip file.
fn part(zip: &Piece, member: &ZipMember<'_>) -> Result<Piece> {
    zip.slice(member.offset, member.size).ok_or_else(|| anyhow!(member.fault("past the end of the zip file")))
}

fn reader<'p>(stored: &'p Piece, member: &ZipMember<'_>) -> Result<ZipReader<BufReader<PieceReader<'p>>>> {
    ZipReader::new(member, BufReader::with_capacity(BUFFER, stored.reader())).map_err(|fault| anyhow!(member.fault(fault.what)))
}

/// An error of reading: what is wrong with the contents as a fault of the member, and what the system says as it is.
fn told(member: &ZipMember<'_>, error: io::Error) -> anyhow::Error {
    match Malformed::of(&error) {
        Some(fault) => anyhow!(member.fault(fault.what)),
        None => error.into(),
    }
}
