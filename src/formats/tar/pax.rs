//! The records of a pax header: one `LENGTH KEY=VALUE` line each. The length is that of the whole
//! line. Values may contain newlines, so only the length marks the end of a record.

use super::sparse::MOST_PARTS;

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
            Err(super::sparse::TOO_MANY)
        } else {
            Ok(())
        }
    }
}

/// Parses a decimal number.
pub(super) fn number(digits: &[u8]) -> Result<u64, &'static str> {
    const NONE: &str = "invalid number in the pax header";
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NONE);
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(NONE)
}
