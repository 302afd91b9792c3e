//! Sparse files, whose zeros are left out: the four forms in which GNU tar has stored them. The oldest has a header of its own;
//! those in pax archives have their parts in records (0.0: two for each part, 0.1: one for all) or at the start of the contents
//! (1.0).

use std::io::{self, BufRead, BufReader, Read};

use tar::{GnuExtSparseHeader, GnuHeader};

use super::pax::{Records, number};
use super::{BLOCK, TarInput, TarReader, fault};

/// The most parts of a file that are read. A map of more would not be small any more.
pub(super) const MOST_PARTS: usize = 64 << 10;
/// What a file with more is told.
pub(super) const TOO_MANY: &str = "a sparse file of more than 65536 parts is not read";
/// The longest number in a map of version 1.0 with the newline behind it.
const LONGEST_NUMBER: u64 = 21;

/// A part of a sparse file that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it is in the file.
    pub(super) offset: u64,
    /// How many bytes it has.
    pub(super) size: u64,
}

/// Where the stored parts of a file are.
pub(super) struct Map {
    pub(super) parts: Vec<Part>,
    pub(super) plain_size: u64,
}

/// The map in a header of GNU's, and in the blocks behind it, where it does not fit.
pub(super) fn of_gnu<R: TarInput>(tar: &mut TarReader<R>, header: &GnuHeader) -> io::Result<Map> {
    let at = tar.at;
    let told = |_| fault(&[], "a sparse file whose header has no map", at);
    let mut numbers = Vec::new();
    let mut is_extended = header.is_extended();
    let mut extension = GnuExtSparseHeader::new();
    let mut add = |entries: &[tar::GnuSparseHeader]| -> io::Result<()> {
        for entry in entries.iter().filter(|entry| !entry.is_empty()) {
            numbers.extend([entry.offset().map_err(told)?, entry.length().map_err(told)?]);
        }
        if numbers.len() / 2 > MOST_PARTS { Err(fault(&[], TOO_MANY, at)) } else { Ok(()) }
    };
    // These blocks come before the contents, and their size does not count.
    let mut done = add(&header.sparse);
    while is_extended {
        let Some(block) = tar.block()? else { return Err(fault(&[], "the archive ends within its map", at)) };
        extension.as_mut_bytes().copy_from_slice(&block);
        done = done.and_then(|()| add(extension.sparse()));
        is_extended = extension.is_extended();
    }
    done?;
    checked(&numbers, header.real_size().map_err(told)?, tar.left, at)
}

/// The map that the records of a pax header have or announce; none where they have none.
pub(super) fn of_pax<R: TarInput>(tar: &mut TarReader<R>, records: Records) -> Option<io::Result<Map>> {
    let at = tar.at;
    let numbers = match records {
        Records { major: Some(1), .. } => of_contents(tar),
        Records { map: Some(map), .. } => Ok(map),
        Records { major: None | Some(0), .. } => return None,
        Records { major: Some(other), .. } => {
            Err(fault(&[], format!("a sparse file in the form {other}.x, which is not read"), at))
        }
    };
    let real_size = || records.real_size.ok_or_else(|| fault(&[], "a sparse file without its size", at));
    Some(numbers.and_then(|numbers| checked(&numbers, real_size()?, tar.left, at)))
}

/// The map that the contents begin with: how many parts, then their offsets and sizes, a decimal number in each line, padded to
/// whole blocks.
fn of_contents<R: TarInput>(tar: &mut TarReader<R>) -> io::Result<Vec<u64>> {
    let start = tar.at;
    let mut map = BufReader::with_capacity(BLOCK as usize, Blocks(tar));
    let mut line = || -> io::Result<u64> {
        let mut digits = Vec::new();
        map.by_ref().take(LONGEST_NUMBER).read_until(b'\n', &mut digits)?;
        let digits = digits.strip_suffix(b"\n").and_then(|digits| number(digits).ok());
        digits.ok_or_else(|| fault(&[], "a number in its map is none", start))
    };
    let count = line()?;
    if count > MOST_PARTS as u64 {
        return Err(fault(&[], TOO_MANY, start));
    }
    (0..2 * count).map(|_| line()).collect()
}

/// The contents at hand, a block at a time.
struct Blocks<'t, R>(&'t mut TarReader<R>);

impl<R: TarInput> Read for Blocks<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let block = usize::try_from(self.0.left.min(BLOCK)).unwrap_or(usize::MAX).min(buffer.len());
        self.0.stored().read_exact(buffer.get_mut(..block).unwrap_or_default())?;
        Ok(block)
    }
}

/// The map of these offsets and sizes, if the parts are in order, within the `plain_size` bytes of the file, and as large as the
/// `stored` bytes of its contents.
fn checked(numbers: &[u64], plain_size: u64, stored: u64, at: u64) -> io::Result<Map> {
    let (mut end, mut sum) = (0, 0);
    let mut parts = Vec::new();
    let wrong = || fault(&[], "its map of a sparse file does not fit its contents", at);
    for pair in numbers.chunks(2) {
        let &[offset, size] = pair else { return Err(wrong()) };
        if offset < end {
            return Err(wrong());
        }
        end = offset.checked_add(size).ok_or_else(wrong)?;
        sum += size;
        if size > 0 {
            parts.push(Part { offset, size });
        }
    }
    if end > plain_size || sum != stored { Err(wrong()) } else { Ok(Map { parts, plain_size }) }
}
