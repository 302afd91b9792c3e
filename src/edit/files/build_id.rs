//! A build id of the new contents, for programs that debuggers and symbol servers should not take
//! for the old ones.

use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use object::elf::NT_GNU_BUILD_ID;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use sha2::{Digest, Sha256};

use crate::io::file_slice::FileSlice;
use crate::io::outputs::Output;

/// Gives the file that has been written to `output` a new build id, where it has one: the start of
/// the SHA-256 of the file with the old one in it, of the same length.
///
/// # Errors
/// The file cannot be read or written.
pub(super) fn renew(output: &mut Output) -> Result<()> {
    output.flush()?;
    let piece = FileSlice::try_open(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        output.file().as_raw_fd()
    )))?;
    let Some((offset, len)) = place(piece.bytes()) else {
        return Ok(());
    };
    let mut hash = Sha256::new();
    std::io::copy(&mut piece.reader(), &mut HashWriter(&mut hash))?;
    let digest = hash.finalize();
    let id: Vec<u8> = digest.iter().cycle().take(len).copied().collect();
    let end = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(offset))?;
    output.write_all(&id).context("the build id")?;
    output.seek(SeekFrom::Start(end))?;
    Ok(())
}

struct HashWriter<'h>(&'h mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Where the build id of the ELF file `data` is, and how long it is.
pub(in crate::edit) fn place(data: &[u8]) -> Option<(u64, usize)> {
    let of = |id: &[u8]| {
        (
            id.as_ptr().addr().wrapping_sub(data.as_ptr().addr()) as u64,
            id.len(),
        )
    };
    match object::FileKind::parse(data).ok()? {
        object::FileKind::Elf64 => build_id::<elf::FileHeader64<Endianness>>(data).map(of),
        object::FileKind::Elf32 => build_id::<elf::FileHeader32<Endianness>>(data).map(of),
        _ => None,
    }
}

fn build_id<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<&[u8]> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Some(mut notes) = segment.notes(endian, data).ok().flatten() else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
    }
    None
}
