//! Sparse files, whose zeros are not stored, in the four formats of GNU tar. The oldest has its own
//! header type. In pax archives, the map is in records (0.0: two per part, 0.1: one for all) or at
//! the start of the contents (1.0). Also reads all other records of pax headers.

use std::io::{self, BufRead, BufReader, Read};

use tar::{GnuExtSparseHeader, GnuHeader};

use super::{BLOCK, TarInput, TarReader, fault};

/// The limit on the number of parts, so that maps stay small.
const MOST_PARTS: usize = 64 << 10;
const TOO_MANY: &str = "a sparse file of more than 65536 parts is not supported";
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

// The records of a pax header: one `LENGTH KEY=VALUE` line each. The length is that of the whole
// line. Values may contain newlines, so only the length marks the end of a record.

/// Properties of the next file from its records.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// The name. For sparse files, GNU tar uses a separate record.
    pub(super) name: Option<Vec<u8>>,
    /// The size in the archive.
    pub(super) size: Option<u64>,
    /// The major version of GNU tar's sparse format, if given.
    pub(super) major: Option<u64>,
    /// The full size of a sparse file.
    pub(super) real_size: Option<u64>,
    /// Offset and size of each part of a sparse file, alternating.
    pub(super) map: Option<Vec<u64>>,
    has_sparse_name: bool,
}

impl Records {
    /// Adds the records in `bytes`. If one is damaged, those before it are still added.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
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
