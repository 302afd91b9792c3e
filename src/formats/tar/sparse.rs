//! Sparse files, whose zeros are not stored, in the four formats of GNU tar. The oldest has its own
//! header type. In pax archives, the map is in records (0.0: two per part, 0.1: one for all) or at
//! the start of the contents (1.0).

use std::io::{self, BufRead, BufReader, Read};

use tar::{GnuExtSparseHeader, GnuHeader};

use super::pax::{Records, number};
use super::{BLOCK, TarInput, TarReader, fault};

/// The limit on the number of parts, so that maps stay small.
pub(super) const MOST_PARTS: usize = 64 << 10;
pub(super) const TOO_MANY: &str = "a sparse file of more than 65536 parts is not supported";
/// The longest number in a map of version 1.0, including its newline.
const LONGEST_NUMBER: u64 = 21;

/// A stored part of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The offset in the unpacked file.
    pub(super) offset: u64,
    /// The size in bytes.
    pub(super) size: u64,
}

/// The stored parts of a file.
pub(super) struct Map {
    pub(super) parts: Vec<Part>,
    pub(super) plain_size: u64,
}

/// Reads the map in a GNU header and in its extension blocks.
pub(super) fn of_gnu<R: TarInput>(tar: &mut TarReader<R>, header: &GnuHeader) -> io::Result<Map> {
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
    checked(&numbers, header.real_size().map_err(no_map)?, tar.left, at)
}

/// The map in pax records or in the contents, or `None` if the file is not sparse.
pub(super) fn of_pax<R: TarInput>(
    tar: &mut TarReader<R>,
    records: Records,
) -> Option<io::Result<Map>> {
    let at = tar.at;
    let numbers = match records {
        Records { major: Some(1), .. } => of_contents(tar),
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
    Some(numbers.and_then(|numbers| checked(&numbers, real_size()?, tar.left, at)))
}

/// Reads the map at the start of the contents. It has the number of parts, then their offsets and
/// sizes, one decimal number per line, padded to whole blocks.
fn of_contents<R: TarInput>(tar: &mut TarReader<R>) -> io::Result<Vec<u64>> {
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
fn checked(numbers: &[u64], plain_size: u64, stored: u64, at: u64) -> io::Result<Map> {
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
            parts.push(Part { offset, size });
        }
    }
    if end > plain_size || sum != stored {
        Err(wrong())
    } else {
        Ok(Map { parts, plain_size })
    }
}
