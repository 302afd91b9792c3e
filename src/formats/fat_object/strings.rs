//! String tables as LLVM makes them: each string once, and one that ends another inside it. The order depends on nothing but the
//! strings, so that an object taken apart and put together again has the table it had.

use std::collections::HashMap;

/// A string table.
pub(super) struct Strings<'a> {
    offsets: HashMap<&'a [u8], u64>,
    /// The strings that stand in it for themselves, in order.
    stored: Vec<&'a [u8]>,
    size: u64,
}

impl<'a> Strings<'a> {
    /// An empty table: `first` bytes stand before its first string.
    pub(super) fn new(first: u64) -> Self {
        Strings { offsets: HashMap::new(), stored: Vec::new(), size: first }
    }

    /// Adds strings, behind all that is there, in the order of their ends, so that one that ends another follows it.
    pub(super) fn add(&mut self, strings: impl IntoIterator<Item = &'a [u8]>) {
        let unknown = |string: &&[u8]| !string.is_empty() && !self.offsets.contains_key(string);
        let mut strings: Vec<&[u8]> = strings.into_iter().filter(unknown).collect();
        strings.sort_unstable_by(|one, other| other.iter().rev().cmp(one.iter().rev()));
        strings.dedup();
        for string in strings {
            if self.stored.last().is_some_and(|previous| previous.ends_with(string)) {
                self.offsets.insert(string, self.size - string.len() as u64 - 1);
                continue;
            }
            self.offsets.insert(string, self.size);
            self.stored.push(string);
            self.size += string.len() as u64 + 1;
        }
    }

    /// Where `string` stands; 0 for the empty one, and for one that was not added.
    pub(super) fn offset(&self, string: &[u8]) -> u64 {
        self.offsets.get(string).copied().unwrap_or(0)
    }

    /// The size of the table, with what stands before the first string.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The table: `first`, then the strings, each with its end.
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
