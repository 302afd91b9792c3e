//! The records of a pax header: `LENGTH KEY=VALUE`, a line each, where the length counts all of the line. Values may have newlines,
//! so lines are told by their lengths.

use super::sparse::MOST_PARTS;

/// What the records say of the next file.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Its name; GNU tar has that of a sparse file in a record of its own.
    pub(super) name: Option<Vec<u8>>,
    /// Its size in the archive.
    pub(super) size: Option<u64>,
    /// The version of the form in which GNU tar stores a sparse file, as far as it is told.
    pub(super) major: Option<u64>,
    /// Of a sparse file, how large it is.
    pub(super) real_size: Option<u64>,
    /// Of a sparse file, offsets and sizes of its parts, in turns.
    pub(super) map: Option<Vec<u64>>,
    has_sparse_name: bool,
}

impl Records {
    /// Takes in the records `bytes`. An error says what is wrong with one of them; those before it are taken in.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        const BROKEN: &str = "a record of its pax header has another length than it says";
        while !bytes.is_empty() {
            let blank = bytes.iter().position(|byte| *byte == b' ').ok_or(BROKEN)?;
            let (length, _) = bytes.split_at_checked(blank).ok_or(BROKEN)?;
            let length = usize::try_from(number(length)?).map_err(|_| BROKEN)?;
            let (line, rest) = bytes.split_at_checked(length).ok_or(BROKEN)?;
            let record = line.get(blank + 1..).and_then(|line| line.strip_suffix(b"\n")).ok_or(BROKEN)?;
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
                let numbers = value.split(|byte| *byte == b',').filter(|part| !part.is_empty()).map(number);
                self.map = Some(numbers.collect::<Result<_, _>>()?);
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.map.get_or_insert_default().push(number(value)?),
            _ => {}
        }
        if self.map.as_ref().is_some_and(|map| map.len() / 2 > MOST_PARTS) { Err(super::sparse::TOO_MANY) } else { Ok(()) }
    }
}

/// A decimal number.
pub(super) fn number(digits: &[u8]) -> Result<u64, &'static str> {
    const NONE: &str = "a number in its pax header is none";
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NONE);
    }
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(NONE)
}
