//! String tables with LLVM's layout: no duplicates, and a string that is the suffix of another
//! shares its bytes. The order depends only on the strings, so rewriting an unchanged object gives
//! the same table.

use std::collections::HashMap;

/// A string table.
pub(super) struct Strings<'a> {
    offsets: HashMap<&'a [u8], u64>,
    /// The stored strings, in order.
    stored: Vec<&'a [u8]>,
    size: u64,
}

impl<'a> Strings<'a> {
    /// An empty table with `first` bytes before its first string.
    pub(super) fn new(first: u64) -> Self {
        Strings {
            offsets: HashMap::new(),
            stored: Vec::new(),
            size: first,
        }
    }

    /// Appends strings, sorted by their last bytes, so that a suffix of another string directly
    /// follows it.
    pub(super) fn add(&mut self, strings: impl IntoIterator<Item = &'a [u8]>) {
        let unknown = |string: &&[u8]| !string.is_empty() && !self.offsets.contains_key(string);
        let mut strings: Vec<&[u8]> = strings.into_iter().filter(unknown).collect();
        strings.sort_unstable_by(|one, other| other.iter().rev().cmp(one.iter().rev()));
        strings.dedup();
        for string in strings {
            if self
                .stored
                .last()
                .is_some_and(|previous| previous.ends_with(string))
            {
                self.offsets
                    .insert(string, self.size - string.len() as u64 - 1);
                continue;
            }
            self.offsets.insert(string, self.size);
            self.stored.push(string);
            self.size += string.len() as u64 + 1;
        }
    }

    /// The offset of `string`, or 0 for the empty string and for one that was not added.
    pub(super) fn offset(&self, string: &[u8]) -> u64 {
        self.offsets.get(string).copied().unwrap_or(0)
    }

    /// The size of the table, including the bytes before the first string.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The table: `first`, then the strings, each with a terminating zero.
    pub(super) fn bytes(&self, first: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size as usize);
        bytes.extend_from_slice(first);
        for string in &self.stored {
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        bytes
    }
}
