//! A file's bytes, some of them changed.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Part;
use crate::error::Malformed;
use crate::formats::slice;

const PAST_THE_END: &str = "patched bytes are past the end";

/// A file with bytes written over others. Offsets are those in the old file.
pub(super) struct Bytes<'a> {
    old: &'a [u8],
    /// The changed bytes by where they begin. No two of them overlap.
    changed: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(old: &'a [u8]) -> Self {
        Bytes {
            old,
            changed: BTreeMap::new(),
        }
    }

    /// The file without changes.
    pub(super) fn old(&self) -> &'a [u8] {
        self.old
    }

    /// Writes `bytes` over those from `offset` on.
    pub(super) fn set(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Malformed> {
        slice(self.old, offset, bytes.len() as u64, PAST_THE_END, offset)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        let mut merged = bytes.to_vec();
        let mut start = offset;
        for at in self.keys_within(offset..end) {
            let Some(before) = self.changed.remove(&at) else {
                continue;
            };
            // What was there stays before and behind the new bytes.
            if let Some(lead) = start.checked_sub(at) {
                merged.splice(..0, before.iter().copied().take(lead as usize));
                start = at;
            }
            let reaches = start + merged.len() as u64;
            merged.extend(before.iter().skip(reaches.saturating_sub(at) as usize));
        }
        self.changed.insert(start, merged);
        Ok(())
    }

    /// The bytes as they are now.
    pub(super) fn get(&self, offset: u64, size: u64) -> Result<Vec<u8>, Malformed> {
        let mut all = slice(self.old, offset, size, "a range past the end", offset)?.to_vec();
        for at in self.keys_within(offset..offset + size) {
            let bytes = self.changed.get(&at).map_or(&[][..], Vec::as_slice);
            let skipped = offset.saturating_sub(at) as usize;
            let to = all.iter_mut().skip(at.saturating_sub(offset) as usize);
            to.zip(bytes.iter().skip(skipped))
                .for_each(|(to, byte)| *to = *byte);
        }
        Ok(all)
    }

    /// Whether any of these bytes has been changed.
    pub(super) fn is_changed(&self, range: Range<u64>) -> bool {
        !self.keys_within(range).is_empty()
    }

    /// The starts of changed bytes that reach into `range`.
    fn keys_within(&self, range: Range<u64>) -> Vec<u64> {
        let before = self
            .changed
            .range(..range.start)
            .next_back()
            .filter(|(at, bytes)| *at + bytes.len() as u64 > range.start);
        let mut keys: Vec<u64> = before.map(|(at, _)| *at).into_iter().collect();
        if range.start < range.end {
            keys.extend(self.changed.range(range).map(|(at, _)| *at));
        }
        keys
    }

    /// Appends this range of the file to `parts`.
    pub(super) fn emit(&self, range: Range<u64>, parts: &mut Vec<Part>) {
        let mut at = range.start;
        for start in self.keys_within(range.clone()) {
            let bytes = self.changed.get(&start).map_or(&[][..], Vec::as_slice);
            let end = (start + bytes.len() as u64).min(range.end);
            if at < start {
                parts.push(Part::Old(at..start));
            }
            let from = at.max(start);
            let part = bytes
                .iter()
                .skip((from - start) as usize)
                .take((end - from) as usize);
            parts.push(Part::Bytes(part.copied().collect()));
            at = end;
        }
        if at < range.end {
            parts.push(Part::Old(at..range.end));
        }
    }
}
